"""What part of a measuring sweep its GPU idles, and what compiling takes: real compilers before a GPU that sleeps.

Usage: python benchmarks/stand_in_gpu.py [SHAPE ...] [--before FOLDER] [--trials T] [--jobs J] [--measure-s S]
       [--final-s S] [--rounds R] [--sampler NAME]

Searches shapes for an H200 from an empty cache: the sweep, its sampler and Triton's compilers for sm_90 are the real
ones; the GPU is a process that sleeps, and answers with the formula's time, which knows no spills of such a GPU. With
--before, the sweep of another checkout (git archive COMMIT | tar -x -C FOLDER) runs in turn with this one's, each first
every other time. Printed for each: the GPU's idle part between its first and its last work, wall time, CPU seconds of
what compiles for trials, and the trials by outcome.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
if other := os.environ.get("STAND_IN_CHECKOUT"):
    sys.path.insert(0, other)

from kernels.device import DeviceKey
from kernels.problem import GemmShape
from search.commands import sweep as sweeps
from search.device.measure import Answer, FinalTask, MeasureTask, Task
from search.evaluation import Candidate, Evaluation, FinalTimes
from search.evaluators.device import Compilation, DeviceEvaluator, begin_compiling, compile_candidate
from search.gfx950.machine import Machine
from search.gfx950.model.families import estimate_us
from search.results import load
from search.study.study import Progress
from search.terminal import one_line_errors
from search.workers.pool import WorkerPool

ROOT = Path(__file__).resolve().parent.parent
CHECKOUT = "STAND_IN_CHECKOUT"  # environment variable: whose sweep this process runs
H200 = DeviceKey("sm_90", 132)
USUAL = ("16x2112x7168", "64x7168x2048")
FAMILIES = ("fused", "fused_splitk_workspace", "fused_splitk_ticket", "staged_triton")


class Quiet:
    """A reporter that says nothing."""

    def start(self, *about: object) -> None:
        """The sweep begins."""

    def note(self, text: str) -> None:
        """Something worth knowing."""

    def progress(self, progress: Progress) -> None:
        """A trial ended."""

    def study_done(self, progress: Progress) -> None:
        """A shape ended."""


def stand_in(task: Task, *, measure_s: float, final_s: float, log: Path) -> Answer:
    """What the GPU's process does: sleep, note when, and answer."""
    begin_s = time.time()
    if isinstance(task, MeasureTask):
        time.sleep(measure_s)
        answer: Answer = _timed(task)
    elif isinstance(task, FinalTask):
        time.sleep(final_s)
        answer = FinalTimes(((1.0,) * (len(task.candidates) + task.dispatched),) * task.rounds)
    else:
        return FinalTimes(())
    with log.open("a") as file:
        file.write(f"{begin_s} {time.time()}\n")
    return answer


def compiled(candidate: Candidate, *, log: Path) -> Compilation:
    """What a compiling process does; notes the seconds of a core that it took."""
    before = os.times()
    done = compile_candidate(candidate, device=H200)
    with log.open("a") as file:
        file.write(f"{sum(os.times()[:4]) - sum(before[:4])}\n")
    return done


def _timed(task: MeasureTask) -> Evaluation:
    one = task.candidate
    frame = pd.DataFrame([one.config.to_dict()])
    us = float(estimate_us(one.family, frame, one.shape, Machine(cu_count=H200.cu_count))[0])
    facts = {"time_lo_us": us, "time_hi_us": us, "samples": 1, "deterministic": True}
    return Evaluation("ok", "", "measured", us, facts)


def sweep(
    shapes: Sequence[str], trials: int, jobs: int, measure_s: float, final_s: float, sampler: str
) -> dict[str, Any]:
    """Sweep with the checkout that this process has imported."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
        gpu, cpu, results = (Path(folder) / name for name in ("gpu", "cpu", "results"))
        work = partial(stand_in, measure_s=measure_s, final_s=final_s, log=gpu)
        begin = partial(begin_compiling, H200)
        compiler = WorkerPool(partial(compiled, log=cpu), jobs, begin, fork=begin_compiling.__module__)
        evaluator = DeviceEvaluator(H200, jobs=jobs, compiler=compiler, workers=[WorkerPool(work, 1)])
        vars(sweeps)["make_evaluator"] = lambda *_, **__: evaluator
        wanted = tuple(map(GemmShape.parse, shapes))
        request = sweeps.SweepRequest(wanted, families=FAMILIES, trials=trials, sampler=sampler, results=results)
        start_s = time.monotonic()
        sweeps.run_sweep(request, Quiet())
        wall_s = time.monotonic() - start_s
        frame = load(results)
        spans = [tuple(map(float, line.split())) for line in gpu.read_text().splitlines()]
        cpu_s = sum(map(float, cpu.read_text().split()))
    found = frame[frame["selected"].isna()]
    busy_s, whole_s = sum(end - begin for begin, end in spans), spans[-1][1] - spans[0][0]
    return {
        "idle": 1 - busy_s / whole_s, "wall_s": wall_s, "compilers_cpu_s": cpu_s,
        "outcomes": dict(Counter(found["outcome"])),
    }  # fmt: skip


def main(
    shapes: Annotated[list[str] | None, typer.Argument(help="As MxNxK; default: two.")] = None,
    before: Annotated[Path | None, typer.Option(help="Folder of another checkout.")] = None,
    trials: Annotated[int, typer.Option(min=1, help="Of each shape.")] = 24,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that compile.")] = 2,
    measure_s: Annotated[float, typer.Option(min=0)] = 0.05,
    final_s: Annotated[float, typer.Option(min=0)] = 0.3,
    rounds: Annotated[int, typer.Option(min=1)] = 1,
    sampler: Annotated[str, typer.Option(help="As of sweep.")] = "auto",
) -> None:
    """Run the sweeps, each in a process of its own, and print one line each."""
    if CHECKOUT in os.environ:
        print(json.dumps(sweep(shapes or USUAL, trials, jobs, measure_s, final_s, sampler)))
        return
    checkouts = {"after": ROOT} if before is None else {"before": before.resolve(), "after": ROOT}
    for number in range(rounds):
        for name in list(checkouts)[:: -1 if number % 2 else 1]:
            folder = str(checkouts[name])
            environment = {**os.environ, CHECKOUT: folder, "PYTHONPATH": folder}
            done = subprocess.run([sys.executable, *sys.argv], env=environment, stdout=subprocess.PIPE, check=True)
            said = json.loads(done.stdout.splitlines()[-1])
            print(f"{name:7}", {key: round(v, 2) if isinstance(v, float) else v for key, v in said.items()}, flush=True)


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
