"""Two sets of winners side by side, in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from search.report.closing import compact
from search.results.against import Best, Comparison, signed, total_line
from search.terminal import TextTable, print_lines, print_table

NUMBERS = ("before us", "now us", "change")
HEADER = ("shape", *NUMBERS, "verdict", "before", "now", "confidence")


def print_comparison(comparisons: Sequence[Comparison], console: Console) -> None:
    """Print a row for each shape that both have, and the sum in one line."""
    if comparisons:
        rows = tuple(cells(one) for one in comparisons)
        several = len({one.ours.device for one in comparisons}) > 1
        devices = tuple(
            (f"{one.ours.device} {one.ours.shape}" if several else str(one.ours.shape)) for one in comparisons
        )
        named = tuple((device, *row) for device, row in zip(devices, rows, strict=True))
        print_table(TextTable(HEADER, named, right=frozenset(NUMBERS)), console)
    print_lines([total_line(comparisons)], console)


def cells(one: Comparison) -> tuple[str, ...]:
    """What both say of a shape, below :data:`HEADER` but for the shape itself."""
    return (
        f"{one.theirs.cost_us:.2f}", f"{one.ours.cost_us:.2f}", _change(one), one.verdict, _words(one.theirs),
        "the same" if one.is_same else _words(one.ours), one.confidence,
    )  # fmt: skip


def _change(one: Comparison) -> str:
    return "" if one.verdict == "not comparable" else signed(one.change)


def _words(best: Best) -> str:
    return f"{best.family} {compact(best.config)}"
