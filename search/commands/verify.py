"""Run every row of a tuned table and compare its result with the reference: ``run_search.py verify``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from kernels.device import GFX950, DeviceKey, local_device
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.tables.file import load_table
from kernels.tables.rows import TableRow, TunedTable
from kernels.tables.sources import table_path
from kernels.wording import counted, instead_of
from search.device.served import judged_on_device
from search.evaluation import Candidate, Evaluation, served
from search.evaluators.offline import OfflineEvaluator
from search.gate.interpreted import judged_by_interpreter
from search.space.available import config_absence
from search.terminal import output_console, print_lines

EXIT_WRONG = 1
INDENT = 7  # characters before what a line says
UNFINISHED: Final = ("crashed", "timed_out")  # outcomes of an execution that did not end: nobody knows what is right


@dataclass(frozen=True)
class Backend:
    """One way to run a table.

    Args:
        refusal: Why it cannot run a table of this device, or None.
        absence: What it lacks for a row on this device, or None.
        judge: Evaluation of each candidate on this device, in order.
    """

    refusal: Callable[[DeviceKey], str | None]
    absence: Callable[[TableRow, DeviceKey], str | None]
    judge: Callable[[DeviceKey, Sequence[Candidate]], Iterator[Evaluation]]


def verify_table(path: Path | None, on: str) -> int:
    """Print a line a row with the reason: ``ok``, ``wrong``, ``failed`` or ``skip``; the exit code, 1 if one is not ok.

    Args:
        path: Tuned table; None: the project's own for the GPU here, or for ``GFX950`` where there is none.
        on: ``simulator`` executes the machine code, ``interpreter`` the Triton source, both on a few tiles of
            each shape (the simulator also at other M that the row serves, and on an A whose rows are apart);
            ``device`` runs the whole product through the dispatcher on this machine's GPU.

    Raises:
        InputError: ``on`` is unknown, the table cannot be read, or this machine cannot run it that way.
    """
    if on not in BACKENDS:
        raise InputError(f"unknown backend {on!r}; {instead_of(on, BACKENDS)}")
    backend = BACKENDS[on]
    source = path or table_path(local_device() or GFX950)
    table = load_table(source)
    refusal = backend.refusal(table.device)
    if refusal is not None:
        raise InputError(f"{source}: {refusal}")
    return _report(table, backend, on)


def _report(table: TunedTable, backend: Backend, on: str) -> int:
    console = output_console()
    missing = [backend.absence(row, table.device) for row in table.rows]
    chosen = [row for row, reason in zip(table.rows, missing, strict=True) if reason is None]
    judged = backend.judge(table.device, [served(row, table) for row in chosen])
    words = Counter(ok=0, wrong=0)
    for row, reason in zip(table.rows, missing, strict=True):
        if reason is not None:
            print_lines([f"skip   {row.shape} {row.family}: {reason}"], console, INDENT)
            continue
        done = next(judged)
        words[word_of(done)] += 1
        print_lines([line_of(row, done)], console, INDENT)
    if len(chosen) < len(table.rows):
        words["skipped"] = len(table.rows) - len(chosen)
    summary = ", ".join(f"{count} {word}" for word, count in words.items())
    console.print(f"{counted(len(table.rows), 'row')} for {table.device} on the {on}: {summary}")
    return EXIT_WRONG if words["ok"] < len(chosen) else 0


def word_of(done: Evaluation) -> str:
    """``ok``; ``failed`` where the execution did not end; else ``wrong``."""
    return "failed" if done.outcome in UNFINISHED else "ok" if done.outcome == "ok" else "wrong"


def line_of(row: TableRow, done: Evaluation) -> str:
    """What is said of one row."""
    name = f"{word_of(done):6} {row.shape} {row.family}"
    if done.outcome == "ok":
        return f"{name}: largest relative error {done.facts.get('max_rel_error', 0):.2g}"
    return f"{name}: {done.outcome}: {' '.join(done.reason.split())}"


def _absence(row: TableRow, device: DeviceKey, *, offline: bool) -> str | None:
    """A compiler or AITER."""
    return config_absence(row.family, row.config, device, offline=offline)


def _not_simulated(device: DeviceKey) -> str | None:
    known = device.arch == GFX950.arch
    return None if known else f"is for {device}; the simulator executes {GFX950.arch} code only"


def _simulated(device: DeviceKey, candidates: Sequence[Candidate]) -> Iterator[Evaluation]:
    """Compile, or take from the cache, and execute the machine code."""
    evaluator = OfflineEvaluator(device)
    try:
        for future in [evaluator.submit(candidate) for candidate in candidates]:
            yield future.result()
    finally:
        evaluator.close()


def _machine_code(row: TableRow, device: DeviceKey) -> str | None:
    if FAMILIES[row.family].is_triton:
        return None
    what = "its kernels are machine code, which the interpreter does not run"
    return f"{what}; verify --on simulator or --on device"


def _other_gpu(device: DeviceKey) -> str | None:
    local = local_device()
    if local is None:
        return "no GPU that torch can use; verify --on simulator or --on interpreter needs none"
    return None if local == device else f"is for {device}, the GPU here is {local}"


BACKENDS: Mapping[str, Backend] = {
    "simulator": Backend(_not_simulated, partial(_absence, offline=True), _simulated),
    "interpreter": Backend(lambda device: None, _machine_code, judged_by_interpreter),  # on the CPU of any machine
    "device": Backend(_other_gpu, partial(_absence, offline=False), judged_on_device),  # by the dispatcher's own plans
}
