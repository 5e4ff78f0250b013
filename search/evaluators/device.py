"""Measure candidates on local GPUs: compile ahead in CPU processes, check and time in one process a GPU."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from kernels.device import DeviceKey
from kernels.errors import KernelError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.device.ahead import Artefacts, Compiled, compile_ahead, compile_only, hip_parcels, noted_artefacts
from search.device.finals import decide
from search.device.gpu import fault_line
from search.device.inventory import alike, local_gpus, others_note
from search.device.lane import ROCM_LIMITS, SIMULATED_LIMITS, GpuLane, Job, TaskLimits, WorkerDeaths
from search.device.measure import Answer, FinalTask, MeasureTask, Task, baseline, run_task
from search.device.product import Product, protocol_on
from search.device.telemetry import ABSENT_NOTE, has_amdsmi
from search.device.timing import COLD, WARM, TimingProtocol
from search.device.visible import see_none, see_only
from search.evaluation import SIMULATED, Candidate, Evaluation, FinalTimes, Point, Value
from search.evaluators import Evaluator
from search.results.trials import KeptTrials
from search.workers.cores import MOST_COMPILERS, allow_descriptors, lent_cores
from search.workers.pool import WorkerDied, WorkerPool, WorkerTimedOut

COMPILE_TIMEOUT_S = 120.0  # a compilation takes 1 to 5 seconds
KNOWN_COMPILES = 16  # that have to have ended, and then no other may take longer than
UNUSUAL, LEAST_LIMIT_S = 20, 30.0  # so many times their median, or so many seconds if that is more
YIELDING = 5  # niceness of what compiles: a core that a GPU's process or the sampler wants is theirs at once
AHEAD = 3  # candidates beyond the compiling ones: one on the GPU, two that wait for it
Compilation = Compiled | Evaluation


@dataclass(frozen=True)
class DeviceLimits:
    """Seconds that a candidate may take."""

    compile_s: float = COMPILE_TIMEOUT_S
    tasks: TaskLimits = field(default_factory=TaskLimits)


@dataclass
class CompileLimit:
    """Seconds that a compilation may take: one that takes far longer than the others holds up a search and never wins.

    Args:
        most_s: Before enough have ended, and ever.
    """

    most_s: float
    _took_s: list[float] = field(default_factory=list)

    def ended(self, compiled: Compiled) -> None:
        """A compilation ended well; one that found its kernels in the cache tells nothing."""
        if not compiled.cached:
            self._took_s.append(compiled.compile_s)

    @property
    def seconds(self) -> float:
        """For one that is submitted now."""
        if len(self._took_s) < KNOWN_COMPILES:
            return self.most_s
        return min(self.most_s, max(LEAST_LIMIT_S, UNUSUAL * median(self._took_s)))


def limits_on(device: DeviceKey, product: Product | None) -> DeviceLimits:
    """What a candidate may take there."""
    if product is not None and product.name == SIMULATED:
        return DeviceLimits(SIMULATED_LIMITS.run_s, SIMULATED_LIMITS)
    return DeviceLimits(tasks=ROCM_LIMITS if device.is_amd else TaskLimits())


class DeviceEvaluator(Evaluator):
    """Evaluates candidates by measuring them, the studies of several shapes each on a GPU of its own.

    Args:
        limits: Seconds that a candidate may take; None: what the device and the product need.
        jobs: Compiling processes; None takes one a core, and not more than the GPUs can use.
        gpus: Indices of the GPUs to use, which are all of one kind.
        workers: Pool of each GPU, with one process; None makes them, each with a spare that stands by.
    """

    offline = False
    ahead = True  # the compilers, while a GPU measures and holds finals

    def __init__(
        self,
        device: DeviceKey,
        *,
        jobs: int | None = None,
        protocol: TimingProtocol = COLD,
        limits: DeviceLimits | None = None,
        gpus: Sequence[int] = (0,),
        product: Product | None = None,
        compiler: WorkerPool[Candidate, Compilation] | None = None,
        workers: Sequence[WorkerPool[Task, Answer]] | None = None,
    ) -> None:
        count = jobs or min(MOST_COMPILERS, lent_cores())
        allow_descriptors(count + 2 * len(gpus))
        self.device = device
        self.protocol = protocol_on(str(protocol), product)
        self.capacity = count + AHEAD
        self._timing = protocol
        self._limits = limits or limits_on(device, product)
        self._compile_limit = CompileLimit(self._limits.compile_s)
        compiling = partial(compile_candidate, device=device)
        begin = partial(begin_compiling, device)
        self._compiler = compiler or WorkerPool(compiling, count, begin, fork=__name__)
        pools = workers or [_worker(index) for index in gpus]
        deaths = WorkerDeaths() if len(gpus) > 1 else None
        spares = [None if workers else _worker(index) for index in gpus]
        self._lanes = [
            GpuLane(index, pool, protocol, self._limits.tasks, spare=spare, deaths=deaths)
            for index, pool, spare in zip(gpus, pools, spares, strict=True)
        ]
        self.lanes = len(self._lanes)
        self._compiling: dict[Future[Evaluation], Future[Compilation]] = {}
        self._lane_of: dict[GemmShape, GpuLane] = {}
        self._searched: set[GemmShape] = set()  # shapes whose studies go on
        self._choosing = threading.Lock()  # studies run in threads of their own

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        """Start judging ``candidate``; its study's GPU measures it once it is compiled."""
        answer: Future[Evaluation] = Future()
        refusal = candidate.config.check(candidate.shape, self.device)
        if refusal is not None:
            answer.set_result(Evaluation("illegal", refusal))
            return answer
        lane = self._lane(candidate.shape)
        compiling = self._compiler.submit(candidate, self._compile_limit.seconds)
        self._compiling[answer] = compiling
        compiling.add_done_callback(lambda done: self._compiled(candidate, done, lane, answer))
        return answer

    def withdraw(self, answer: Future[Evaluation]) -> bool:
        """Give up a candidate that waits for a compiler."""
        compiling = self._compiling.get(answer)
        return compiling is not None and compiling.cancel()

    def prefer(self, answers: Sequence[Future[Evaluation]]) -> None:
        """Compile candidates that wait for a compiler, and measure those that wait for their GPU, in this order."""
        self._compiler.prefer([done for answer in answers if (done := self._compiling.get(answer)) is not None])
        for lane in self._lanes:
            lane.prefer(answers)

    def finals(self, candidates: Sequence[Candidate], *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        """Re-time ``candidates`` of one shape, all measured before, side by side on the GPU of their study.

        The future raises KernelError, WorkerDied or WorkerTimedOut where that cannot be done.
        """
        task = FinalTask(tuple(candidates), self._timing, rounds, seed)
        return self._final(task)

    def confirm(self, winner: Candidate, *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        """Time ``winner`` as the search does and through the dispatcher, side by side."""
        return self._final(FinalTask((winner,), self._timing, rounds, seed, dispatched=True))

    def hold_finals(self, kept: KeptTrials, shape: GemmShape, incumbent: Point | None, seed: int) -> None:
        """Settle on the study's GPU which of its trials is the fastest, see :func:`search.device.finals.decide`."""
        decide(kept, shape, self, incumbent, seed)

    def study_ended(self, shape: GemmShape) -> None:
        """The GPU of ``shape`` is free for the study of another one."""
        with self._choosing:
            self._searched.discard(shape)

    def start(self, timeout_s: float) -> None:
        """Bring the processes that compile and those that measure up, all at once."""
        threads = [
            threading.Thread(target=start, args=(timeout_s,))
            for start in (self._compiler.start, *(lane.start for lane in self._lanes))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """Stop every process; candidates that wait are cancelled."""
        self._compiler.close()
        for lane in self._lanes:
            lane.close()

    def _final(self, task: FinalTask) -> Future[FinalTimes]:
        answer: Future[Answer] = Future()
        self._lane(task.candidates[0].shape).put(Job(task, answer))
        return answer  # type: ignore[return-value] # a FinalTask is answered by FinalTimes

    def _lane(self, shape: GemmShape) -> GpuLane:
        """The GPU of the shape's study: when its first candidate comes, the one with the fewest studies."""
        with self._choosing:
            lane = self._lane_of.get(shape)
            if lane is not None:
                return lane
            lane = min(self._lanes, key=self._occupation)
            self._lane_of[shape] = lane
            self._searched.add(shape)
        first = baseline(shape, self.device)
        compiling = self._compiler.submit(first, self._limits.compile_s)
        compiling.add_done_callback(lambda done: self._baseline_compiled(first, done, lane))
        return lane

    def _occupation(self, lane: GpuLane) -> tuple[int, int, int]:
        """How much a lane has to do: studies that go on, jobs, studies so far."""
        mine = [shape for shape, other in self._lane_of.items() if other is lane]
        return len(self._searched.intersection(mine)), lane.load, len(mine)

    def _baseline_compiled(self, candidate: Candidate, done: Future[Compilation], lane: GpuLane) -> None:
        if not done.cancelled() and done.exception() is None and isinstance(done.result(), Compiled):
            lane.put_baseline(candidate)

    def _compiled(
        self, candidate: Candidate, done: Future[Compilation], lane: GpuLane, answer: Future[Evaluation]
    ) -> None:
        """In the compiler's thread: queue for the GPU, or end with what the compiler said."""
        self._compiling.pop(answer, None)
        result = _compilation(done)
        if isinstance(result, Compiled):
            self._compile_limit.ended(result)
            facts: dict[str, Value] = {
                "compile_s": result.compile_s, "cached": result.cached, "lds_bytes": result.lds_bytes,
            }  # fmt: skip
            lane.put(Job(MeasureTask(candidate, self._timing), answer, facts))  # type: ignore[arg-type]
        elif answer.set_running_or_notify_cancel():
            if isinstance(result, Evaluation):
                answer.set_result(result)
            else:
                answer.set_exception(result)


def on_local_gpus(jobs: int | None, *, warm: bool, note: Callable[[str], None]) -> DeviceEvaluator | None:
    """Measures on the GPUs of this machine that are alike, the rest is named; None where torch finds no GPU."""
    gpus = local_gpus()
    if not gpus:
        return None
    used = alike(gpus)
    left = others_note(gpus, used)
    if left is not None:
        note(left)
    first = used[0]
    if first.key.is_amd and not has_amdsmi():
        note(ABSENT_NOTE)
    indices = [gpu.index for gpu in used]
    protocol = WARM if warm else COLD
    return DeviceEvaluator(first.key, jobs=jobs, protocol=protocol, gpus=indices, product=first.product)


def _worker(index: int) -> WorkerPool[Task, Answer]:
    """One disposable process that sees GPU ``index`` only; it starts with its first task."""
    return WorkerPool(run_task, 1, partial(see_only, index), fault_line=fault_line)


def _compilation(done: Future[Compilation]) -> Compilation | BaseException:
    if done.cancelled():
        return Evaluation("crashed", "the compiler was stopped")
    error = done.exception()
    return lost_compiler(error) if isinstance(error, (WorkerDied, WorkerTimedOut)) else error or done.result()


def lost_compiler(error: WorkerDied | WorkerTimedOut) -> Evaluation:
    """What it says of a candidate that the process which compiled it did not come back."""
    return Evaluation("timed_out" if isinstance(error, WorkerTimedOut) else "crashed", f"compilation: {error}")


def begin_compiling(device: DeviceKey) -> None:
    """Prepare a compiling process: it sees no GPU, compiles for ``device``, and yields to what measures."""
    os.nice(YIELDING)
    see_none()
    compile_only(device)


def compile_candidate(candidate: Candidate, *, device: DeviceKey) -> Compilation:
    """In a compiling process: fill Triton's cache with the candidate's kernels, or say why that fails."""
    try:
        program = FAMILIES[candidate.family].program(candidate.shape, candidate.config)
        return compile_ahead(program, device)
    except KernelError as error:
        return Evaluation(error.outcome, str(error))  # type: ignore[arg-type]


def compile_to_send(candidate: Candidate, *, device: DeviceKey) -> tuple[Compilation, Artefacts]:
    """As :func:`compile_candidate`, with what another machine needs to launch the kernels."""
    with noted_artefacts() as triton:
        compiled = compile_candidate(candidate, device=device)
    if isinstance(compiled, Evaluation):
        return compiled, Artefacts()
    program = FAMILIES[candidate.family].program(candidate.shape, candidate.config)
    return compiled, Artefacts(triton, hip_parcels(program, device))
