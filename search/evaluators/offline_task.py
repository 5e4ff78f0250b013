"""What a worker process of the offline evaluator is given, and what it says of a candidate that the process is gone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernels.errors import CompileError, TimedOutError
from search.evaluation import Candidate, Evaluation, Outcome
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.calls import LOG_SUFFIX
from search.gfx950.model.calibrated import Model
from search.gfx950.model.executed import MODEL_VERSION
from search.workers.compiler_output import diagnostic_line
from search.workers.pool import UNSEEN_END, WorkerDied, WorkerTimedOut

PROTOCOL = f"offline-{MODEL_VERSION}"
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


def protocol_of(model: Model) -> str:
    """How rows are judged that are predicted with ``model``: a calibrated one is a protocol of its own."""
    return PROTOCOL + (f"-{model.machine.harness.name}" if model.calibrated else "")


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
