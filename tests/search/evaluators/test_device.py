"""device with real processes and no GPU: candidates that abort, hang, or lose their worker hurt nobody else."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from fake_gpu import H200

from kernels.device import GFX950, DeviceKey
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.device.ahead import Compiled
from search.device.lane import GpuLane, TaskLimits
from search.device.measure import Answer, MeasureTask, Task, baseline
from search.device.product import Product
from search.evaluation import Candidate, Evaluation, FinalTimes
from search.evaluators.device import (
    Compilation,
    CompileLimit,
    DeviceEvaluator,
    DeviceLimits,
    begin_compiling,
    limits_on,
)
from search.workers.pool import WorkerPool

SHAPE = GemmShape(16, 2112, 7168)
FINE, ABORTS, HANGS, DIES, WRONG, BAD_SOURCE, COMPILER_ABORTS = range(1, 8)


def candidate(way: int, shape: GemmShape = SHAPE) -> Candidate:
    """A candidate whose GROUP_M says how it behaves."""
    return Candidate(shape, "fused", TileConfig(GROUP_M=way, quantizer="software"))


def fake_compile(one: Candidate) -> Compilation:
    if one.config.GROUP_M == BAD_SOURCE:
        return Evaluation("compile_error", "error: no such layout")
    if one.config.GROUP_M == COMPILER_ABORTS:
        os.abort()
    return Compiled(0.5, False, 1, 1024)


def fake_gpu_work(task: Task, *, log: Path) -> Answer:
    """Behaves as the candidate says; notes who worked."""
    if not isinstance(task, MeasureTask):
        return FinalTimes(((20.0,) * len(task.candidates),) * task.rounds)
    way = task.candidate.config.GROUP_M
    if task.candidate == baseline(task.candidate.shape, H200):
        way = FINE
    with log.open("a") as file:
        file.write(f"{os.getpid()} {way}\n")
    if way == ABORTS:
        os.abort()
    if way in (HANGS, DIES):
        time.sleep(600)
    if way == WRONG:
        return Evaluation("wrong_result", "3 of 1024 values differ")
    return Evaluation("ok", "", "measured", 20.0, {"protocol": "cold-graph-v1"})


@pytest.mark.parametrize(
    ("device", "product", "first_s"),
    [
        (GFX950, Product("MI355X", "SPX"), 600),
        (GFX950, None, 600),
        (H200, None, 120),
        (GFX950, Product("simulated"), 3600),
    ],
)
def test_the_first_launch_may_take_ten_minutes_only_on_rocm(
    device: DeviceKey, product: Product | None, first_s: float
) -> None:
    assert limits_on(device, product).tasks.first_s == first_s


def niceness(_: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def test_what_compiles_yields_its_core_to_what_measures() -> None:
    pool: WorkerPool[int, int] = WorkerPool(niceness, 1, partial(begin_compiling, H200), fork=__name__)
    try:
        assert pool.submit(0, 60.0).result() == min(19, niceness(0) + 5)
    finally:
        pool.close()


def test_a_compilation_may_take_twenty_times_the_others_median_once_there_are_sixteen() -> None:
    limit = CompileLimit(120.0)
    for _ in range(15):
        limit.ended(Compiled(2.0, False, 1, 0))
    for _ in range(15):
        limit.ended(Compiled(0.01, True, 1, 0))  # from the cache
    assert limit.seconds == 120.0
    limit.ended(Compiled(100.0, False, 1, 0))
    assert limit.seconds == 40.0  # 20 * 2


@pytest.mark.parametrize(("usual_s", "limit_s"), [(0.1, 30.0), (3.0, 60.0), (50.0, 120.0)])
def test_its_limit_is_never_below_half_a_minute_nor_above_the_one_for_all(usual_s: float, limit_s: float) -> None:
    limit = CompileLimit(120.0)
    for _ in range(16):
        limit.ended(Compiled(usual_s, False, 1, 0))
    assert limit.seconds == limit_s


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def evaluator(log: Path) -> Iterator[DeviceEvaluator]:
    made = DeviceEvaluator(
        H200, jobs=1, limits=DeviceLimits(60, TaskLimits(run_s=3, first_s=3)), gpus=(0,),
        compiler=WorkerPool(fake_compile, 1), workers=[WorkerPool(partial(fake_gpu_work, log=log), 1)],
    )  # fmt: skip
    yield made
    made.close()


def test_the_device_evaluator_survives_everything_a_candidate_can_do(evaluator: DeviceEvaluator, log: Path) -> None:
    ways = [FINE, ABORTS, FINE, HANGS, WRONG, BAD_SOURCE, COMPILER_ABORTS, FINE]
    answers = [evaluator.submit(candidate(way)) for way in ways]
    results = [answer.result(timeout=240) for answer in answers]
    assert [result.outcome for result in results] == [
        "ok", "crashed", "ok", "timed_out", "wrong_result", "compile_error", "crashed", "ok",
    ]  # fmt: skip
    reasons = ["", "SIGABRT", "", "on the GPU", "values differ", "layout", "compilation", ""]
    assert all(reason in result.reason for reason, result in zip(reasons, results, strict=True))
    assert results[-1].facts["compile_s"] == 0.5
    lines = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    assert len({pid for pid, _ in lines}) == 3  # the first worker and two that replaced it
    final = evaluator.finals([candidate(FINE)], rounds=2).result(timeout=60)
    assert final.rounds == ((20.0,), (20.0,))


def test_a_worker_killed_from_outside_costs_the_candidate_that_ran(evaluator: DeviceEvaluator, log: Path) -> None:
    # The time limit is 3 s: the signal has to come before.
    dies, fine = (evaluator.submit(candidate(way)) for way in (DIES, FINE))
    while not log.exists() or f" {DIES}\n" not in log.read_text():
        time.sleep(0.01)
    pid = int(log.read_text().splitlines()[-1].split()[0])
    os.kill(pid, signal.SIGKILL)
    assert "SIGKILL" in dies.result(timeout=60).reason
    assert fine.result(timeout=60).outcome == "ok"
    assert not Path(f"/proc/{pid}").exists()


def test_an_illegal_candidate_reaches_no_process() -> None:
    made = DeviceEvaluator(
        H200,
        jobs=1,
        gpus=(0,),
        compiler=WorkerPool(fake_compile, 1),
        workers=[WorkerPool(fake_compile, 1)],  # type: ignore[list-item]
    )
    result = made.submit(Candidate(SHAPE, "fused", TileConfig(quantizer="hardware"))).result(timeout=1)
    made.close()
    assert (result.outcome, "FP4 conversion instruction" in result.reason) == ("illegal", True)


class NoPool:
    """Keeps what it is given; nothing is ever done."""

    def __init__(self) -> None:
        self.tasks: list[object] = []
        self.futures: list[Future[object]] = []
        self.preferred: list[object] = []

    def submit(self, task: object, timeout_s: float) -> Future[object]:
        self.tasks.append(task)
        self.futures.append(Future())
        return self.futures[-1]

    def prefer(self, futures: Sequence[Future[object]]) -> None:
        self.preferred = [self.tasks[self.futures.index(future)] for future in futures]

    def close(self) -> None:
        pass


def test_a_candidate_that_waits_for_a_compiler_can_be_withdrawn(evaluator: DeviceEvaluator) -> None:
    idle = DeviceEvaluator(H200, jobs=1, gpus=(0,), compiler=NoPool(), workers=[NoPool()])  # type: ignore[arg-type,list-item]
    assert idle.withdraw(idle.submit(candidate(FINE)))
    done = evaluator.submit(candidate(FINE))
    assert done.result(timeout=60).outcome == "ok"
    assert not evaluator.withdraw(done)


def test_candidates_that_wait_for_a_compiler_are_compiled_in_the_order_that_the_search_prefers() -> None:
    compiler = NoPool()
    made = DeviceEvaluator(H200, jobs=1, gpus=(0,), compiler=compiler, workers=[NoPool()])  # type: ignore[arg-type,list-item]
    first, second, third = (made.submit(candidate(way)) for way in (1, 2, 3))
    compiler.futures[-1].set_result(Evaluation("compile_error", "error"))  # of the third, which waits no more
    made.prefer([third, second, first])
    assert compiler.preferred == [candidate(2), candidate(1)]


def test_studies_are_spread_over_the_gpus_and_each_gets_a_baseline() -> None:
    compiler, gpus = NoPool(), [NoPool(), NoPool()]
    made = DeviceEvaluator(H200, jobs=1, gpus=(0, 1), compiler=compiler, workers=gpus)  # type: ignore[arg-type]
    shapes = [GemmShape(16, 2112, 7168), GemmShape(4, 2880, 512), GemmShape(64, 7168, 2048)]
    lanes = [made._lane(shape).index for shape in (*shapes, *shapes)]
    assert lanes == [0, 1, 0, 0, 1, 0]
    assert compiler.tasks == [baseline(shape, H200) for shape in shapes]
    assert made.lanes == 2


def two_idle_gpus() -> DeviceEvaluator:
    return DeviceEvaluator(H200, jobs=1, gpus=(0, 1), compiler=NoPool(), workers=[NoPool(), NoPool()])  # type: ignore[arg-type,list-item]


def test_the_next_study_goes_to_the_gpu_whose_study_ended_however_many_it_had() -> None:
    made = two_idle_gpus()
    long, short = GemmShape(256, 7168, 2048), [GemmShape(M, 192, 448) for M in (1, 2, 3, 4)]
    assert made._lane(long).index == 0
    for shape in short:
        assert made._lane(shape).index == 1
        made.study_ended(shape)
    made.study_ended(long)
    assert made._lane(GemmShape(5, 192, 448)).index == 0


def test_studies_that_begin_at_once_get_a_gpu_each(monkeypatch: pytest.MonkeyPatch) -> None:
    made = two_idle_gpus()

    def slow_load(lane: GpuLane) -> int:
        time.sleep(0.05)
        return 0

    monkeypatch.setattr(GpuLane, "load", property(slow_load))
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(made._lane, [SHAPE, GemmShape(4, 2880, 512)]))
    assert {lane.index for lane in found} == {0, 1}
