"""search.device.lane: one bad task costs one task; the GPU's state is checked after it. The pool is a script."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any

import pytest

from kernels.errors import InputError
from kernels.families.aiter import AiterConfig
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.device.gpu import GpuFaultError
from search.device.lane import ROCM_LIMITS, GpuLane, GpuUnusableError, Job, TaskLimits, WorkerDeaths
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

    def start(self, timeout_s: float) -> None:
        pass

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


def lane_of(
    script: Script, clock: Clock | None = None, limits: TaskLimits = ROCM_LIMITS, **options: Any
) -> tuple[GpuLane, ScriptedPool]:
    pool = ScriptedPool(script)
    return GpuLane(3, pool, COLD, limits, clock=clock or Clock(), **options), pool  # type: ignore[arg-type]


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
        with pytest.raises(InputError, match=r"^GPU 3 cannot run its baseline any more: no device; see `dmesg`"):
            answer.result(timeout=1)  # one line at the command line


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


def test_a_gpu_is_opened_before_its_first_candidate_with_the_time_that_this_may_take() -> None:
    lane, pool = lane_of(lambda task: FinalTimes(()))
    lane.start(1.0)
    assert (pool.tasks, pool.limits_s) == ([StandBy(opened=True)], [600.0])
    lane.close()
    lane.start(1.0)  # an interrupt came first
    assert len(pool.tasks) == 1


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
    clock.now_s += 4.0
    other: Future[Any] = Future()
    lane.put(Job(MeasureTask(replace(candidate(1), shape=GemmShape(32, 2112, 7168)), COLD), other))
    pool.run()
    assert other.result().facts["gpu_wait_s"] == 4.0  # of another search, which might have had it ready


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


def test_what_waits_runs_in_the_order_that_the_search_prefers_and_the_rest_keeps_its_place() -> None:
    pool = ScriptedPool(lambda task: ok(10.0))
    lane = GpuLane(0, pool, COLD, TaskLimits())
    answers: list[Future[Any]] = [Future() for _ in range(6)]
    for number, answer in enumerate(answers, start=1):
        lane.put(Job(MeasureTask(candidate(number), COLD), answer))
    lane.prefer([answers[5], answers[3], answers[0], answers[1]])  # the first runs; the third and fifth are not named
    for _ in answers:
        pool.step()
    assert [task.candidate.config.GROUP_M for task in pool.tasks] == [1, 6, 3, 4, 5, 2]


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


@pytest.mark.parametrize(("limits", "first_s"), [(ROCM_LIMITS, 600), (TaskLimits(), 120)])
def test_the_first_task_of_a_gpu_may_take_longest_and_the_first_of_a_process_longer(
    limits: TaskLimits, first_s: float
) -> None:
    lane, pool = lane_of(faulty(WorkerDied("the worker was killed by SIGABRT")), limits=limits)
    lane.put_baseline(BASELINE)
    for number in (1, 2, 3):
        put(lane, number)
    pool.run()
    assert numbers(pool) == ["baseline", 1, 2, "baseline", 3]
    assert pool.limits_s == [first_s, 60, 60, 120, 60]


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
    with pytest.raises(GpuUnusableError, match="GPU 3 cannot be used: the worker does not end"):
        answers[2].result(timeout=1)


def test_one_unknown_error_is_its_candidates_crash_and_a_second_in_a_row_ends_the_search() -> None:
    unknown = RuntimeError("HIP error: operation not supported\nCompile with TORCH_USE_HIP_DSA")
    lane, pool = lane_of(
        lambda task: unknown if task.candidate in (candidate(1), candidate(3), candidate(4)) else ok(20.0)
    )
    lane.put_baseline(BASELINE)
    answers = [put(lane, number) for number in (1, 2, 3, 4)]
    pool.run()
    first = answers[0].result(timeout=1)
    assert (first.outcome, first.reason) == ("crashed", "RuntimeError: HIP error: operation not supported")
    assert [answer.result(timeout=1).outcome for answer in answers[1:3]] == ["ok", "crashed"]
    with pytest.raises(RuntimeError, match="operation not supported"):
        answers[3].result(timeout=1)


def test_a_mistake_of_the_program_ends_the_search_at_once() -> None:
    lane, pool = lane_of(faulty(TypeError("unexpected keyword")))
    answer = put(lane, 2)
    pool.run()
    with pytest.raises(TypeError, match="unexpected keyword"):
        answer.result(timeout=1)


class DiesOnce:
    """The worker dies under candidate 2 at its first run."""

    def __init__(self, clock: Clock, baseline_s: float = 1.0) -> None:
        self.clock, self.baseline_s, self.died = clock, baseline_s, False

    def __call__(self, task: Any) -> Any:
        if task.candidate == BASELINE:
            self.clock.now_s += self.baseline_s
        elif task.candidate == candidate(2) and not self.died:
            self.died = True
            return WorkerDied("the worker was killed by SIGABRT")
        return ok(20.0)


@pytest.mark.parametrize(
    ("other_s", "ran", "outcome"),
    [
        (104.0, ["baseline", 2, "baseline", 2, 3], "ok"),  # another GPU's worker died 3 s later: a reset
        (120.0, ["baseline", 2, "baseline", 3], "crashed"),  # long after: the candidate's own fault
    ],
)
def test_a_candidate_whose_worker_died_together_with_another_gpus_runs_again(
    other_s: float, ran: list[str | int], outcome: str
) -> None:
    clock, deaths = Clock(), WorkerDeaths()
    lane, pool = lane_of(DiesOnce(clock), clock, deaths=deaths)
    lane.put_baseline(BASELINE)
    answers = [put(lane, number) for number in (2, 3)]
    pool.step()
    pool.step()  # the worker dies at 101 s
    assert not answers[0].done()
    deaths.note(4, other_s)
    pool.run()
    assert (numbers(pool), answers[0].result(timeout=1).outcome) == (ran, outcome)


def test_a_candidate_runs_again_once_only_and_a_lone_gpu_answers_at_once() -> None:
    clock, deaths = Clock(), WorkerDeaths()
    deaths.note(4, 101.0)
    lane, pool = lane_of(faulty(WorkerDied("gone")), clock, deaths=deaths)
    lane.put_baseline(BASELINE)
    twice = put(lane, 2)
    pool.run()
    assert (numbers(pool), twice.result(timeout=1).outcome) == (["baseline", 2, "baseline", 2, "baseline"], "crashed")
    alone, pool = lane_of(faulty(WorkerDied("gone")))
    alone.put_baseline(BASELINE)
    once = put(alone, 2)
    pool.step()
    pool.step()
    assert once.result(timeout=1).outcome == "crashed"


def test_closing_cancels_a_candidate_that_waits_for_the_other_gpus() -> None:
    clock = Clock()
    lane, pool = lane_of(DiesOnce(clock), clock, deaths=WorkerDeaths())
    lane.put_baseline(BASELINE)
    held = put(lane, 2)
    pool.step()
    pool.step()
    lane.close()
    assert held.cancelled()
