"""How far from its own M a row may serve: as long as the default, which needs no row, is not faster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pandas as pd

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.families.defaults import default_choice
from kernels.problem import GemmShape
from kernels.tables.rows import TableRow, TunedTable
from search.evaluation import Point
from search.gfx950.machine import Machine, machine_of
from search.gfx950.model.families import estimate_us, is_modelled
from search.results.winners import slowdowns

GREATEST_M: Final = 1 << 17  # where a row that is still ahead ends: more rows than a prefill batch has
STEPS: Final = 4  # halvings between the last M that is right and the first that is wrong: within 1/16 of it


@dataclass(frozen=True)
class AgainstDefault:
    """Rows of one device against the family's default: by measurement where there is one, else by the formula.

    Args:
        measured: By shape, how much slower than its winner each point is that was measured there.
    """

    device: DeviceKey
    measured: Mapping[GemmShape, Mapping[Point, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, frame: pd.DataFrame, table: TunedTable) -> AgainstDefault:
        """Comparison of the rows of ``table`` by what ``frame``, results with all columns, holds."""

        def points(device: DeviceKey, shape: GemmShape) -> list[Point]:
            rows = table.layer(shape.N, shape.K)
            return [*((row.family, row.config) for row in rows), default_choice(shape, device)]

        found = slowdowns(frame[(frame["evidence"] == "measured").fillna(False)], points)
        return cls(table.device, {shape: times for (device, shape), times in found.items() if device == table.device})

    def no_slower(self, row: TableRow, M: int) -> bool | None:
        """Whether ``row`` can serve M and is no slower than the default there; None where nothing tells."""
        shape = GemmShape(M, row.N, row.K)
        if row.config.check(shape, self.device) is not None:
            return False
        default, times = default_choice(shape, self.device), self.measured.get(shape, {})
        if default in times and (row.family, row.config) in times:
            return times[row.family, row.config] <= times[default]
        machine = machine_of(self.device)
        if machine is None or not is_modelled(row.family):
            return None
        return _estimate_us(row.family, row.config, shape, machine) <= _estimate_us(*default, shape, machine)

    def with_reach(self, row: TableRow) -> TableRow:
        """``row`` with the least and the greatest M that it serves; an end of which nothing tells stays as it is."""
        others = {shape.M for shape in self.measured if (shape.N, shape.K) == (row.N, row.K)}
        ladder = {row.M << k for k in range(1, 18)} | {row.M >> k for k in range(1, row.M.bit_length())} | others
        first = self._end(row, sorted((M for M in ladder if M < row.M), reverse=True))
        last = self._end(row, sorted(M for M in ladder if row.M < M <= GREATEST_M))
        return replace(row, serves_from=first or row.serves_from, serves_to=last or row.serves_to)

    def _end(self, row: TableRow, ladder: Collection[int]) -> int | None:
        """The last M on the way along ``ladder`` at which the row is no slower; None where nothing tells."""
        right = None
        for M in ladder:
            verdict = self.no_slower(row, M)
            if verdict is False:
                return self._between(row, right or row.M, M)
            if verdict:
                right = M
        return right

    def _between(self, row: TableRow, right: int, wrong: int) -> int:
        for _ in range(STEPS):
            middle = (right + wrong) // 2
            if middle in (right, wrong):
                break
            right, wrong = (middle, wrong) if self.no_slower(row, middle) else (right, middle)
        return right


def _estimate_us(family: str, config: KernelConfig, shape: GemmShape, machine: Machine) -> float:
    """The time by the formula of the knobs alone, in microseconds."""
    return float(estimate_us(family, pd.DataFrame([config.to_dict()]), shape, machine)[0])
