"""What a prediction costs a candidate, part by part, and how many candidates a second there would be without it.

    python benchmarks/prediction_cost.py [--candidates 24] [--seed 0]

Random candidates as ``offline_throughput.py`` draws them, one after the other in this process, compiled from nothing.
Times are processor time, so that others on the machine do not count.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from offline_throughput import TRITON, draw

from kernels.errors import KernelError
from kernels.families import FAMILIES
from search.evaluation import Candidate
from search.evaluators.execution import ExecutedCandidate
from search.gate.check import check_program, load_calls
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.calls import compile_call
from search.gfx950.machine import MI355X
from search.gfx950.model.executed import predict_works
from search.terminal import one_line_errors

PARTS = ("compiled", "executed", "streams of waves", "compute unit")


def parts_ms(candidate: Candidate, folder: Path) -> Iterator[float]:
    """Milliseconds of each of :data:`PARTS`.

    Raises:
        KernelError: The candidate does not compile, or is wrong.
    """
    program = FAMILIES[candidate.family].program(candidate.shape, candidate.config)
    cache = ArtifactCache(folder)
    started = time.process_time()
    compiled = [compile_call(program, call, cache, folder) for call in program.calls]
    yield 1e3 * (time.process_time() - started)
    started = time.process_time()
    report = check_program(program, load_calls(compiled), candidate.shape)
    yield 1e3 * (time.process_time() - started)
    started = time.process_time()
    works = ExecutedCandidate(program, compiled, report).works(MI355X)
    yield 1e3 * (time.process_time() - started)
    started = time.process_time()
    predict_works(works, candidate.shape, MI355X)
    yield 1e3 * (time.process_time() - started)


def main(
    candidates: Annotated[int, typer.Option(min=1, help="Candidates to draw; the first is not counted.")] = 24,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
) -> None:
    """Print medians, and candidates a processor second."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for candidate in draw(candidates + 1, seed, TRITON.split(",")):
            try:
                rows.append(list(parts_ms(candidate, Path(folder))))
            except KernelError as error:
                print(f"{candidate.shape} {candidate.family}: {error}", file=sys.stderr)
    times = np.array(rows[1:])  # [candidates, parts] ms; the first imports the compiler
    whole, predicting = times.sum(axis=1), times[:, 2:].sum(axis=1)
    medians = ", ".join(f"{name} {ms:.1f}" for name, ms in zip(PARTS, np.median(times, axis=0), strict=True))
    print(f"{len(times)} candidates, median processor ms: {medians}; beyond the gate {np.median(predicting):.1f}")
    without, with_it = (1e3 * len(times) / total for total in ((whole - predicting).sum(), whole.sum()))
    share = 1 - with_it / without
    print(
        f"candidates a processor second: {without:.3f} without a prediction, {with_it:.3f} with it, {share:.1%} fewer"
    )


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
