"""Judge every point of a small space offline, executing all of them, and write each shape as a Parquet file to replay.

Usage: python benchmarks/offline_record.py --output DIR [--shapes 16x2112x7168,...] [--spaces DIR] [--budget-s 1500]
       [--jobs 1]

The spaces are those of benchmarks/offline_spaces unless --spaces names others. Times are predicted. A shape that the
budget cuts short is written as far as it came, a random part of its points; the same command goes on.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import triton
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.device import GFX950
from kernels.problem import GemmShape
from kernels.rocm.toolchain import triton_version
from search.evaluation import Candidate, Evaluation
from search.evaluators import Evaluator
from search.evaluators.offline import OfflineEvaluator
from search.evaluators.replay import ReplayEvaluator
from search.results import load, save
from search.results.columns import arrow_table, frame_of_table
from search.results.record import Record, make_record
from search.results.studies import first_study
from search.space.legal_set import legal_sets
from search.space.shapes import parse_shapes
from search.space.space import load_spaces
from search.terminal import one_line_errors

SPACES = Path(__file__).resolve().parent / "offline_spaces"
SHAPES = "16x2112x7168,256x3072x1536"


def left(shape: GemmShape, spaces: Path, recorded: Path) -> list[Candidate]:
    """The points of ``shape`` that ``recorded`` lacks, in random order, so that a part of them is like all."""
    legal, _ = legal_sets(load_spaces(spaces).values(), shape, GFX950)
    every = [Candidate(shape, family, points.config(i)) for family, points in legal.items() for i in range(len(points))]
    done = set(ReplayEvaluator(recorded).candidates) if recorded.exists() else set()
    order = np.random.default_rng(0).permutation(len(every))
    return [every[i] for i in order if every[i] not in done]


def judged(
    evaluator: Evaluator, candidates: Sequence[Candidate], end_s: float
) -> Iterator[tuple[Candidate, Evaluation, str, float]]:
    """Each candidate with its verdict, when it began and what it took in seconds, until ``end_s`` of the clock."""
    waiting = iter(candidates)
    running: list[tuple[Candidate, Future[Evaluation], str, float]] = []
    while True:
        room = evaluator.capacity - len(running) if time.monotonic() < end_s else 0
        for candidate in islice(waiting, room):
            started = datetime.now(timezone.utc).isoformat(timespec="seconds")
            running.append((candidate, evaluator.submit(candidate), started, time.monotonic()))
        if not running:
            return
        candidate, answer, started, begin_s = running.pop(0)
        yield candidate, answer.result(), started, time.monotonic() - begin_s


def records_of(evaluator: Evaluator, candidates: Sequence[Candidate], end_s: float) -> Iterator[Record]:
    """A results row for each candidate that is judged in time."""
    versions = {"triton": triton.__version__, "torch": torch.__version__}
    for candidate, evaluation, started, seconds in judged(evaluator, candidates, end_s):
        yield make_record(
            study=first_study(GFX950, candidate.shape, evaluator.protocol, triton_version()), device=GFX950,
            candidate=candidate, evaluation=evaluation, started=started, duration_s=seconds, versions=versions,
        )  # fmt: skip


def append(record: Record, path: Path) -> None:
    """Write the row behind those that ``path`` has."""
    row = frame_of_table(arrow_table([record]))
    save(pd.concat([load(path), row], ignore_index=True) if path.exists() else row, path)


def main(
    output: Annotated[Path, typer.Option(help="Folder of the Parquet files.")],
    shapes: Annotated[str, typer.Option(help="Comma-separated.")] = SHAPES,
    spaces: Annotated[Path, typer.Option(help="Folder of the spaces.")] = SPACES,
    budget_s: Annotated[float, typer.Option(help="Of each shape.")] = 1500.0,
    jobs: Annotated[int | None, typer.Option(help="Worker processes.")] = None,
) -> None:
    """Judge and write."""
    output.mkdir(parents=True, exist_ok=True)
    evaluator = OfflineEvaluator(jobs=jobs, climb=math.inf)
    for shape in parse_shapes(shapes.split(",")):
        path = output / f"{GFX950}-{shape}.parquet"
        todo = left(shape, spaces, path)
        judged_now = 0
        for record in records_of(evaluator, todo, time.monotonic() + budget_s):
            append(record, path)  # in milliseconds, where the point took seconds
            judged_now += 1
        print(f"{path.name}: {judged_now} judged now, {len(todo) - judged_now} left", flush=True)
    evaluator.close()


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
