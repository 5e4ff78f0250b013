"""Rows that serve ranges of M, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from kernels.wording import counted
from search.report.closing import compact
from search.results.ranges import RangeRow
from search.terminal import TextTable, print_lines, print_table

HEADER = ("N", "K", "serves M", "family", "configuration", "worst regret")


def print_ranges(ranges: Sequence[RangeRow], console: Console) -> None:
    """Print what each row serves and the most that it loses, and how many rows stand for how many M."""
    rows = tuple(map(_cells, ranges))
    if rows:
        print_table(TextTable(HEADER, rows, right=frozenset(("N", "K", "worst regret"))), console)
    print_lines([f"{counted(len(ranges), 'row')} for M at {sum(len(row.Ms) for row in ranges)} rungs"], console)


def _cells(row: RangeRow) -> tuple[str, ...]:
    span = str(row.Ms[0]) if len(row.Ms) == 1 else f"{row.Ms[0]} to {row.Ms[-1]}"
    return str(row.shape.N), str(row.shape.K), span, row.family, compact(row.config), f"{100 * row.worst:.1f} %"
