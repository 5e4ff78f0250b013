"""How many evaluations each search needs to come within 5 and 1 % of the best recorded point. Needs no GPU.

Usage: python benchmarks/compare_samplers.py [--recorded PATH ...] [--searches auto,tpe,...] [--seeds 30] [--each]
       [--starts nothing,favourites,others] [--within 5,1]

PATH: a folder or file of exhaustive sweeps (Parquet, by default results/recorded), or a recorded space of another code
as CSV or CSV.GZ: one row a point, one column a knob, and time_ms, which is empty where a point failed. An evaluation is
one point, failures included. A search begins from nothing, with the points that a sweep tries first (favourites), or
knowing 96 random trials of each of the nearest other shapes that were recorded (others). One that is not there within
--trials counts as twice as many. Every figure is the geometric mean over the spaces of the median, or of the 90th
percentile, over the seeds; ms: processor time a proposal. Beside ours --searches takes Kernel Tuner's
genetic_algorithm, hybrid_vndx, adaptive_tabu_greywolf and dual_annealing; they need the extra ``bench``.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as run_search.py does

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import optuna
import pandas as pd
import typer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(ROOT / "benchmarks"))

from kernel_tuner_searches import STRATEGIES, KernelTunerSearch  # noqa: E402
from recorded_searches import SEARCHES, Recording, Search, informed, recordings  # noqa: E402

from kernels.errors import InputError  # noqa: E402
from kernels.wording import instead_of  # noqa: E402
from search.study.study import in_flight  # noqa: E402
from search.terminal import one_line_errors  # noqa: E402

WITHIN = (0.05, 0.01)  # of the best time
NOTHING, FAVOURITES, OTHERS = STARTS = ("nothing", "favourites", "others")
EVERY: dict[str, Callable[..., Search]] = {
    **SEARCHES, **{name: partial(KernelTunerSearch, strategy=name) for name in STRATEGIES}
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """How a search is run.

    Args:
        trials: At most.
        seeded: Whether it begins with what a sweep tries first.
        capacity: Candidates that the evaluator takes at a time.
        within: How near to the best time a search shall come, in parts of it.
    """

    trials: int
    seeded: bool = False
    capacity: int = 1
    within: tuple[float, ...] = WITHIN


def searched(recording: Recording, search: Search, setting: Setting) -> Iterator[int]:
    """Points in the order of their evaluation; each ends before those that began after it."""
    seeds = deque(recording.seeds[: search.most_seeds] if setting.seeded else ())
    running: deque[int] = deque()
    for ended in range(setting.trials):
        while len(running) < min(in_flight(setting.capacity, ended), setting.trials - ended):
            running.append(seeds.popleft() if seeds else search.propose(list(running)))
        point = running.popleft()
        taken = float(recording.times[point])
        search.tell(point, taken if np.isfinite(taken) else None)
        yield point


def evaluations(recording: Recording, search: Search, setting: Setting) -> tuple[list[int], float]:
    """Evaluations to each part of the best, twice the trials where it was not reached; milliseconds a proposal."""
    needed = dict.fromkeys(setting.within, 2 * setting.trials)
    begin, spent = time.process_time(), 0
    for spent, point in enumerate(searched(recording, search, setting), start=1):
        slower = recording.times[point] / recording.best - 1 if recording.right[point] else np.inf
        needed = {part: min(n, spent) if slower <= part else n for part, n in needed.items()}
        if max(needed.values()) <= spent:
            break
    return list(needed.values()), 1e3 * (time.process_time() - begin) / spent


def compare(
    spaces: Sequence[Recording], make: Callable[..., Search], setting: Setting, seeds: int
) -> list[dict[str, float]]:
    """One row a space: median and 90th percentile of the evaluations, the share of searches that missed, and ms."""
    rows = []
    for recording in spaces:
        runs = [evaluations(recording, make(recording.space, seed), setting) for seed in range(seeds)]
        needed = np.array([run[0] for run in runs])
        row = {"ms": float(np.mean([run[1] for run in runs]))}
        for part, column in zip(setting.within, needed.T, strict=True):
            row |= {f"to {part:.0%}": float(np.median(column)), f"p90 {part:.0%}": float(np.quantile(column, 0.9))}
            row[f"missed {part:.0%}"] = float((column > setting.trials).mean())
        rows.append(row)
    return rows


def summary(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """Means over the spaces: geometric of evaluations, arithmetic of the rest."""
    frame = pd.DataFrame(rows)
    geometric = [name for name in frame.columns if name.startswith(("to", "p90"))]
    return {
        name: float(np.exp(np.log(frame[name]).mean()) if name in geometric else frame[name].mean())
        for name in frame.columns
    }


def main(
    recorded: Annotated[list[Path] | None, typer.Option(help="Folder or file; repeatable.")] = None,
    searches: Annotated[str, typer.Option(help="Comma-separated.")] = ",".join(SEARCHES),
    starts: Annotated[str, typer.Option(help="nothing, favourites, others, comma-separated.")] = "nothing,favourites",
    capacities: Annotated[str, typer.Option(help="Candidates that an evaluator takes, comma-separated.")] = "1",
    within: Annotated[str, typer.Option(help="Percent of the best, comma-separated.")] = "5,1",
    trials: Annotated[int, typer.Option(min=1, help="Of each search.")] = 160,
    seeds: Annotated[int, typer.Option(min=1)] = 30,
    each: Annotated[bool, typer.Option("--each", help="Also print every space.")] = False,
) -> None:
    """Run every search on every recorded space and print a line for each setting."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    names = searches.split(",")
    for name in names:
        if name not in EVERY:
            raise InputError(f"unknown search {name!r}; {instead_of(name, EVERY)}")
    spaces = [one for path in _files(recorded or [ROOT / "results" / "recorded"]) for one in recordings(path)]
    print(
        f"{len(spaces)} spaces: {', '.join(f'{one.name} ({len(one.space)} points)' for one in spaces)}; {seeds} seeds"
    )
    table = []
    for start in starts.split(","):
        chosen = _starting(spaces, start)
        for capacity in map(int, capacities.split(",")):
            for name in names if chosen else ():
                setting = Setting(trials, start == FAVOURITES, capacity, tuple(map(_part, within.split(","))))
                rows = compare(chosen, EVERY[name], setting, seeds)
                key = {"search": name, "from": start, "capacity": capacity}
                table.append({**key, "space": "all", **summary(rows)})
                if each:
                    table += [{**key, "space": one.name, **row} for one, row in zip(chosen, rows, strict=True)]
    print(pd.DataFrame(table).round(2).to_string(index=False))


def _starting(spaces: Sequence[Recording], start: str) -> list[Recording]:
    """The spaces in which a search can begin so."""
    if start not in STARTS:
        raise InputError(f"--starts {start}: {instead_of(start, STARTS)}")
    if start == OTHERS:
        return informed(spaces)
    return [one for one in spaces if start == NOTHING or one.seeds]


def _part(percent: str) -> float:
    try:
        return float(percent) / 100
    except ValueError as error:
        raise InputError(f"--within {percent}: is not a number; write percents with commas between, as 5,1") from error


def _files(paths: Sequence[Path]) -> list[Path]:
    """The recorded files that ``paths`` name or hold."""
    files = [
        file
        for path in paths
        for file in (sorted(path.iterdir()) if path.is_dir() else [path])
        if file.name.endswith((".parquet", ".csv", ".csv.gz"))
    ]
    if not files:
        raise InputError(
            f"{', '.join(map(str, paths))}: holds no recorded space; name a Parquet or CSV file, or a folder of some"
        )
    return files


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
