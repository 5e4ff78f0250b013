"""What part of a sweep a GPU idles, with and without the next shape's candidates being compiled meanwhile.

Usage: python benchmarks/overlapping_shapes.py [--shapes N] [--trials T] [--compilers C] [--compile-s S] [--measure-s S]
       [--sampler NAME]

Compilers and GPU are threads that sleep; the sweep, its studies and its sampler are the real ones. On a GPU machine,
benchmarks/device_gpus.py times real sweeps: `--shapes 10 --trials 60`.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.device import GFX950
from kernels.problem import GemmShape
from search.commands import sweep as sweeps
from search.evaluation import Candidate, Evaluation, Point
from search.evaluators import Evaluator
from search.results.trials import KeptTrials
from search.study.study import Progress
from search.terminal import one_line_errors


@dataclass(frozen=True)
class Seconds:
    """How long each stage takes."""

    compile_s: float
    measure_s: float
    finals_s: float


@dataclass(frozen=True)
class Stage:
    """What one of the stages did."""

    name: str
    shape: GemmShape
    begin_s: float
    end_s: float


class StagedEvaluator(Evaluator):
    """Compilers before one GPU, which all sleep; a candidate's time is a number of its configuration."""

    device = GFX950
    protocol = "staged-v1"

    def __init__(self, seconds: Seconds, compilers: int, *, ahead: bool) -> None:
        self.ahead = ahead  # type: ignore[misc]
        self.capacity = compilers + 3
        self.stages: list[Stage] = []
        self._seconds = seconds
        self._noting = threading.Lock()
        self._compilers = ThreadPoolExecutor(compilers)
        self._gpu = ThreadPoolExecutor(1)

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        """Compile it, then measure it."""
        answer: Future[Evaluation] = Future()
        compiling = self._compilers.submit(self._stage, "compile", candidate.shape, self._seconds.compile_s)
        compiling.add_done_callback(lambda _: self._gpu.submit(self._measure, candidate, answer))
        return answer

    def hold_finals(self, kept: KeptTrials, shape: GemmShape, incumbent: Point | None, seed: int) -> None:
        """They keep the GPU busy."""
        self._gpu.submit(self._stage, "finals", shape, self._seconds.finals_s).result()

    def _measure(self, candidate: Candidate, answer: Future[Evaluation]) -> None:
        if answer.set_running_or_notify_cancel():
            self._stage("measure", candidate.shape, self._seconds.measure_s)
            time_us = 5.0 + sum(map(len, map(str, candidate.config.to_dict().values())))
            answer.set_result(Evaluation("ok", evidence="predicted", objective_us=time_us))

    def _stage(self, name: str, shape: GemmShape, seconds: float) -> None:
        begin_s = time.monotonic()
        time.sleep(seconds)
        with self._noting:
            self.stages.append(Stage(name, shape, begin_s, time.monotonic()))

    def close(self) -> None:
        """Wait for what runs."""
        self._compilers.shutdown()
        self._gpu.shutdown()


@dataclass
class Quiet:
    """A reporter that counts the shapes that ended."""

    ended: list[Progress] = field(default_factory=list)

    def start(self, *about: object) -> None:
        """Say nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def progress(self, progress: Progress) -> None:
        """Say nothing."""

    def study_done(self, progress: Progress) -> None:
        """Keep it."""
        self.ended.append(progress)


def run(
    shapes: Sequence[GemmShape], trials: int, seconds: Seconds, compilers: int, sampler: str, *, ahead: bool
) -> list[Stage]:
    """The stages of a sweep."""
    evaluator = StagedEvaluator(seconds, compilers, ahead=ahead)
    usual = sweeps.make_evaluator
    sweeps.make_evaluator = lambda *_, **__: evaluator  # type: ignore[assignment]
    try:
        with tempfile.TemporaryDirectory() as folder:
            request = sweeps.SweepRequest(
                tuple(shapes), families=("fused",), trials=trials, sampler=sampler, results=Path(folder)
            )
            sweeps.run_sweep(request, Quiet())
    finally:
        sweeps.make_evaluator = usual
    return sorted(evaluator.stages, key=lambda stage: stage.begin_s)


def idle_share(stages: Sequence[Stage]) -> float:
    """Part of the time between its first and its last work in which the GPU had none."""
    busy = [stage for stage in stages if stage.name != "compile"]
    whole_s = max(stage.end_s for stage in busy) - min(stage.begin_s for stage in busy)
    return 1 - sum(stage.end_s - stage.begin_s for stage in busy) / whole_s


def main(
    shapes: Annotated[int, typer.Option(min=2)] = 4,
    trials: Annotated[int, typer.Option(min=1)] = 24,
    compilers: Annotated[int, typer.Option(min=1)] = 6,
    compile_s: Annotated[float, typer.Option(min=0)] = 0.6,
    measure_s: Annotated[float, typer.Option(min=0)] = 0.1,
    finals_s: Annotated[float, typer.Option(min=0)] = 1.5,
    sampler: Annotated[str, typer.Option(help="As of sweep.")] = "random",
) -> None:
    """Print both sweeps."""
    wanted = [GemmShape(16, 512 * number, 1024) for number in range(1, shapes + 1)]
    for ahead in (False, True):
        start_s = time.monotonic()
        stages = run(wanted, trials, Seconds(compile_s, measure_s, finals_s), compilers, sampler, ahead=ahead)
        wall_s = time.monotonic() - start_s
        idle = f"GPU idle {100 * idle_share(stages):.0f} %"
        print(f"{'overlapping' if ahead else 'one by one':12}{wall_s:6.1f} s  {idle}")


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
