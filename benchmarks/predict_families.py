"""Which family is predicted to win at which M: the best few configurations of each, compiled, executed and predicted.

Usage: python benchmarks/predict_families.py [--n 7168] [--k 2048] [--m 1,2,4,...] [--each 3] [--families A,B]

For each M and family the legal points are ranked by the estimate from their knobs alone, points that will probably
spill left out; the first --each with different GEMMs are compiled for gfx950, executed on the simulator and
predicted, as in a sweep. Families that this machine cannot judge are left out with a line. A row of the table is an M;
times are microseconds by the timing model, * marks the best, "-" means that no candidate was legal and right.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.config import KernelConfig
from kernels.device import GFX950
from kernels.errors import InputError
from kernels.problem import GemmShape
from search.commands.sweep import SPACES
from search.evaluation import Candidate, Evaluation
from search.evaluators.offline import OfflineEvaluator
from search.gfx950.machine import Machine
from search.gfx950.model.families import estimate_us
from search.report.closing import compact
from search.space.available import available_spaces
from search.space.legal_set import legal_set
from search.space.shapes import parse_shapes
from search.space.space import SearchSpace, load_spaces
from search.study.priors import doubtful
from search.terminal import TextTable, one_line_errors, output_console, print_table

MACHINE = Machine(cu_count=GFX950.cu_count)
ROWS = tuple(2**power for power in range(13))
GEMM_KNOBS = (
    "BLOCK_M", "BLOCK_N", "BLOCK_K", "split_k", "num_warps", "num_stages", "matrix_instr_nonkdim", "waves_m", "waves_n",
)  # fmt: skip
Judged = tuple[KernelConfig, Future[Evaluation]]


def asked_spaces(families: str | None, console: Console) -> dict[str, SearchSpace]:
    """Spaces of the families (names with commas between; None: all) that this machine can judge; prints the others."""
    asked = None if families is None else tuple(families.split(","))
    spaces, left_out = available_spaces(load_spaces(SPACES, asked), asked, GFX950, offline=True)
    for line in left_out:
        console.print(line, soft_wrap=True)
    return spaces


def shortlist(space: SearchSpace, shape: GemmShape, count: int, machine: Machine = MACHINE) -> list[KernelConfig]:
    """The points with the smallest estimates, one of each GEMM; none where the family has no legal point."""
    try:
        legal = legal_set(space, shape, GFX950)
    except InputError:
        return []
    times = np.where(doubtful(space.family, legal.frame, machine), np.inf, 0.0)
    times = times + estimate_us(space.family, legal.frame, shape, machine).round(3)
    order = np.argsort(times, kind="stable")
    found: dict[tuple[object, ...], KernelConfig] = {}
    for index in order[np.isfinite(times[order])]:
        config = legal.config(int(index))
        found.setdefault(_work_of_gemm(config), config)
        if len(found) == count:
            break
    return list(found.values())


def _work_of_gemm(config: KernelConfig) -> tuple[object, ...]:
    """Values of the knobs that the estimate of the GEMM reads."""
    knobs = config.to_dict()
    return tuple(knobs.get(name) for name in GEMM_KNOBS)


def best_of(judged: list[Judged]) -> tuple[float, KernelConfig] | None:
    """Smallest predicted time in microseconds and its configuration, of those that are right."""
    right = [(done.result().objective_us, config) for config, done in judged if done.result().outcome == "ok"]
    return min(((us, config) for us, config in right if us is not None), key=lambda one: one[0], default=None)


def row_of(shape: GemmShape, best: Mapping[str, tuple[float, KernelConfig] | None]) -> tuple[str, ...]:
    """M, the time of each family, the winner's configuration."""
    times = {family: found[0] for family, found in best.items() if found is not None}
    winner = min(times, key=lambda family: times[family], default=None)
    cells = ["-" if family not in times else f"{times[family]:.2f}{'*' * (family == winner)}" for family in best]
    found = best[winner] if winner is not None else None
    return (str(shape.M), *cells, winner or "-", "" if found is None else compact(found[1]))


def rows(
    spaces: Mapping[str, SearchSpace], shapes: list[GemmShape], each: int, evaluator: OfflineEvaluator
) -> Iterator[tuple[str, ...]]:
    """A row a shape, in order."""
    submitted: list[tuple[GemmShape, dict[str, list[Judged]]]] = []
    for shape in shapes:
        chosen = {family: shortlist(space, shape, each) for family, space in spaces.items()}
        futures = {
            family: [(config, evaluator.submit(Candidate(shape, family, config))) for config in configs]
            for family, configs in chosen.items()
        }
        submitted.append((shape, futures))
    for shape, futures in submitted:
        yield row_of(shape, {family: best_of(judged) for family, judged in futures.items()})


def main(
    n: Annotated[int, typer.Option(help="Columns of C.")] = 7168,
    k: Annotated[int, typer.Option(help="Depth.")] = 2048,
    m: Annotated[str, typer.Option(help="Rows of C: 1,2,4 or a doubling ladder 1..64.")] = ",".join(map(str, ROWS)),
    each: Annotated[int, typer.Option(min=1, help="Candidates of a family at an M.")] = 3,
    families: Annotated[str | None, typer.Option(help="Families, with commas between; default: all.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Worker processes; default: one a core.")] = None,
) -> None:
    """Print the table."""
    console = output_console()
    spaces = asked_spaces(families, console)
    shapes = list(parse_shapes([f"{m}x{n}x{k}"]))
    start_s = time.perf_counter()
    evaluator = OfflineEvaluator(GFX950, jobs=jobs)
    try:
        found = tuple(rows(spaces, shapes, each, evaluator))
    finally:
        evaluator.close()
    print_table(TextTable(("M", *spaces, "best", "its configuration"), found, right=frozenset(("M", *spaces))), console)
    console.print(f"N = {n}, K = {k}, {each} candidates of a family, {time.perf_counter() - start_s:.0f} s")


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
