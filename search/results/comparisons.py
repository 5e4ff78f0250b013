"""How much slower another choice is: the untuned default, and a row at a smaller M."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import pandas as pd

from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.families.defaults import default_choice
from kernels.problem import GemmShape
from kernels.tables import lookup
from kernels.tables.rows import TableRow, TunedTable
from kernels.wording import counted
from search.evaluation import Point
from search.formats.aiter_json import incumbents
from search.results.winners import Competition, Winner, slowdowns

LIBRARY: Point = ("aiter", FAMILIES["aiter"].config_type())
UNTUNED, CHOSEN = "without a row the default", "AITER's own choice"
TRITON = "AITER's Triton GEMM, as its files choose it,"


@dataclass(frozen=True)
class Cliff:
    """What else could serve, beside the winners.

    Args:
        subject: Words for it, up to the verb.
        factors: How many times as long as the winner it takes, by shape; 1 where it is as good.
        shapes: How many shapes have a winner, those without a factor included.
    """

    subject: str
    factors: Mapping[GemmShape, float]
    shapes: int

    def line(self) -> str:
        """One line for people."""
        worst = max(self.factors, key=lambda shape: self.factors[shape])
        least, most = (f"{limit(self.factors.values()):.2f}" for limit in (min, max))
        known = len(self.factors)
        part = "" if known == self.shapes else f" (at {known} of {counted(self.shapes, 'shape')})"
        if most == "1.00":
            return f"{self.subject} is as good as the winner{part}"
        span, place = (most, "") if least == most else (f"{least} to {most}", f", most at {worst}")
        return f"{self.subject} takes {span} times as long as the winner{part}{place}"


def cliffs(frame: pd.DataFrame, best: Sequence[Winner], competition: Competition | None = None) -> list[Cliff]:
    """The cliffs to the default that serves an untuned shape, to the library, and to what its files choose.

    Where the winners are of several devices, the words begin with the device.
    """
    trials = competition or Competition.of(frame)
    chosen = cache(incumbents)  # which reads files
    known = trials.slowdowns(lambda device, shape: (default_choice(shape, device), LIBRARY, *chosen(shape)))
    devices = list(dict.fromkeys(winner.device for winner in best))
    found: list[Cliff] = []
    for device in devices:
        place = f"{device}: " if len(devices) > 1 else ""
        mine = [winner for winner in best if winner.device == device]
        untuned, library = _factors(frame, mine, known)
        pairs = ((UNTUNED, untuned), (CHOSEN, library), (TRITON, _published(mine, known, chosen)))
        found += [Cliff(f"{place}{subject}", factors, len(mine)) for subject, factors in pairs if factors]
    return found


def _factors(
    frame: pd.DataFrame, best: Sequence[Winner], known: Mapping[tuple[DeviceKey, GemmShape], Mapping[Point, float]]
) -> tuple[dict[GemmShape, float], dict[GemmShape, float]]:
    """How many times as long as each winner, all of one device, the default takes, and the library."""
    untuned: dict[GemmShape, float] = {}
    library: dict[GemmShape, float] = {}
    for winner in best:
        slower = known.get((winner.device, winner.shape), {})
        factor = untuned_factor(frame, winner, slower)
        if factor is not None:
            untuned[winner.shape] = factor
        if LIBRARY in slower:
            library[winner.shape] = 1 + slower[LIBRARY]
    return untuned, library


def untuned_factor(frame: pd.DataFrame, winner: Winner, slower: Mapping[Point, float]) -> float | None:
    """How many times as long as ``winner`` the default takes: by its trial, else as measured on the same GPU.

    Args:
        slower: From :func:`search.results.winners.slowdowns`, at the winner's shape.
    """
    default = default_choice(winner.shape, winner.device)
    if default in slower:
        return 1 + slower[default]
    baseline_us = frame["baseline_us"][winner.row]
    return None if winner.evidence != "measured" or pd.isna(baseline_us) else max(1.0, baseline_us / winner.cost_us)


def published_factor(published: Collection[Point], slower: Mapping[Point, float]) -> float | None:
    """How many times as long as the winner the fastest of some published points takes; None if none was tried.

    Args:
        slower: From :func:`search.results.winners.slowdowns`, at the winner's shape.
    """
    return min((1 + slower[point] for point in published if point in slower), default=None)


def _published(
    best: Sequence[Winner],
    known: Mapping[tuple[DeviceKey, GemmShape], Mapping[Point, float]],
    chosen: Callable[[GemmShape], Collection[Point]],
) -> dict[GemmShape, float]:
    """How many times as long as each winner the fastest takes that AITER's files choose, where it was tried."""
    factors = {
        winner.shape: published_factor(chosen(winner.shape), known.get((winner.device, winner.shape), {}))
        for winner in best
    }
    return {shape: factor for shape, factor in factors.items() if factor is not None}


@dataclass(frozen=True)
class Regret:
    """What serving a bucket by one row costs, where results tell.

    Args:
        row: Serves every M from above the next smaller row's up to its own.
        slower: By M, how much slower the row's configuration is than the best one there, as a part of the best time.
            The smallest M may be that of the next smaller row, where the bucket begins.
        begin: M of the next smaller row, if there is one.
    """

    row: TableRow
    slower: Mapping[int, float]
    begin: int | None = None

    @property
    def most(self) -> float:
        """The largest of them."""
        return max(self.slower.values())

    def line(self) -> str:
        """One line for people."""
        first, *rest = sorted(self.slower.items())
        named = f"{100 * first[1]:.1f} % slower than the best at M = {first[0]}"
        named += "".join(f", {100 * part:.1f} % at M = {M}" for M, part in rest)
        subject = f"{self.row.shape} {self.row.family}"
        if self.begin not in self.slower:
            return f"{subject}: below its M it is {named}"
        return f"{subject}: it serves between M = {self.begin} and {self.row.M}, {named}; sweep an M in between"


def regrets(frame: pd.DataFrame, table: TunedTable) -> list[Regret]:
    """The regret of each row of ``table`` at the smaller M whose results hold its configuration and a winner.

    An M that has a row itself is judged as if it had none: there the bucket of the next larger row would begin. It is
    left out where no M is in between.

    Args:
        table: Rows of one device.
    """

    def larger(device: DeviceKey, shape: GemmShape) -> list[Point]:
        row = _larger_row(table, shape) if device == table.device else None
        return [] if row is None else [(row.family, row.config)]

    found: dict[TableRow, dict[int, float]] = defaultdict(dict)
    for (_, shape), slower in slowdowns(frame, larger).items():
        row = _larger_row(table, shape)
        for part in slower.values():
            if row is not None and not (shape.M == _begin(table, row) == row.M - 1):
                found[row][shape.M] = part
    ordered = sorted(found.items(), key=lambda item: item[0].key)
    return [Regret(row, slower, _begin(table, row)) for row, slower in ordered]


def _begin(table: TunedTable, row: TableRow) -> int | None:
    """M of the next smaller row: ``row`` serves above it."""
    smaller = [other.M for other in table.rows if (other.N, other.K) == (row.N, row.K) and other.M < row.M]
    return max(smaller, default=None)


def _larger_row(table: TunedTable, shape: GemmShape) -> TableRow | None:
    """The row for a larger M that serves the M behind that of ``shape``, as if it served ``shape`` too."""
    larger = [
        replace(row, serves_from=1)
        for row in table.rows
        if (row.N, row.K) == (shape.N, shape.K) and row.M > shape.M and row.least_M <= shape.M + 1
    ]
    return lookup(TunedTable(table.device, tuple(larger)), shape).row
