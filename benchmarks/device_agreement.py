"""Do two sweeps agree, and did the GPU only measure? Reads results folders; re-times winners on the local GPU.

Usage: python benchmarks/device_agreement.py --results DIR --again DIR [--rounds 40] [--output FILE.csv]

For each sweep: trials a second, the GPU's time, and how much of it went into compiling kernels that had been compiled
ahead (a candidate whose time on the GPU is more than 0.6 of its compilation's, and over 0.4 s). For each shape of both
sweeps the winners, where they differ timed side by side by the rules of the finals: a tie, or by how much they differ.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from required import required_gpu

from kernels.errors import InputError
from search.device.gpu import Gpu
from search.device.measure import FinalTask, measure_finals, this_gpu
from search.device.selection import Finalist, select
from search.device.timing import COLD
from search.evaluation import Candidate
from search.report.finals import gpu_wait_share
from search.results import load
from search.results.winners import Winner, winners
from search.terminal import one_line_errors

LONG_S = 0.4  # a check and a timing take less, but for the first of a shape
PART = 0.6  # of the compilation ahead


def speed(frame: pd.DataFrame) -> dict[str, Any]:
    """What the sweep's time went into."""
    measured = frame[frame["gpu_s"].notna() & frame["compile_s"].notna() & ~frame["cached"].fillna(False).astype(bool)]
    again = measured[(measured["gpu_s"] > LONG_S) & (measured["gpu_s"] > PART * measured["compile_s"])]
    searched = frame[frame["selected"].isna()]  # finals say of each whether it was chosen
    started = pd.to_datetime(searched["started"], utc=True)
    ended = started + pd.to_timedelta(searched["duration_s"].astype(float), unit="s")
    seconds = (ended.max() - started.min()).total_seconds()
    return {
        "trials": len(searched), "seconds": seconds, "trials_per_s": len(searched) / seconds,
        "gpu_s": float(frame["gpu_s"].sum()), "gpu_waited": gpu_wait_share(frame),
        "compiled_again": len(again), "of": len(measured), "compiled_again_s": float(again["gpu_s"].sum()),
    }  # fmt: skip


def compare(one: Winner, other: Winner, gpu: Gpu, rounds: int) -> dict[str, Any]:
    """Whether two sweeps chose alike at one shape."""
    row: dict[str, Any] = {
        "shape": str(one.shape), "first_us": one.cost_us, "again_us": other.cost_us,
        "first": f"{one.family} {one.config.to_dict()}", "again": f"{other.family} {other.config.to_dict()}",
    }  # fmt: skip
    if (one.family, one.config) == (other.family, other.config):
        return row | {"verdict": "same", "again_over_first": 1.0}
    pair = tuple(Candidate(winner.shape, winner.family, winner.config) for winner in (one, other))
    times = measure_finals(FinalTask(pair, COLD, rounds), gpu).rounds
    chosen = select([Finalist(each, 0.0, 0.0, 0.0, True, (), False) for each in pair], times)
    ratio = float(np.median([second / first for first, second in times]))
    return row | {"verdict": "tie" if chosen.tie else "differ", "again_over_first": ratio}


def main(
    results: Annotated[Path, typer.Option(help="Of the first sweep.")],
    again: Annotated[Path, typer.Option(help="Of the second one.")],
    rounds: Annotated[int, typer.Option(help="Samples of each winner.")] = 40,
    output: Annotated[Path | None, typer.Option(help="CSV of the winners.")] = None,
) -> None:
    """Print both."""
    required_gpu()
    frames = [load(results), load(again)]
    for name, frame in zip((results, again), frames, strict=True):
        print(f"{name}: {speed(frame)}", flush=True)
    first, second = ({one.shape: one for one in winners(frame)} for frame in frames)
    gpu = this_gpu()
    rows = [compare(first[shape], second[shape], gpu, rounds) for shape in first if shape in second]
    if not rows:
        raise InputError(f"{results} and {again} have no winner of the same shape")
    frame = pd.DataFrame(rows)
    print(frame.drop(columns=["first", "again"]).round(3).to_string(index=False))
    for row in rows:
        if row["verdict"] != "same":
            print(f"{row['shape']}:\n  {row['first']}\n  {row['again']}")
    if output is not None:
        frame.to_csv(output, index=False)


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
