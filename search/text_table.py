"""Tables of text: drawn on a terminal, aligned plain lines in a pipe."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class TextTable:
    """Cells of a table.

    Args:
        header: Names of the columns.
        rows: Cells, one for each column.
        right: Columns that are aligned to the right.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = field(default_factory=frozenset)

    def plain(self) -> str:
        """Aligned lines, two spaces between columns, none at the end of a line."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        return "\n".join(self._line(line, widths) for line in (self.header, *self.rows))

    def _line(self, cells: tuple[str, ...], widths: list[int]) -> str:
        aligned = [
            cell.rjust(width) if name in self.right else cell.ljust(width)
            for name, cell, width in zip(self.header, cells, widths, strict=True)
        ]
        return "  ".join(aligned).rstrip()

    def drawn(self) -> Table:
        """Rich table that folds to the width of the terminal."""
        table = Table(box=box.SIMPLE, pad_edge=False)
        for name in self.header:
            table.add_column(name, justify="right" if name in self.right else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table


def output_console(file: TextIO | None = None) -> Console:
    """Console on ``file`` (default: the standard output) that prints text as it is."""
    return Console(file=file or sys.stdout, highlight=False, markup=False)


def print_table(table: TextTable, console: Console) -> None:
    """Print ``table``: drawn on a terminal, plain in a pipe."""
    if console.is_terminal:
        console.print(table.drawn())
    else:
        console.print(table.plain(), soft_wrap=True)
