"""What an evaluator is given and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.problem import GemmShape
from kernels.tables import lookup
from kernels.tables.rows import Evidence, TableRow, TunedTable

Outcome = Literal["ok", "illegal", "compile_error", "resource_limit", "wrong_result", "crashed", "timed_out", "slow"]
OUTCOMES: tuple[str, ...] = get_args(Outcome)
TIMED = ("ok", "slow")  # those that have a time, where one was measured or predicted
PRODUCT_MARK = "@"  # in the protocol of a measurement, before the product that it was made on
SIMULATED = "simulated"  # such a product: nothing that it measures is exported


def is_simulated(protocol: str) -> bool:
    """Whether times under ``protocol`` come from a simulated GPU and say nothing of a real one."""
    return protocol.endswith(PRODUCT_MARK + SIMULATED)


Value = int | float | str | bool | None  # of one results column
Point = tuple[str, KernelConfig]  # family and configuration


@dataclass(frozen=True)
class Candidate:
    """One configuration of one family at one shape."""

    shape: GemmShape
    family: str
    config: KernelConfig


@dataclass(frozen=True)
class ServedCandidate(Candidate):
    """A candidate that is to be right wherever its row serves it, from the lowest to the greatest M."""

    lowest_M: int
    greatest_M: int


def served(row: TableRow, table: TunedTable) -> ServedCandidate:
    """The row's configuration with the least and the greatest M that it serves in ``table``.

    What it serves begins and ends where it, or another row of its layer, does.
    """
    layer = table.layer(row.N, row.K)
    ends = {M for one in layer for M in (one.least_M, one.M, one.greatest_M)}
    near = {M for end in ends for M in (end - 1, end, end + 1) if row.least_M <= M <= row.greatest_M}
    serves = [row.M, *(M for M in near if _serves(row, M, table))]
    return ServedCandidate(row.shape, row.family, row.config, min(serves), max(serves))


def _serves(row: TableRow, M: int, table: TunedTable) -> bool:
    """Whether ``row`` is what ``table`` has for M, wherever results may vary or not."""
    shape = GemmShape(M, row.N, row.K)
    return any(lookup(table, shape, deterministic_only=only).row is row for only in (False, True))


@dataclass(frozen=True)
class Evaluation:
    """How far a candidate came and what was learnt.

    Args:
        outcome: The word that ended it; ``ok`` if it may win.
        reason: One line for the user where the outcome is not ``ok``.
        evidence: Whether ``objective_us`` was measured or predicted.
        objective_us: What the search minimises; None unless the outcome is ``ok`` or ``slow``.
        facts: Results columns of the rungs that were reached, by the names of ``search.results.COLUMNS``.
    """

    outcome: Outcome
    reason: str = ""
    evidence: Evidence | None = None
    objective_us: float | None = None
    facts: Mapping[str, Value] = field(default_factory=dict)


class Judge(Protocol):
    """Judges candidates, several at a time; every :class:`search.evaluators.Evaluator` is one."""

    device: DeviceKey
    capacity: int  # how many candidates to keep submitted

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        """Start judging ``candidate``; the future raises only for a bug or a broken installation."""

    def withdraw(self, answer: Future[Evaluation]) -> bool:
        """Give up a candidate for which nothing was done yet; False if its work has begun."""
        ...

    def prefer(self, answers: Sequence[Future[Evaluation]]) -> None:
        """Judge candidates of a study that wait in this order, as far as there is a choice."""


@dataclass(frozen=True)
class FinalTimes:
    """Times in microseconds [round][candidate]; the dispatcher's, if asked for, come last."""

    rounds: tuple[tuple[float, ...], ...]


class FinalsFailedError(Exception):
    """The finalists could not be timed side by side; what the search measured stands."""
