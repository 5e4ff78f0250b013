"""A sweep from Python: shapes in, a DataFrame of every trial out."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.wording import first_of
from search.commands.sweep import SweepRequest, run_sweep
from search.report.progress import TerminalReporter
from search.results import load
from search.results.columns import COLUMNS
from search.results.published import LEFT_OUT
from search.results.starts import Start, read_starts, starts_for, starts_of
from search.space.shapes import parse_shapes
from search.terminal import naming, output_console
from search.workers.main_guard import lacks_main_guard

NAMED = 5  # columns of a list that can be long


def tune(
    shapes: str | GemmShape | Iterable[str | GemmShape],
    *,
    target: str = "auto",
    trials: int = 96,
    families: Sequence[str] | None = None,
    results: Path | str = "results",
    start_from: pd.DataFrame | Path | str | None = None,
    time_budget_s: float | None = None,
    jobs: int | None = None,
    sampler: str = "auto",
    seed: int = 0,
) -> pd.DataFrame:
    """Search the best kernel and configuration for each shape; the same call resumes.

    Progress is drawn in terminals and notebooks. A script calls this below ``if __name__ == "__main__":``, as its
    worker processes import the script first.

    Args:
        shapes: ``MxNxK``, where M may be a list or a ladder (``1,2,4..64x2112x7168``), or shapes; one or several.
        target: As ``sweep --target``: ``auto``, an architecture (offline), ``local`` (the GPU here) or ``replay:FILE``.
        trials: Trials for each shape, earlier runs included.
        families: Kernel families; default: all that this machine can search.
        results: Folder that keeps the studies.
        start_from: Results, or the place of some or of a tuned table, whose winners are tried first.
        time_budget_s: Seconds for the whole sweep.
        jobs: Worker processes; default: one a core.
        sampler: One of ``search.study.samplers.SAMPLERS``.

    Returns:
        Every trial of these shapes, one a row; ``attrs["units"]`` names the units of the columns.

    Raises:
        InputError: As :func:`search.commands.sweep.run_sweep`, no shape, one that cannot be read,
            no trials, an empty place, or a script without guard.
    """
    if lacks_main_guard(sys._getframe()):
        raise InputError('worker processes import this script: put the call below if __name__ == "__main__":')
    if trials < 1:
        raise InputError(f"trials = {trials} must be at least 1")
    if not str(results).strip():  # as a path it would be the current folder
        raise InputError("results is empty: an empty variable? name a folder, or leave it out")
    every, left_out = ([], ()) if start_from is None else _starts(start_from)
    wanted = _shapes([shapes] if isinstance(shapes, (str, GemmShape)) else shapes)
    request = SweepRequest(
        wanted, target, None if families is None else tuple(families), trials, time_budget_s, sampler, Path(results),
        jobs=jobs, seed=seed, starts=starts_for(every, wanted),
    )  # fmt: skip
    with TerminalReporter(output_console()) as reporter:
        nothing = "start_from has nothing for the N and K of these shapes"
        for line in (*left_out, *((nothing,) if start_from is not None and not request.starts else ())):
            reporter.note(line)
        done = run_sweep(request, reporter)
    return load(Path(results), list(done.studies.values()))


def _starts(start_from: pd.DataFrame | Path | str) -> tuple[list[Start], Sequence[str]]:
    """As :func:`search.results.starts.read_starts`, of a frame too."""
    if isinstance(start_from, (Path, str)):
        with naming("start_from:"):
            return read_starts(start_from)
    if lacking := [name for name in COLUMNS if name not in start_from.columns]:
        raise InputError(
            f"start_from: a frame without {first_of(lacking, NAMED)}; give one of search.results.load, or its place"
        )
    return starts_of(start_from), start_from.attrs.get(LEFT_OUT, ())


def _shapes(shapes: Iterable[str | GemmShape]) -> tuple[GemmShape, ...]:
    texts: list[str] = []
    for shape in shapes:
        if not isinstance(shape, (str, GemmShape)):
            raise InputError(f"{shape!r} is no shape; write 'MxNxK' or a GemmShape")
        texts.append(str(shape))
    if not texts:
        raise InputError("no shapes; give 'MxNxK' or a GemmShape")
    return parse_shapes(texts)
