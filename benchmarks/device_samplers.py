"""Two samplers search the same shapes on the local GPU: whose winner is faster, and after how many trials each had it.

Usage: python benchmarks/device_samplers.py --output DIR [--shapes 48x4096x1024,...] [--trials 60] [--known DIR]

Each sampler has results of its own, begins with the first trials that it wants of the same, and takes every trial; with
--known both begin with a copy of these results of other shapes.
Prints, by shape: the best measured time, and the trials until a time within 1 % of the best of all samplers, and of the
best of the first sampler. DIR keeps the trials as Parquet.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as run_search.py does

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.problem import GemmShape
from search.commands.sweep import SweepRequest, run_sweep
from search.report.progress import TerminalReporter
from search.results import load, save
from search.space.shapes import parse_shapes
from search.terminal import one_line_errors, output_console

SHAPES = "48x4096x1024,128x1536x3584,512x2048x2048"  # in no table
NEAR = 1.01  # of the best


def searched(frame: pd.DataFrame, shape: GemmShape) -> pd.Series[float]:
    """Best time so far after each trial of the search, in microseconds; infinite before the first that is right."""
    rows = frame[(frame["M"] == shape.M) & (frame["N"] == shape.N) & (frame["K"] == shape.K) & frame["selected"].isna()]
    times = rows.sort_values("trial")["time_us"].where(rows["outcome"] == "ok")
    return times.astype("float64").fillna(float("inf")).cummin().reset_index(drop=True)


def comparison(frames: Mapping[str, pd.DataFrame], shapes: tuple[GemmShape, ...]) -> pd.DataFrame:
    """One row a shape and sampler: the best time, and the trials to that of all samplers and to that of the first."""
    rows = []
    for shape in shapes:
        curves = {sampler: searched(frame, shape) for sampler, frame in frames.items()}
        bests = {sampler: curve.iloc[-1] if len(curve) else float("inf") for sampler, curve in curves.items()}
        first = next(iter(bests))
        for sampler, curve in curves.items():
            goals = {"to the best": min(bests.values()), f"to {first}'s": bests[first]}
            row = {"shape": str(shape), "sampler": sampler, "best us": bests[sampler], "trials": len(curve)}
            rows.append(row | {name: trials_to(curve, goal) for name, goal in goals.items()})
    return pd.DataFrame(rows)


def trials_to(curve: pd.Series[float], best_us: float) -> int | None:
    """Trials until the best time so far is within 1 % of ``best_us``; None where it never is."""
    there = curve[(curve <= NEAR * best_us) & (curve < float("inf"))]
    return int(there.index[0]) + 1 if len(there) else None


def main(
    output: Annotated[Path, typer.Option(help="Folder of the trials.")],
    shapes: Annotated[str, typer.Option(help="Comma-separated.")] = SHAPES,
    trials: Annotated[int, typer.Option(min=1, help="Of each search.")] = 60,
    samplers: Annotated[str, typer.Option(help="Comma-separated.")] = "tpe,surrogate",
    budget_s: Annotated[float, typer.Option(help="Seconds of each sampler.")] = 220.0,
    results: Annotated[Path, typer.Option(help="Where the studies are kept.")] = Path("results/samplers"),
    known: Annotated[Path | None, typer.Option(help="Results of other shapes that both know.")] = None,
) -> None:
    """Search with each sampler, then compare."""
    asked = parse_shapes(shapes.split(","))
    frames = {}
    output.mkdir(parents=True, exist_ok=True)
    for sampler in samplers.split(","):
        folder = results / sampler
        if known is not None:
            shutil.copytree(known, folder)
        request = SweepRequest(
            asked, "local", trials=trials, time_budget_s=budget_s, sampler=sampler, results=folder, fresh=True
        )
        with TerminalReporter(output_console()) as reporter:
            run_sweep(request, reporter)
        frames[sampler] = load(folder)
        save(frames[sampler], output / f"{sampler}.parquet")
    print(comparison(frames, asked).round(3).to_string(index=False))


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
