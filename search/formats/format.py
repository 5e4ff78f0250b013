"""What a format of a neighbouring project is: how to recognise, read and write its files."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.tables.rows import TableRow, TunedTable
from kernels.wording import counted, first_of

NAMED = 4  # places of one reason that a line names
WHOLE = ""  # name of the only file of a format that has one


@dataclass(frozen=True)
class Trial:
    """One configuration at one shape, as a file of a neighbouring project can hold it.

    Args:
        device: Where it ran, or is meant to run.
        outcome: One of ``search.evaluation.OUTCOMES``.
        time_us: Measured median; None where the file has no times.
        reason: Why the outcome is not ``ok``, or what is missing.
        protocol: How the time was taken, in a few words.
        started: ISO 8601, "" where unknown.
        compile_s: Seconds, None where unknown.
    """

    device: DeviceKey
    shape: GemmShape
    family: str
    config: KernelConfig
    outcome: str = "ok"
    time_us: float | None = None
    predicted_us: float | None = None
    reason: str = ""
    protocol: str = ""
    started: str = ""
    compile_s: float | None = None


@dataclass(frozen=True)
class LeftOut:
    """A part of a file that was not taken, or of the results that a file cannot say."""

    where: str
    reason: str


@dataclass(frozen=True)
class Reading:
    """What a file says.

    Args:
        trials: What can be used here.
        others: Files beside them that are of no format here.
    """

    trials: tuple[Trial, ...]
    left_out: tuple[LeftOut, ...] = ()
    files: int = 1
    others: int = 0


@dataclass(frozen=True)
class Written:
    """Files to write, not written yet.

    Args:
        files: Text by file name; :data:`WHOLE` where the format has one file.
        added: Entries that were not there.
        left_out: What the format cannot say.
    """

    files: Mapping[str, str]
    added: int = 0
    replaced: int = 0
    left_out: tuple[LeftOut, ...] = ()


Old = Callable[[str], str | None]  # text of the file of this name that is there already


@dataclass(frozen=True)
class Format:
    """One format.

    Args:
        file: Name of the file that is written by default; "" where it is a folder of several files.
        recognises: Whether a file of this path, with this text, is one.
        read: Its trials; None of a format that is only written.
        write_table: A tuned table in this format, merged into the files that are there.
        write_trials: Every trial of the results in this format.
        holds_results: Whether it can be read as results; if not, one that lies among others is passed over.
        lost: What of a row the format never says, for people; "" if nothing.
    """

    file: str = ""
    recognises: Callable[[Path, str], bool] = lambda path, text: False
    read: Callable[[Path, str], Reading] | None = None
    write_table: Callable[[TunedTable, Old], Written] | None = None
    write_trials: Callable[[Sequence[Trial], Old], Written] | None = None
    holds_results: bool = True
    lost: str = ""


# Knobs of the Triton kernels of AITER and vLLM, and ours.
TRITON_KNOBS: Final[Mapping[str, str]] = {
    "BLOCK_SIZE_M": "BLOCK_M", "BLOCK_SIZE_N": "BLOCK_N", "BLOCK_SIZE_K": "BLOCK_K", "GROUP_SIZE_M": "GROUP_M",
    "num_warps": "num_warps", "num_stages": "num_stages", "waves_per_eu": "waves_per_eu",
    "matrix_instr_nonkdim": "matrix_instr_nonkdim",
}  # fmt: skip
Part = TypeVar("Part")
Knobs = dict[str, Any]
Entry = tuple[str, str, Knobs]  # file, key in it, what stands there


def reading(parts: Iterable[tuple[str, Part]], trial: Callable[[Part], Trial]) -> Reading:
    """A trial for each of ``parts``, which stand behind their places, or why ``trial`` refused it."""
    trials: list[Trial] = []
    left_out: list[LeftOut] = []
    for where, part in parts:
        try:
            trials.append(trial(part))
        except (ValueError, TypeError, KeyError) as error:
            left_out.append(LeftOut(where, str(error)))
    return Reading(tuple(trials), tuple(left_out))


def our_knobs(body: Knobs, names: Mapping[str, str], ignored: Collection[str]) -> Knobs:
    """``body`` under our ``names``; raises ValueError for a knob that is neither in there nor ``ignored``."""
    unknown = sorted(body.keys() - names.keys() - set(ignored))
    if unknown:
        raise ValueError(f"knob {', '.join(unknown)} is unknown here")
    return {ours: body[theirs] for theirs, ours in names.items() if theirs in body}


def merged(
    rows: Iterable[TableRow], old: Old, entry: Callable[[TableRow], Entry], in_order: Callable[[Knobs], Knobs]
) -> Written:
    """The knobs of ``rows``, merged into the JSON files that are there.

    Args:
        entry: Of a row; raises ValueError where the format cannot hold it.
        in_order: A file's mapping in the order in which it is written.
    """
    contents: dict[str, Knobs] = {}
    added, replaced, left_out = 0, 0, []
    for row in rows:
        try:
            file, key, knobs = entry(row)
        except ValueError as error:
            left_out.append(LeftOut(str(row.shape), str(error)))
            continue
        if file not in contents:
            contents[file] = old_json(old, file)
        content = contents[file]
        replaced, added = replaced + (key in content), added + (key not in content)
        content[key] = knobs
    files = {file: json.dumps(in_order(content), indent=4) + "\n" for file, content in contents.items()}
    return Written(files, added, replaced, tuple(left_out))


def old_json(old: Old, name: str, parse: Callable[[str], Any] = json.loads) -> dict[str, Any]:
    """The mapping in the file ``name`` that is there already; empty where none is.

    Raises:
        InputError: It holds something else.
    """
    try:
        content = parse(old(name) or "{}")
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name}: cannot be read ({error}); a torn file? restore it, or remove it") from error
    if not isinstance(content, dict):
        raise InputError(f"{name}: holds no mapping; name another --output")
    return content


def grouped(left_out: Sequence[LeftOut]) -> list[str]:
    """One line for each reason: how many, why, and the first few places, each once."""
    places: dict[str, list[str]] = defaultdict(list)
    for one in left_out:
        places[one.reason].append(one.where)
    ordered = sorted(places.items(), key=lambda item: -len(item[1]))
    return [
        f"{counted(len(where), 'entry').replace('entrys', 'entries')}: {reason} "
        f"({first_of(list(dict.fromkeys(where)), NAMED)})"
        for reason, where in ordered
    ]


def make_config(family: str, values: Mapping[str, Any]) -> KernelConfig:
    """Configuration of ``family``; knobs that are not given have their defaults.

    Raises:
        ValueError: A knob that the family does not have, or a value that the knob cannot have.
    """
    knobs = FAMILIES[family].knobs
    for name, value in values.items():
        if name not in knobs:
            raise ValueError(f"{family} has no knob {name}")
        if not _fits(value, knobs[name]):
            raise ValueError(f"{name} = {value!r} is no value that {family} knows")
    return FAMILIES[family].config(values)


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    return type(value) is hint


def judged(trial: Trial) -> Trial:
    """``trial``, whose configuration may run its shape.

    Raises:
        ValueError: Why it may not.
    """
    refusal = trial.config.check(trial.shape, trial.device)
    if refusal is not None:
        raise ValueError(refusal)
    return trial
