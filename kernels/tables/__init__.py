"""Tuned tables; the door chooses the configuration that serves a shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import triton

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.families.defaults import default_choice
from kernels.problem import GemmShape
from kernels.tables.rows import OLDEST_TRITON, TableRow, TunedTable

How = Literal["exact", "bucket", "above", "miss"]


@dataclass(frozen=True)
class Lookup:
    """Which row serves a shape, and why.

    Args:
        row: None where ``how`` is ``miss``.
        how: ``exact``: the M asked for; ``bucket``: a larger M; ``above``: a smaller M; ``miss``.
    """

    row: TableRow | None
    how: How
    explanation: str


@dataclass(frozen=True)
class Choice:
    """What serves a shape, and why.

    Args:
        lookup: The table's answer; its ``row`` is None where the default serves.
    """

    family: str
    config: KernelConfig
    lookup: Lookup


def choose(
    table: TunedTable | None, shape: GemmShape, device: DeviceKey, *, deterministic_only: bool = False
) -> Choice:
    """What serves ``shape`` on ``device``: the row that :func:`lookup` finds, or the default where there is none."""
    if table is None:
        found = Lookup(None, "miss", f"no table for {device}")
    else:
        found = lookup(table, shape, deterministic_only=deterministic_only)
    if found.row is not None:
        return Choice(found.row.family, found.row.config, found)
    return Choice(*default_choice(shape, device), found)


def lookup(table: TunedTable, shape: GemmShape, *, deterministic_only: bool = False) -> Lookup:
    """The row with the smallest M not below the asked one for its (N, K), else the one with the largest M below it.

    A row serves from its ``serves_from`` to its ``serves_to`` only: between and beyond, the default is faster. Where
    one M has a deterministic and a faster non-deterministic row, the faster serves unless
    ``deterministic_only``. A row whose configuration cannot run ``shape`` is passed over, and so is one that the
    Triton here is too old for.
    """
    found = table.layer(shape.N, shape.K)
    buildable = [row for row in found if not row.is_too_new]
    usable = [row for row in buildable if row.deterministic or not deterministic_only]
    legal = [row for row in usable if row.config.check(shape, table.device) is None]
    near = [row for row in legal if row.least_M <= shape.M <= row.greatest_M]
    if not near:
        return Lookup(None, "miss", _why_missed(shape, found, usable, legal))
    row = min(near, key=lambda row: (row.M < shape.M, abs(row.M - shape.M), row.rank))
    return _hit(row, shape, lower=max((r.M for r in legal if r.M < row.M), default=0))


def _hit(row: TableRow, shape: GemmShape, lower: int) -> Lookup:
    place = f"N = {shape.N}, K = {shape.K}"
    if row.M == shape.M:
        return Lookup(row, "exact", f"the row for M = {row.M}, {place}")
    if row.M > shape.M:
        return Lookup(
            row, "bucket", f"the row for M = {row.M} serves {max(lower + 1, row.least_M)}..{row.M} at {place}"
        )
    return Lookup(row, "above", f"the row for M = {row.M} serves up to M = {row.greatest_M} at {place}")


def _why_missed(shape: GemmShape, found: Sequence[TableRow], usable: list[TableRow], legal: list[TableRow]) -> str:
    cure = f"sweep {shape} and export"
    if legal:
        rows = ", ".join(f"M = {row.M} ({row.least_M}..{row.greatest_M})" for row in _around(legal, shape.M))
        return (
            f"M = {shape.M} is out of the reach of the rows next to it at N = {shape.N}, K = {shape.K}: {rows}; {cure}"
        )
    if usable:
        return f"no row for N = {shape.N}, K = {shape.K} can run M = {shape.M}; {cure}"
    if any(row.is_too_new for row in found):
        oldest = ".".join(map(str, OLDEST_TRITON))
        return (
            f"the rows for N = {shape.N}, K = {shape.K} were made with Triton {found[0].made.triton}, and "
            f"{triton.__version__} here makes wrong code of some; use {oldest} or newer"
        )
    if found:
        return f"no row for N = {shape.N}, K = {shape.K} is deterministic; {cure}"
    return f"no row for N = {shape.N}, K = {shape.K}; {cure}"


def _around(rows: list[TableRow], M: int) -> list[TableRow]:
    """The rows next to ``M`` below and above it."""
    below = max((row for row in rows if row.M < M), key=lambda row: row.M, default=None)
    above = min((row for row in rows if row.M > M), key=lambda row: row.M, default=None)
    return [row for row in (below, above) if row is not None]
