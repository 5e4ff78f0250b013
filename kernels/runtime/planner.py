"""Plans by shape: chosen, compiled and remembered once, read without a lock ever after."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

import torch

from kernels.device import DeviceKey, local_device
from kernels.errors import KernelError
from kernels.families.defaults import default_choice, smallest_choice
from kernels.launches.triton_kernel import COMPILER_ERRORS
from kernels.problem import GemmShape
from kernels.runtime.plan import Inputs, Plan, build_plan
from kernels.runtime.runner import MakeRunner
from kernels.tables import Choice, How, Lookup
from kernels.tables.misses import MissRecorder

LOGGER = logging.getLogger(__name__)
MAX_PLANS = 8192  # a few kB each; beyond, the oldest goes
# A configuration that another version of the compiler built may fail in this one. A KernelError says that what the
# configuration needs is not on this machine.
UNBUILDABLE = (*COMPILER_ERRORS, KernelError)
PlanKey = tuple[int, int, int, int, int, int]  # M, N, K, row stride of A, misaligned operands, GPU index


@dataclass(eq=False)
class Planned:
    """A plan in use.

    Args:
        choice: Its configuration and the table's answer. Where this machine cannot use the configuration of the
            answer's row, the configuration is a default.
        graph: Whether the row asks for replay of a captured graph.
        only_device: Whether the process sees no other device, so that this one is always current.
        calls: How often it ran; a few may be lost where threads race.
    """

    plan: Plan
    choice: Choice
    graph: bool
    only_device: bool
    calls: int = 0


@dataclass(frozen=True)
class Statistics:
    """What a dispatcher did so far.

    Args:
        calls: Calls by the answer of the table: ``exact``, ``bucket``, ``above`` or ``miss``.
        shapes: Plans held by the same.
        rejected: Configurations that cannot be built or are not to be had here, so that a default serves instead.
    """

    calls: Mapping[How, int]
    shapes: Mapping[How, int]
    rejected: int


@dataclass(eq=False)
class Planner:
    """Makes and keeps the plans of one dispatcher.

    Args:
        limit_bytes: Of the workspace of a call.
        misses: Where shapes without a row are recorded.
    """

    device: DeviceKey
    choose: Callable[[GemmShape], Choice]
    make: MakeRunner
    limit_bytes: int
    misses: MissRecorder | None = None
    max_plans: int = MAX_PLANS
    _plans: dict[PlanKey, Planned] = field(default_factory=dict)
    _missed: set[tuple[int, int]] = field(default_factory=set)
    _noted: set[GemmShape] = field(default_factory=set)
    _forgotten: Counter[How] = field(default_factory=Counter)  # calls of plans that were dropped
    _rejected: list[str] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def planned(self, key: PlanKey) -> Planned:
        """The plan for ``key``; made if there is none.

        Raises:
            RuntimeError: There is none, and the caller captures a graph, into which nothing may be compiled.
            ValueError: The GPU is not the planner's device, or the shape is not supported.
        """
        known = self._plans.get(key)
        return self._make(key) if known is None else known

    def note(self, shape: GemmShape) -> None:
        """Record ``shape`` as a miss unless the table has a row for it; no plan is made."""
        if self.misses is None or shape in self._noted:
            return
        with self._lock:
            self._noted.add(shape)
            if self.choose(shape).lookup.row is None:
                self.misses.record(shape, self.device)

    def statistics(self) -> Statistics:
        """Counts so far."""
        with self._lock:
            plans = list(self._plans.values())
            calls = Counter(self._forgotten)
            for planned in plans:
                calls[planned.choice.lookup.how] += planned.calls
            shapes = Counter(planned.choice.lookup.how for planned in plans)
            return Statistics(dict(calls), dict(shapes), len(self._rejected))

    def _make(self, key: PlanKey) -> Planned:
        inputs = Inputs(GemmShape(*key[:3]), key[3], key[4])
        self._check_device(inputs.shape, key[5])
        with self._lock:
            known = self._plans.get(key)  # another thread may have been faster
            if known is None:
                choice = self.choose(inputs.shape)
                with nullcontext() if key[5] < 0 else torch.cuda.device(key[5]):
                    known = self._build(choice, inputs)
                if choice.lookup.row is None:
                    self._miss(inputs.shape, choice.lookup)
                self._plans[key] = known
                self._evict()
            return known

    def _check_device(self, shape: GemmShape, index: int) -> None:
        if index < 0:
            return
        if torch.cuda.is_current_stream_capturing():
            cure = "run it once, or Dispatcher.prepare, before the capture"
            raise RuntimeError(f"{shape} has no plan and a graph is being captured, where nothing is compiled; {cure}")
        found = local_device(index)
        if found != self.device:
            raise ValueError(f"GPU {index} is {found}, the dispatcher serves {self.device}")

    def _candidates(self, choice: Choice, shape: GemmShape) -> Iterator[Choice]:
        yield choice
        yield Choice(*default_choice(shape, self.device), choice.lookup)
        yield Choice(*smallest_choice(self.device), choice.lookup)

    def _compile(self, choice: Choice, inputs: Inputs) -> Planned:
        plan = build_plan(choice.family, choice.config, inputs, self.make, self.limit_bytes)
        row = choice.lookup.row
        only_device = torch.cuda.device_count() < 2
        return Planned(plan, choice, row is not None and row.graph, only_device)

    def _build(self, choice: Choice, inputs: Inputs) -> Planned:
        *first, last = dict.fromkeys(self._candidates(choice, inputs.shape))
        for candidate in first:
            try:
                return self._compile(candidate, inputs)
            except UNBUILDABLE as error:
                reason = str(error).strip().partition("\n")[0]
                self._rejected.append(f"{inputs.shape} {candidate.family}")
                LOGGER.warning("%s: %s %s cannot be used here (%s); a default serves",
                               inputs.shape, candidate.family, candidate.config, reason)  # fmt: skip
        return self._compile(last, inputs)

    def _miss(self, shape: GemmShape, found: Lookup) -> None:
        layer = (shape.N, shape.K)
        if layer not in self._missed:
            self._missed.add(layer)
            LOGGER.warning("%s is not tuned for %s (%s); a default serves", shape, self.device, found.explanation)
        if self.misses is not None:
            self.misses.record(shape, self.device)

    def _evict(self) -> None:
        while len(self._plans) > self.max_plans:
            oldest = self._plans.pop(next(iter(self._plans)))
            self._forgotten[oldest.choice.lookup.how] += oldest.calls
