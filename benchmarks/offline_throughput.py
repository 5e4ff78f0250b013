"""Candidates a second that the offline evaluator judges, and where the time goes.

Usage: python benchmarks/offline_throughput.py [--candidates 60] [--seed 0] [--jobs 1,2] [--families fused,staged_hip]

Random points of the Triton families at three competition shapes, as the random sampler of a sweep draws them, each
compiled from nothing into an empty cache. (HIP sources and prebuilt code objects, which take less to compile, only if
named.) The first candidate of each worker, which pays for starting it, is judged before the clock starts. The processor
seconds of the workers (Linux: from /proc) tell what a machine of one's own would do where others use the cores too.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.wording import instead_of
from search.commands.sweep import SPACES
from search.evaluation import Candidate, Evaluation
from search.evaluators.offline import OfflineEvaluator
from search.evaluators.targets import check_jobs
from search.space.available import available_spaces
from search.space.legal_set import legal_sets
from search.space.space import load_spaces
from search.study.priors import sweep_points
from search.terminal import one_line_errors

SHAPES = (GemmShape(4, 2880, 512), GemmShape(16, 2112, 7168), GemmShape(256, 3072, 1536))


TRITON = "fused,fused_splitk_atomic,fused_splitk_workspace,staged_triton"


def draw(count: int, seed: int, families: Sequence[str]) -> list[Candidate]:
    """Random legal candidates: shapes and families in turn, points by chance."""
    random = np.random.default_rng(seed)
    known = load_spaces(SPACES)
    for family in families:
        if family not in known:
            raise InputError(f"--families {family}: {instead_of(family, known)}")
    spaces, _ = available_spaces({family: known[family] for family in families}, families, GFX950, offline=True)
    points = {
        shape: sweep_points(legal_sets(spaces.values(), shape, GFX950)[0], GFX950, int(random.integers(1 << 30)))
        for shape in SHAPES
    }
    found = []
    for index in range(count):
        shape = SHAPES[index % len(SHAPES)]
        family = list(spaces)[index // len(SHAPES) % len(spaces)]
        _, config = points[shape].random(family)
        points[shape].mark(family, config)
        found.append(Candidate(shape, family, config))
    return found


def processor_s() -> float:
    """Seconds of processor time, user and system, that the running workers have had; fields 14 and 15 of proc(5)."""
    stats = [Path(f"/proc/{child.pid}/stat").read_text() for child in multiprocessing.active_children()]
    ticks = sum(sum(map(int, stat.rpartition(")")[2].split()[11:13])) for stat in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def run(first: list[Candidate], candidates: list[Candidate], jobs: int) -> tuple[float, float, list[Evaluation]]:
    """Seconds that ``jobs`` workers take after ``first``, their processor seconds, and the verdicts."""
    with tempfile.TemporaryDirectory() as cache:
        evaluator = OfflineEvaluator(jobs=jobs, cache=Path(cache))
        wait([evaluator.submit(candidate) for candidate in first])
        start, start_processor = time.perf_counter(), processor_s()
        futures = [evaluator.submit(candidate) for candidate in candidates]
        wait(futures)
        seconds, used = time.perf_counter() - start, processor_s() - start_processor
        evaluator.close()
    return seconds, used, [future.result() for future in futures]


def main(
    candidates: Annotated[int, typer.Option(help="Candidates to judge.")] = 60,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
    jobs: Annotated[str, typer.Option(help="Numbers of workers to compare.")] = "1,2",
    families: Annotated[str, typer.Option(help="Families to draw from.")] = TRITON,
) -> None:
    """Print one line a number of workers."""
    if not all(text.strip().isdecimal() for text in jobs.split(",")):
        raise InputError(f"--jobs {jobs!r}: write numbers with commas between, like 1,2")
    counts = [int(text) for text in jobs.split(",")]
    for count in counts:
        check_jobs(count)
    drawn = draw(candidates, seed, families.split(","))
    for count in counts:
        seconds, used, verdicts = run(draw(count, 12345, families.split(",")), drawn, count)
        facts = [verdict.facts for verdict in verdicts]
        compile_s, check_s = (sum(float(f.get(name) or 0) for f in facts) for name in ("compile_s", "check_s"))
        busy_s = seconds * count
        outcomes = Counter(verdict.outcome for verdict in verdicts)
        print(
            f"{count} worker{'s' * (count > 1)}: {candidates / seconds:.2f} candidates/s, "
            f"{used / candidates:.2f} processor seconds each; of the workers' time "
            f"{compile_s / busy_s:.0%} compiled, {check_s / busy_s:.0%} simulated, "
            f"{1 - (compile_s + check_s) / busy_s:.0%} the rest; {dict(outcomes)}"
        )


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
