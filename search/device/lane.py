"""The queue before one GPU: one task at a time in a disposable process, and a baseline run after every fault."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from kernels.errors import InputError, KernelError
from kernels.problem import GemmShape
from search.device.measure import Answer, FinalTask, MeasureTask, StandBy, Task
from search.device.timing import TimingProtocol
from search.evaluation import Candidate, Evaluation, FinalsFailedError, Value
from search.workers.pool import WorkerDied, WorkerPool, WorkerStuckError, WorkerTimedOut, arrange

FAULTS = ("crashed", "timed_out")  # outcomes after which the GPU's state is in doubt
ORIGIN = ("device_name", "rocm_or_cuda", "driver", "protocol", "checked_on")  # the same for every task of a lane
STAND_BY_TIMEOUT_S = 120.0  # to start
LIBRARIES = frozenset({"aiter"})  # families that a library runs
TOGETHER_S = (
    10.0  # workers of several GPUs that die within it were ended by the machine: a driver resets GPUs in groups
)
ERRORS_IN_A_ROW = 2  # of a kind that nobody knows, at which it is no longer the candidate's
SLOWER = 1.1  # a baseline beyond this multiple of its last time is worth a note


@dataclass(frozen=True)
class TaskLimits:
    """Seconds that a task may take.

    Args:
        run_s: To check and time a candidate: 0.1 to 1 second as a rule.
        final_s: To re-time the finalists of a shape.
        start_s: A process's first task: it opens the GPU.
        first_s: The GPU's first task: Triton's helper is compiled in C, and the libraries' code comes from a cold disk.
        library_s: To call a library for the first time: AITER builds its modules then.
    """

    run_s: float = 60.0
    final_s: float = 300.0
    start_s: float = 120.0
    first_s: float = 120.0
    library_s: float = 900.0


# On ROCm the first product alone was seen to take over 20 s, and the runtime's start, fat binaries of gigabytes and gcc
# come on top. Source: https://github.com/ROCm/rocBLAS/issues/1270.
ROCM_LIMITS = TaskLimits(first_s=600.0)
# A simulator needs minutes for what a GPU does in microseconds.
SIMULATED_LIMITS = TaskLimits(3600.0, 3600.0, 3600.0, 3600.0, 3600.0)


class GpuUnusableError(InputError):
    """The GPU cannot run the family's default any more, twice in a row; nothing measured on it would count."""


@dataclass
class Job:
    """A task with its answer.

    Args:
        facts: Columns that were known before.
        is_baseline: Whether it shows the GPU's state instead of a candidate's.
    """

    task: MeasureTask | FinalTask
    answer: Future[Answer]
    facts: dict[str, Value] = field(default_factory=dict)
    is_baseline: bool = False
    again: bool = False  # it runs for the second time, as the machine ended its first worker


@dataclass
class WorkerDeaths:
    """When the worker of which GPU died, on one clock; shared between the lanes of a machine."""

    _at_s: list[tuple[int, float]] = field(default_factory=list)

    def note(self, lane: int, now_s: float) -> None:
        """The worker of GPU ``lane`` is dead."""
        self._at_s.append((lane, now_s))

    def are_shared(self, lane: int, at_s: float) -> bool:
        """Whether another GPU's worker died at about the time at which that of ``lane`` did."""
        return any(other != lane and abs(when_s - at_s) <= TOGETHER_S for other, when_s in self._at_s)


@dataclass(frozen=True)
class _Held:
    """An answer that waits until the baseline has run: other GPUs' workers may have died as well."""

    job: Job
    answer: Evaluation
    died_s: float


@dataclass
class _ShapeState:
    best_us: float | None = None
    baseline: Candidate | None = None
    baseline_us: float | None = None
    note: str = ""


class GpuLane:
    """Runs jobs on one GPU in order.

    Args:
        pool: One worker process that sees only this GPU.
        spare: A second such pool, whose process stands by: after a fault it takes over at once, while the first
            pool's process is replaced. None waits for the replacement.
        deaths: Shared with the other GPUs' lanes; a candidate whose worker died together with one of theirs runs again.
    """

    def __init__(
        self,
        index: int,
        pool: WorkerPool[Task, Answer],
        protocol: TimingProtocol,
        limits: TaskLimits,
        clock: Callable[[], float] = time.monotonic,
        spare: WorkerPool[Task, Answer] | None = None,
        deaths: WorkerDeaths | None = None,
    ) -> None:
        self.index = index
        self._pool = pool
        self._spare = spare
        self._spare_stands_by = False
        self._protocol = protocol
        self._limits = limits
        self._deaths = deaths
        self._held: list[_Held] = []
        self._errors = 0  # of a kind that nobody knows, one after the other
        self._ran = False  # any task, in any process
        self._is_warm = False  # the process has done a task
        self._called: set[str] = set()  # libraries, by the process
        self._clock = clock
        self._lock = threading.RLock()
        self._queue: deque[Job] = deque()
        self._running: Job | None = None
        self._shapes: dict[GemmShape, _ShapeState] = {}
        self._idle_since_s: float | None = None
        self._in_doubt = 0  # faults since the last baseline that ran
        self._closed = False
        self._origin: dict[str, Value] = {}

    def start(self, timeout_s: float) -> None:
        """Bring the worker process up; it opens the GPU while the first candidates are compiled."""
        self._pool.start(timeout_s)
        with self._lock:
            if not self._closed:
                self._pool.submit(StandBy(opened=True), self._limits.first_s)

    @property
    def load(self) -> int:
        """Jobs that wait or run."""
        with self._lock:
            return len(self._queue) + (self._running is not None)

    def put(self, job: Job, *, first: bool = False) -> None:
        """Queue ``job``, at the front if ``first``."""
        with self._lock:
            if self._closed:
                _cancel(job.answer)
                return
            self._queue.appendleft(job) if first else self._queue.append(job)
        self._next()

    def prefer(self, answers: Sequence[Future[Evaluation]]) -> None:
        """Run the jobs that wait for ``answers`` in this order, in the places that they have among the others."""
        order: dict[Future[Any], int] = {answer: rank for rank, answer in enumerate(answers)}
        with self._lock:
            arrange(self._queue, lambda job: order.get(job.answer))

    def put_baseline(self, candidate: Candidate) -> None:
        """Run ``candidate``, whose kernels are compiled, next; and again after every fault at its shape."""
        with self._lock:
            self._state(candidate.shape).baseline = candidate
        self.put(self._baseline_job(candidate), first=True)

    def best_us(self, shape: GemmShape) -> float | None:
        """Time of the best candidate so far."""
        with self._lock:
            return self._state(shape).best_us

    def close(self) -> None:
        """Kill the worker; jobs that wait are cancelled."""
        with self._lock:
            self._closed = True
            waiting = [*self._queue, *(held.job for held in self._held)]
            self._queue.clear()
            self._held.clear()
            pools = self._pool, self._spare  # which change places when the running worker ends
        for job in waiting:
            _cancel(job.answer)
        for pool in pools:
            if pool is not None:
                pool.close()

    def _state(self, shape: GemmShape) -> _ShapeState:
        return self._shapes.setdefault(shape, _ShapeState())

    def _baseline_job(self, candidate: Candidate) -> Job:
        return Job(MeasureTask(candidate, self._protocol), Future(), is_baseline=True)

    def _next(self) -> None:
        """Start the next job if none runs."""
        with self._lock:
            while self._queue and self._queue[0].answer.cancelled():
                self._queue.popleft()
            if self._running is not None or not self._queue or self._closed:
                return
            job = self._running = self._queue.popleft()
            task = job.task
            if self._idle_since_s is not None and not job.is_baseline:
                job.facts["gpu_wait_s"] = self._clock() - self._idle_since_s
            if isinstance(task, MeasureTask) and not job.is_baseline:
                task = replace(task, best_us=self._state(_shape_of(task)).best_us)
            timeout_s = self._timeout_s(task)
            started_s = self._clock()
            running = self._pool.submit(task, timeout_s)  # before the lock is free: a closed pool takes none
        running.add_done_callback(lambda done: self._ended(job, done, started_s))

    def _timeout_s(self, task: MeasureTask | FinalTask) -> float:
        """What is done for the first time takes longer: using the GPU at all, opening it, building a library."""
        limits = self._limits
        limit_s = limits.final_s if isinstance(task, FinalTask) else limits.run_s
        if not self._is_warm:
            limit_s = max(limit_s, limits.start_s if self._ran else limits.first_s)
        if _libraries(task) - self._called:
            limit_s = max(limit_s, limits.library_s)
        return limit_s

    def _ended(self, job: Job, done: Future[Answer], started_s: float) -> None:
        """In the pool's thread: pass the answer on, look at what it says of the GPU, start the next."""
        now_s = self._clock()
        job.facts["gpu_s"] = now_s - started_s
        answer = self._bearable(job, _answer(done))
        lost: GpuUnusableError | None = None
        with self._lock:
            self._running, self._idle_since_s = None, now_s
            if isinstance(answer, Evaluation):
                lost = self._learn(job, answer)
                if not done.cancelled() and isinstance(done.exception(), WorkerStuckError):
                    lost = self._unusable(f"cannot be used: {done.exception()}")
                answer = self._completed(job, answer)
        if isinstance(job.task, FinalTask) and isinstance(answer, Evaluation):
            answer = FinalsFailedError(f"{answer.outcome}: {answer.reason}")
        self._release()
        if isinstance(answer, Evaluation) and self._holds(job, done):
            self._held.append(_Held(job, answer, now_s))
        elif not job.is_baseline:
            _settle(job.answer, answer)
        if lost is not None:
            self._release()
            self._give_up(lost)
        self._next()
        self._stand_by()

    def _bearable(self, job: Job, answer: Answer | BaseException) -> Answer | BaseException:
        """An error of torch or the driver that nobody knows is its candidate's crash; a second one ends the search."""
        if not isinstance(answer, RuntimeError):
            self._errors = self._errors if job.is_baseline else 0
            return answer
        self._errors += 1
        if self._errors >= ERRORS_IN_A_ROW:
            return answer
        return Evaluation("crashed", f"{type(answer).__name__}: {(str(answer).splitlines() or [''])[0]}")

    def _holds(self, job: Job, done: Future[Answer]) -> bool:
        """Whether the answer waits for the baseline, which runs next: the worker died of what may have met others."""
        error = None if done.cancelled() else done.exception()
        if self._deaths is None or not isinstance(error, (WorkerDied, WorkerTimedOut)):
            return False
        self._deaths.note(self.index, self._clock())
        candidate_died = isinstance(error, WorkerDied) and not (job.is_baseline or job.again)
        return candidate_died and bool(self._queue) and self._queue[0].is_baseline

    def _release(self) -> None:
        """Answer what was held, or run it again where the machine had ended its worker."""
        with self._lock:
            held, self._held = self._held, []
        for one in held:
            if self._deaths is not None and self._deaths.are_shared(self.index, one.died_s):
                one.job.again = True
                with self._lock:
                    self._queue.insert(1 if self._queue and self._queue[0].is_baseline else 0, one.job)
            else:
                _settle(one.job.answer, one.answer)

    def _stand_by(self) -> None:
        """Start the spare process if it is not there."""
        with self._lock:
            if self._spare is None or self._spare_stands_by or self._closed:
                return
            self._spare_stands_by = True
            self._spare.submit(StandBy(), STAND_BY_TIMEOUT_S)

    def _learn(self, job: Job, evaluation: Evaluation) -> GpuUnusableError | None:
        """Take note of a time or a fault; after a fault, run the baseline next."""
        shape = _shape_of(job.task)
        state = self._state(shape)
        if evaluation.outcome in FAULTS:
            self._is_warm, self._called = False, set()
            if self._spare is not None:
                self._pool, self._spare, self._spare_stands_by = self._spare, self._pool, False
            self._in_doubt += 1 if job.is_baseline or self._in_doubt == 0 else 0
            if self._in_doubt > 2:
                return self._unusable(f"cannot run its baseline any more: {evaluation.reason}")
            if state.baseline is not None:
                self._queue.appendleft(self._baseline_job(state.baseline))
            return None
        self._ran = self._is_warm = True
        self._called |= _libraries(job.task)
        if job.is_baseline:
            self._in_doubt = 0
        if evaluation.outcome == "ok" and evaluation.objective_us is not None:
            if job.is_baseline:
                self._compare_baseline(state, evaluation.objective_us)
            state.best_us = min(evaluation.objective_us, state.best_us or evaluation.objective_us)
        return None

    def _compare_baseline(self, state: _ShapeState, time_us: float) -> None:
        slower = state.baseline_us is not None and time_us > SLOWER * state.baseline_us
        state.note = f"baseline slowed from {state.baseline_us:.2f} to {time_us:.2f} us" if slower else ""
        state.baseline_us = time_us

    def _completed(self, job: Job, evaluation: Evaluation) -> Evaluation:
        """``evaluation`` with what the lane knows."""
        state = self._state(_shape_of(job.task))
        self._origin |= {name: evaluation.facts[name] for name in ORIGIN if name in evaluation.facts}
        notes = [str(note) for note in (evaluation.facts.get("gpu_notes"), state.note) if note]
        known: dict[str, Value] = {"gpu_index": self.index, "baseline_us": state.baseline_us}
        known["gpu_notes"] = "; ".join(notes) or None
        return replace(evaluation, facts={**self._origin, **job.facts, **evaluation.facts, **known})

    def _unusable(self, fault: str) -> GpuUnusableError:
        return GpuUnusableError(f"GPU {self.index} {fault}; see `dmesg`: it may need a reset, or minutes")

    def _give_up(self, error: GpuUnusableError) -> None:
        with self._lock:
            waiting = list(self._queue)
            self._queue.clear()
        for job in waiting:
            if not job.is_baseline:
                _settle(job.answer, error)


def _shape_of(task: MeasureTask | FinalTask) -> GemmShape:
    return task.candidate.shape if isinstance(task, MeasureTask) else task.candidates[0].shape


def _libraries(task: MeasureTask | FinalTask) -> set[str]:
    """Families of ``task`` that a library runs, which may build modules of its own at its first call."""
    candidates = (task.candidate,) if isinstance(task, MeasureTask) else task.candidates
    return {candidate.family for candidate in candidates} & LIBRARIES


def _answer(done: Future[Answer]) -> Answer | BaseException:
    """What the worker answered; a worker that died, hung or met a fault gives the candidate's outcome."""
    if done.cancelled():
        return Evaluation("crashed", "the GPU's worker was stopped")
    error = done.exception()
    if error is None:
        return done.result()
    if isinstance(error, WorkerTimedOut):
        return Evaluation("timed_out", f"on the GPU: {error}")
    if isinstance(error, WorkerDied):
        return Evaluation("crashed", str(error))
    if isinstance(error, KernelError):
        return Evaluation(error.outcome, str(error))  # type: ignore[arg-type]
    return error


def _settle(future: Future[Answer], answer: Answer | BaseException) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _cancel(future: Future[Answer]) -> None:
    """Cancel ``future``, and wake who waits for it: ``concurrent.futures.wait`` hears of the second call only."""
    if future.cancel():
        future.set_running_or_notify_cancel()
