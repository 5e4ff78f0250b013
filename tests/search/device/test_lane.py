"""search.device.lane: one bad task costs one task; the GPU's state is checked after it. The pool is a script."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import pytest

from kernels.families.aiter import AiterConfig
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.device.gpu import GpuFaultError
from search.device.lane import GpuLane, GpuUnusableError, Job, TaskLimits
from search.device.measure import FinalTask, MeasureTask, StandBy
from search.device.timing import COLD
from search.evaluation import Candidate, Evaluation, FinalsFailedError, FinalTimes
from search.workers.pool import WorkerDied, WorkerStuckError, WorkerTimedOut

SHAPE = GemmShape(16, 2112, 7168)
BASELINE = Candidate(SHAPE, "fused", TileConfig(BLOCK_M=32, quantizer="software"))
Script = Callable[[Any], Any]  # task to answer, or to an error that the worker's end raises


def candidate(number: int) -> Candidate:
    return Candidate(SHAPE, "fused", TileConfig(GROUP_M=number, quantizer="software"))


def ok(time_us: float) -> Evaluation:
    return Evaluation("ok", "", "measured", time_us, {"device_name": "Imaginary", "protocol": "cold-graph-v1"})


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class ScriptedPool:
    """Answers when told to, in the order of submission."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.tasks: list[Any] = []
        self.limits_s: list[float] = []
        self.waiting: list[tuple[Any, Future[Any]]] = []
        self.closed = False

    def submit(self, task: Any, timeout_s: float) -> Future[Any]:
        if self.closed:
            raise RuntimeError("the pool is closed")
        self.tasks.append(task)
        self.limits_s.append(timeout_s)
        future: Future[Any] = Future()
        self.waiting.append((task, future))
        return future

    def close(self) -> None:
        self.closed = True
        while self.waiting:
            self.waiting.pop(0)[1].set_exception(WorkerDied("the pool was closed"))

    def step(self) -> None:
        task, future = self.waiting.pop(0)
        answer = self.script(task)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def run(self) -> None:
        while self.waiting:
            self.step()


def numbers(pool: ScriptedPool, skipped: int = 0) -> list[str | int]:
    """What ran: GROUP_M of candidates, ``baseline`` for the baseline."""
    return ["baseline" if t.candidate == BASELINE else t.candidate.config.GROUP_M for t in pool.tasks[skipped:]]


def lane_of(script: Script, clock: Clock | None = None) -> tuple[GpuLane, ScriptedPool]:
    pool = ScriptedPool(script)
    return GpuLane(3, pool, COLD, TaskLimits(), clock=clock or Clock()), pool  # type: ignore[arg-type]


def put(lane: GpuLane, number: int, **facts: Any) -> Future[Any]:
    answer: Future[Any] = Future()
    lane.put(Job(MeasureTask(candidate(number), COLD), answer, facts))
    return answer


def faulty(error: Exception) -> Script:
    """Candidate 2 fails with ``error``; everything else takes 20 us."""
    return lambda task: error if task.candidate == candidate(2) else ok(20.0)


FAULTS = [
    (WorkerDied("the worker was killed by SIGKILL"), "crashed", "SIGKILL"),
    (WorkerDied("the worker was killed by SIGABRT"), "crashed", "SIGABRT"),
    (WorkerTimedOut("no answer within 60 s"), "timed_out", "on the GPU"),
    (GpuFaultError("an illegal memory access was encountered"), "crashed", "illegal memory access"),
]


@pytest.mark.parametrize("error, outcome, reason", FAULTS)
def test_a_fault_is_the_outcome_of_its_candidate_only_and_the_baseline_runs_next(
    error: Exception, outcome: str, reason: str
) -> None:
    lane, pool = lane_of(faulty(error))
    lane.put_baseline(BASELINE)
    answers = [put(lane, number) for number in (1, 2, 3)]
    pool.run()
    results = [answer.result(timeout=1) for answer in answers]
    assert [result.outcome for result in results] == ["ok", outcome, "ok"]
    assert reason in results[1].reason
    assert numbers(pool) == ["baseline", 1, 2, "baseline", 3]
    assert results[1].facts["device_name"] == "Imaginary"  # known from earlier tasks


def test_a_wrong_result_casts_no_doubt_on_the_gpu() -> None:
    lane, pool = lane_of(lambda task: Evaluation("wrong_result", "NaN") if task.candidate == candidate(2) else ok(20.0))
    lane.put_baseline(BASELINE)
    put(lane, 2)
    put(lane, 3)
    pool.run()
    assert numbers(pool) == ["baseline", 2, 3]


def test_a_baseline_that_slowed_down_is_noted_in_later_trials() -> None:
    times = iter([20.0, WorkerDied("gone"), 30.0, 21.0])
    lane, pool = lane_of(lambda task: t if isinstance(t := next(times), Exception) else ok(t))
    lane.put_baseline(BASELINE)
    put(lane, 2)
    later = put(lane, 3)
    pool.run()
    facts = later.result(timeout=1).facts
    assert facts["gpu_notes"] == "baseline slowed from 20.00 to 30.00 us"
    assert (facts["baseline_us"], facts["gpu_index"]) == (30.0, 3)


def test_a_gpu_that_cannot_run_its_baseline_any_more_stops_everything_that_waits() -> None:
    lane, pool = lane_of(lambda task: WorkerDied("no device"))
    lane.put_baseline(BASELINE)
    answers = [put(lane, number) for number in (1, 2)]
    pool.run()
    for answer in answers:
        with pytest.raises(GpuUnusableError, match="GPU 3 cannot run its baseline"):
            answer.result(timeout=1)


def test_one_failed_baseline_after_a_fault_gets_a_second_chance() -> None:
    times = iter([20.0, WorkerDied("gone"), WorkerDied("still restarting"), 20.0, 21.0])
    lane, pool = lane_of(lambda task: t if isinstance(t := next(times), Exception) else ok(t))
    lane.put_baseline(BASELINE)
    put(lane, 2)
    later = put(lane, 3)
    pool.run()
    assert later.result(timeout=1).outcome == "ok"


def test_the_best_time_goes_with_each_task_so_that_slow_ones_stop_early() -> None:
    times = iter([25.0, 20.0, 22.0, 30.0])
    lane, pool = lane_of(lambda task: ok(next(times)))
    lane.put_baseline(BASELINE)
    for number in (1, 2, 3):
        put(lane, number)
    pool.run()
    assert [task.best_us for task in pool.tasks] == [None, 25.0, 20.0, 20.0]


def test_the_time_without_a_compiled_candidate_is_recorded_as_waiting() -> None:
    clock = Clock()

    def script(task: Any) -> Evaluation:
        clock.now_s += 2.0
        return ok(20.0)

    lane, pool = lane_of(script, clock)
    first = put(lane, 1)
    pool.run()
    clock.now_s += 5.0  # the compiler is not ready
    second = put(lane, 2)
    third = put(lane, 3)
    pool.run()
    assert "gpu_wait_s" not in first.result().facts  # nothing was promised before the first candidate
    assert second.result().facts["gpu_wait_s"] == 5.0
    assert third.result().facts["gpu_wait_s"] == 0.0
    assert [a.result().facts["gpu_s"] for a in (first, second, third)] == [2.0, 2.0, 2.0]


def test_after_a_fault_the_spare_takes_over_and_the_first_pool_stands_by() -> None:
    script = faulty(WorkerDied("gone"))
    pool, spare = ScriptedPool(script), ScriptedPool(script)
    lane = GpuLane(3, pool, COLD, TaskLimits(), clock=Clock(), spare=spare)  # type: ignore[arg-type]
    lane.put_baseline(BASELINE)
    answers = [put(lane, number) for number in (1, 2, 3)]
    pool.step()  # the baseline; now the spare is started
    assert spare.tasks == [StandBy()]
    spare.waiting.clear()
    pool.step()
    pool.step()  # candidate 2 takes its worker with it
    assert pool.tasks[-1] == StandBy()
    spare.run()
    assert [answer.result().outcome for answer in answers] == ["ok", "crashed", "ok"]
    assert numbers(spare, 1) == ["baseline", 3]
    lane.close()
    assert pool.closed and spare.closed


def test_cancelled_candidates_never_reach_the_gpu() -> None:
    lane, pool = lane_of(lambda task: ok(20.0))
    answers = [put(lane, number) for number in (1, 2, 3)]
    assert answers[1].cancel()
    pool.run()
    assert numbers(pool) == [1, 3]


def test_closing_cancels_what_waits() -> None:
    lane, pool = lane_of(lambda task: ok(20.0))
    put(lane, 1)
    waits = put(lane, 2)
    lane.close()
    assert pool.closed and waits.cancelled()
    assert put(lane, 3).cancelled()


def test_whoever_waits_for_a_candidate_hears_of_the_end() -> None:
    lane, _ = lane_of(lambda task: ok(20.0))
    runs, waits, late = put(lane, 1), put(lane, 2), threading.Timer(0.2, lane.close)
    late.start()
    assert wait([runs, waits], timeout=10).not_done == set()
    assert wait([put(lane, 3)], timeout=10).not_done == set()
    assert runs.result().outcome == "crashed"


def test_closing_stops_the_spare_that_takes_over_from_the_closed_worker() -> None:
    pool, spare = ScriptedPool(lambda task: ok(20.0)), ScriptedPool(lambda task: ok(20.0))
    lane = GpuLane(3, pool, COLD, TaskLimits(), clock=Clock(), spare=spare)  # type: ignore[arg-type]
    put(lane, 1)
    lane.close()
    assert pool.closed and spare.closed


class ClosedMeanwhile(ScriptedPool):
    """Another thread closes the lane while a task, or the process that stands by, is being submitted."""

    lane: GpuLane
    closers: list[threading.Thread]

    def submit(self, task: Any, timeout_s: float) -> Future[Any]:
        if self.tasks:  # not yet with the first
            self.closers.append(threading.Thread(target=self.lane.close))
            self.closers[-1].start()
            self.closers[-1].join(0.2)  # as far as it gets
        return super().submit(task, timeout_s)


@pytest.mark.parametrize("with_spare", [False, True])
def test_closing_while_the_next_task_starts_leaves_nobody_waiting(
    with_spare: bool, caplog: pytest.LogCaptureFixture
) -> None:
    closers: list[threading.Thread] = []
    pools = [ClosedMeanwhile(lambda task: ok(20.0)) for _ in range(2)]
    pools[1].tasks.append("one before")
    lane = GpuLane(3, pools[0], COLD, TaskLimits(), clock=Clock(), spare=pools[1] if with_spare else None)  # type: ignore[arg-type]
    for pool in pools:
        pool.lane, pool.closers = lane, closers
    answers = [put(lane, number) for number in ((1,) if with_spare else (1, 2, 3))]
    pools[0].step()
    for closer in closers:
        closer.join(10)
    assert closers and wait(answers, timeout=10).not_done == set()
    assert caplog.records == []  # of concurrent.futures: a callback that raised


def test_finals_answer_with_times_or_say_why_not() -> None:
    times = FinalTimes(((1.0, 2.0),))
    lane, pool = lane_of(lambda task: times if task.seed == 1 else WorkerDied("gone"))
    good: Future[Any] = Future()
    bad: Future[Any] = Future()
    for answer, seed in ((good, 1), (bad, 2)):
        lane.put(Job(FinalTask((candidate(1), candidate(2)), COLD, rounds=1, seed=seed), answer))
    pool.run()
    assert good.result() is times
    with pytest.raises(FinalsFailedError, match="crashed: gone"):
        bad.result()


def test_what_a_process_does_for_the_first_time_may_take_longer_and_so_after_each_fault() -> None:
    lane, pool = lane_of(faulty(WorkerDied("the worker was killed by SIGABRT")))
    lane.put_baseline(BASELINE)
    for number in (1, 2, 3):
        put(lane, number)
    pool.run()
    assert numbers(pool) == ["baseline", 1, 2, "baseline", 3]
    assert pool.limits_s == [600, 60, 60, 600, 60]


def test_a_library_may_build_itself_at_its_first_call_only() -> None:
    lane, pool = lane_of(lambda task: ok(20.0))
    lane.put_baseline(BASELINE)
    for _ in range(2):
        lane.put(Job(MeasureTask(Candidate(SHAPE, "aiter", AiterConfig()), COLD), Future()))
    pool.run()
    assert pool.limits_s == [600, 900, 60]


def test_a_gpu_whose_worker_does_not_end_is_given_up_at_once() -> None:
    lane, pool = lane_of(faulty(WorkerStuckError("the worker does not end although it was killed 30 s ago")))
    lane.put_baseline(BASELINE)
    answers = [put(lane, number) for number in (1, 2, 3)]
    pool.run()
    assert answers[1].result(timeout=1).outcome == "timed_out"
    with pytest.raises(GpuUnusableError, match="GPU 3: the worker does not end"):
        answers[2].result(timeout=1)
