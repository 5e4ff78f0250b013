"""Judge candidates without a GPU: compile, execute the code on the simulator, predict its time."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

from kernels.device import GFX950, DeviceKey
from kernels.disk import RunFolder, default_cache, writable_cache
from kernels.errors import InputError
from kernels.problem import GemmShape
from search.evaluation import Candidate, Evaluation, ServedCandidate
from search.evaluators import Evaluator
from search.evaluators.offline_task import CLIMB, Bar, OfflineTask, lost_worker, protocol_of
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.model.calibrated import Model, model_of
from search.workers.cores import allow_descriptors, lent_cores
from search.workers.pool import WorkerDied, WorkerPool, WorkerTimedOut

EXECUTION: Final = "search.evaluators.execution"  # only workers import it: torch and the simulator take 2 s to load
TIMEOUT_S = 120.0  # of one candidate; a compilation takes about one second


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
        function = partial(judge_in_worker, device=device, cache=self._cache.folder, model=model, climb=climb)
        self._pool: WorkerPool[OfflineTask, Evaluation] = WorkerPool(function, count, begin, fork=EXECUTION)

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


def begin() -> None:
    """In a worker process: have torch compute in one thread, as waiting ones would take the core of another worker."""
    import torch

    torch.set_num_threads(1)


def judge_in_worker(task: OfflineTask, *, device: DeviceKey, cache: Path, model: Model, climb: float) -> Evaluation:
    """As :func:`search.evaluators.execution.judge`."""
    from search.evaluators.execution import judge

    return judge(task, device=device, cache=cache, model=model, climb=climb)
