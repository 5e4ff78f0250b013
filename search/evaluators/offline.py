"""Judge candidates without a GPU: compile, execute the code on the simulator, predict its time."""

from __future__ import annotations

import itertools
import shutil
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import torch

from kernels.device import GFX950, DeviceKey
from kernels.disk import RunFolder, default_cache, writable_cache
from kernels.errors import CompileError, IllegalConfigError, InputError, KernelError, TimedOutError
from kernels.families import FAMILIES
from kernels.launches.program import Program
from kernels.problem import GemmShape
from search.evaluation import Candidate, Evaluation, Outcome, ServedCandidate, Value
from search.evaluators import Evaluator
from search.gate.check import GateReport, check_program, load_calls
from search.gate.served import check_served
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.calls import LOG_SUFFIX, CompiledCall, check_resources, compile_call, compiled_facts
from search.gfx950.machine import Machine
from search.gfx950.model.calibrated import Model, model_of
from search.gfx950.model.executed import MODEL_VERSION, executed_call, predict_works, program_works
from search.gfx950.model.families import estimate_calls, is_modelled
from search.gfx950.model.formula import FORMULA_VERSION, CallWork, total_us
from search.gfx950.model.launch_time import LaunchWork
from search.gfx950.model.static_counts import static_counts, with_code
from search.gfx950.simulator import Histogram
from search.workers.compiler_output import diagnostic_line
from search.workers.cores import allow_descriptors, lent_cores
from search.workers.pool import UNSEEN_END, WorkerDied, WorkerPool, WorkerTimedOut

PROTOCOL = f"offline-{MODEL_VERSION}"
TIMEOUT_S = 120.0  # of one candidate; a compilation takes about one second
CLIMB = 1.5  # candidates whose code is slower by the formula are not executed: among the near-best it errs less
# By the user, or for memory that other processes took, or perhaps so: not the compiler's doing.
KILLED_FROM_OUTSIDE = ("SIGKILL", UNSEEN_END)


@dataclass(frozen=True)
class Bar:
    """The best candidate of a shape so far.

    Args:
        formula_us: What the formula makes of its compiled code.
        predicted_us: By its execution.
    """

    formula_us: float
    predicted_us: float


@dataclass(frozen=True)
class OfflineTask:
    """What a worker is given.

    Args:
        logs: Folder of its own, which tells what was being compiled if the worker does not come back.
        bar: What the candidate has to beat; None has it executed in any case.
    """

    candidate: Candidate
    logs: Path
    bar: Bar | None = None


class OfflineEvaluator(Evaluator):
    """Compiles candidates in worker processes and predicts their times.

    Args:
        device: What to compile for; ``GFX950`` with any number of compute units.
        jobs: Worker processes; None takes one a core.
        cache: Folder of compiled kernels; None takes :func:`~kernels.disk.default_cache`.
        climb: Code that is slower than the best by more, by the formula, is not executed; infinite executes all.

    Raises:
        InputError: Another architecture, or no folder for compiled kernels can be written.
    """

    def __init__(
        self,
        device: DeviceKey = GFX950,
        *,
        jobs: int | None = None,
        cache: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        climb: float = CLIMB,
    ) -> None:
        model = model_of(device)
        if model is None:
            raise InputError(f"{device} has no model here; use --target {GFX950.arch}, or measure on the device")
        count = jobs or lent_cores()
        allow_descriptors(count)
        self.device = device
        self.protocol = protocol_of(model)
        self.calibrated = model.calibrated
        self.capacity = 2 * count  # one runs, one waits, so that no worker idles while the sampler thinks
        self._timeout_s = timeout_s
        self._cache = ArtifactCache(writable_cache(cache or default_cache()))
        self._logs = RunFolder()
        self._numbers = itertools.count()
        self._closed = False
        self._bars: dict[GemmShape, Bar] = {}
        self._raising = threading.Lock()  # answers come in threads of the pool
        self._judging: dict[Future[Evaluation], Future[Evaluation]] = {}  # what the pool owes, by what is owed here
        function = partial(judge, device=device, cache=self._cache.folder, model=model, climb=climb)
        alone = partial(torch.set_num_threads, 1)  # waiting threads of one worker would take the core of another
        self._pool: WorkerPool[OfflineTask, Evaluation] = WorkerPool(function, count, alone, fork=True)

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        """Start judging ``candidate``; a worker that dies or hangs is the candidate's outcome."""
        answer: Future[Evaluation] = Future()
        answer.set_running_or_notify_cancel()
        bar = None if isinstance(candidate, ServedCandidate) else self._bars.get(candidate.shape)
        task = OfflineTask(candidate, self._logs.path / str(next(self._numbers)), bar)

        def settle(done: Future[Evaluation]) -> None:
            self._judging.pop(answer, None)
            result = self._result(done, task.logs)
            if isinstance(result, BaseException):
                answer.set_exception(result)
            else:
                self._raise_bar(candidate.shape, result)
                answer.set_result(result)

        judging = self._pool.submit(task, self._timeout_s)
        self._judging[answer] = judging
        judging.add_done_callback(settle)
        return answer

    def withdraw(self, answer: Future[Evaluation]) -> bool:
        """Give up a candidate that waits for a worker."""
        judging = self._judging.get(answer)
        return judging is not None and judging.cancel()

    def _raise_bar(self, shape: GemmShape, evaluation: Evaluation) -> None:
        """Later candidates of ``shape`` have to beat this one, if it is the best."""
        formula_us, predicted_us = evaluation.facts.get("formula_us"), evaluation.objective_us
        if evaluation.outcome != "ok" or not isinstance(formula_us, float) or predicted_us is None:
            return
        with self._raising:
            if shape not in self._bars or predicted_us < self._bars[shape].predicted_us:
                self._bars[shape] = Bar(formula_us, predicted_us)

    def _result(self, done: Future[Evaluation], logs: Path) -> Evaluation | BaseException:
        """What the worker answered, what its loss means, or the error that ends the search."""
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or (self._closed and isinstance(error, WorkerDied)):
            return Evaluation("crashed", str(error or "cancelled"))
        if not isinstance(error, (WorkerDied, WorkerTimedOut)):
            return error or done.result()
        try:
            return lost_worker(error, logs, self._cache, keep=self._timeout_s >= TIMEOUT_S)
        except OSError as refused:
            what = f"{self._cache.folder}: how the compiler failed could not be stored ({refused.strerror or refused})"
            return InputError(f"{what}; make room or set XDG_CACHE_HOME to another folder; the same command goes on")

    def start(self, timeout_s: float) -> None:
        """Bring the workers up."""
        self._pool.start(timeout_s)

    def close(self) -> None:
        """Stop the workers."""
        self._closed = True
        self._pool.close()
        self._logs.close()


def lost_worker(error: WorkerDied | WorkerTimedOut, logs: Path, cache: ArtifactCache, *, keep: bool) -> Evaluation:
    """Outcome of a candidate whose worker died or hung, and, where it was the compiler's doing, the memory of it.

    Args:
        logs: The task's folder; a log is left of the compilation that was running.
        cache: Where a compiler's abort is stored, so that it is met once and not in every run.
        keep: Store a time-out as well: the limit was not made shorter than usual.

    Raises:
        OSError: The cache is full or cannot be written.
    """
    running = sorted(logs.glob(f"*{LOG_SUFFIX}"))
    if not running:
        outcome: Outcome = "timed_out" if isinstance(error, WorkerTimedOut) else "crashed"
        return Evaluation(outcome, f"while it was checked: {error}")
    said = diagnostic_line(running[0].read_text(errors="replace"))
    key = running[0].name.removesuffix(LOG_SUFFIX)
    if isinstance(error, WorkerTimedOut):
        late = TimedOutError(f"compilation: {error}")
        if keep:
            cache.store(key, late)
        return Evaluation("timed_out", str(late))
    if any(end in str(error) for end in KILLED_FROM_OUTSIDE):
        return Evaluation("crashed", f"compilation: {error}")
    aborted = CompileError(f"the compiler aborted: {said or error}")
    cache.store(key, aborted)
    return Evaluation("compile_error", str(aborted))


def protocol_of(model: Model) -> str:
    """How rows are judged that are predicted with ``model``: a calibrated one is a protocol of its own."""
    return PROTOCOL + (f"-{model.machine.harness.name}" if model.calibrated else "")


def judge(task: OfflineTask, *, device: DeviceKey, cache: Path, model: Model, climb: float = CLIMB) -> Evaluation:
    """Compile the candidate, check what it needs and computes, and predict its time."""
    candidate, machine = task.candidate, model.machine
    facts: dict[str, Value] = {"protocol": protocol_of(model)}
    deterministic = FAMILIES[candidate.family].is_deterministic(candidate.config)
    try:
        program = _legal_program(candidate, device)
        compiled = _compile(program, ArtifactCache(cache), task.logs)
        facts |= compiled_facts(compiled, machine)
        for one in compiled:
            check_resources(one, machine)
        formula_us = code_us(candidate, compiled, machine)
        facts |= {"formula_us": formula_us}
        if task.bar is not None and formula_us is not None and formula_us > climb * task.bar.formula_us:
            return _not_executed(formula_us, task.bar, facts)
        report = check_program(program, load_calls(compiled), candidate.shape)
        facts |= {"deterministic": deterministic} | _checked_facts(compiled, report)
        check_served(candidate, lambda other: _compile(other, ArtifactCache(cache), task.logs), device)
    except KernelError as error:
        return Evaluation(cast(Outcome, error.outcome), str(error), facts=facts)
    works = ExecutedCandidate(program, compiled, report).works(machine)
    prediction = predict_works(works, candidate.shape, machine, model.constants)
    facts |= {
        "model": prediction.model, "bound": prediction.bound, "roofline_us": prediction.roofline_us,
        "predicted_lo_us": prediction.lo_us, "predicted_hi_us": prediction.hi_us, "predicted_tie": prediction.tie,
    }  # fmt: skip
    return Evaluation("ok", evidence="predicted", objective_us=prediction.predicted_us, facts=facts)


def code_us(candidate: Candidate, compiled: Sequence[CompiledCall], machine: Machine) -> float | None:
    """What the formula makes of the compiled code, without executing it; None where it has no model or no text."""
    if not is_modelled(candidate.family) or not all(one.kernel.assembly for one in compiled):
        return None
    works = estimate_calls(candidate.family, candidate.config.to_dict(), candidate.shape, machine)
    return float(total_us([_coded(*pair, machine) for pair in zip(works, compiled, strict=True)], machine))


def _coded(work: CallWork, one: CompiledCall, machine: Machine) -> CallWork:
    counts = static_counts(one.kernel.assembly).executed(float(work.steps))
    return with_code(work, counts, one.analysis.resources, one.lds_bytes, machine)


def _not_executed(formula_us: float, bar: Bar, facts: Mapping[str, Value]) -> Evaluation:
    """A candidate whose code is too slow by the formula; its time is that of the best, times the formula's ratio."""
    ratio = formula_us / bar.formula_us
    reason = f"not executed: by {FORMULA_VERSION} on the compiled code {ratio:.2f} times as slow as the best"
    facts = {**facts, "model": f"{FORMULA_VERSION}-code"}
    return Evaluation("slow", reason, "predicted", ratio * bar.predicted_us, facts)


@dataclass(frozen=True, eq=False)
class ExecutedCandidate:
    """A candidate whose code was executed and is right."""

    program: Program
    compiled: Sequence[CompiledCall]
    report: GateReport

    def works(self, machine: Machine) -> tuple[LaunchWork, ...]:
        """What each launch does, for :func:`~search.gfx950.model.executed.predict_works`."""
        pairs = zip(self.compiled, self.report.recordings, strict=True)
        return program_works(self.program, [executed_call(one, recording, machine) for one, recording in pairs])


def execute_candidate(candidate: Candidate, device: DeviceKey, cache: ArtifactCache, logs: Path) -> ExecutedCandidate:
    """Compile and execute ``candidate``; ``logs`` is a folder of its own, gone afterwards.

    Raises:
        KernelError: It is illegal, does not compile, or is wrong.
    """
    program = _legal_program(candidate, device)
    compiled = _compile(program, cache, logs)
    return ExecutedCandidate(program, compiled, check_program(program, load_calls(compiled), candidate.shape))


def _legal_program(candidate: Candidate, device: DeviceKey) -> Program:
    refusal = candidate.config.check(candidate.shape, device)
    if refusal is not None:
        raise IllegalConfigError(refusal)
    return FAMILIES[candidate.family].program(candidate.shape, candidate.config)


def _compile(program: Program, cache: ArtifactCache, logs: Path) -> list[CompiledCall]:
    logs.mkdir(parents=True, exist_ok=True)
    compiled = [compile_call(program, call, cache, logs) for call in program.calls]
    shutil.rmtree(logs)
    return compiled


def _checked_facts(compiled: Sequence[CompiledCall], report: GateReport) -> dict[str, Value]:
    """Results columns of the simulated rung."""
    gemm = next(histogram for one, histogram in zip(compiled, report.histograms, strict=True) if one.is_gemm)
    return {
        "checked_on": "simulator", "mismatches": 0, "max_rel_error": report.max_rel_error,
        "check_s": report.check_s, "executed": sum(histogram.total for histogram in report.histograms),
        **executed_columns(gemm),
    }  # fmt: skip


def executed_columns(histogram: Histogram) -> Mapping[str, float]:
    """Results columns ``executed_<class>``: instructions of the average wave."""
    return {f"executed_{kind.value}": count for kind, count in histogram.per_wave().items()}
