"""Regret inside a bucket: how far the row that serves a range of M is from the best at other M of that range."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from kernels.device import DeviceKey
from kernels.problem import GemmShape
from kernels.tables import TableRow, TunedTable, lookup
from search.winners import Point, slowdowns


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
        frame: Results with all columns.
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
    """The row for a larger M that would serve ``shape``."""
    larger = [row for row in table.rows if (row.N, row.K) == (shape.N, shape.K) and row.M > shape.M]
    return lookup(TunedTable(table.device, tuple(larger)), shape).row
