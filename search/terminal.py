"""What every command says on a terminal: tables, errors of one line, Ctrl-C."""

from __future__ import annotations

import errno
import os
import signal
import sys
import textwrap
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Literal, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from kernels.errors import InputError
from kernels.wording import printable

BETWEEN = 2  # blanks between two drawn columns, and in all at both edges
LONGEST_WORD = 24  # characters; a longer one, such as a path within a sentence, may be cut where a terminal is narrow


@dataclass(frozen=True)
class TextTable:
    """Cells of a table.

    Args:
        rows: Cells, one for each column.
        right: Columns that are aligned to the right.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = field(default_factory=frozenset)

    def __post_init__(self) -> None:
        """Take the power over the terminal from what cells say."""
        object.__setattr__(self, "rows", tuple(tuple(map(printable, row)) for row in self.rows))

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

    def drawn(self, width: int) -> Table:
        """Rich table of at most ``width`` characters; sentences wrap at spaces, no number and no name is cut.

        Where that is too little, the last columns are missing, see :meth:`shown`.
        """
        table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
        widths = self._fitted(self.shown(width), width)
        for name, most in zip(self.header, widths, strict=False):
            justify: Literal["left", "right"] = "right" if name in self.right else "left"
            table.add_column(_wrapped(name, most), justify=justify, min_width=most, no_wrap=True)
        for row in self.rows:
            table.add_row(*(_wrapped(cell, most) for cell, most in zip(row, widths, strict=False)))
        return table

    def left_out(self, width: int) -> list[str]:
        """Names of the columns that are missing in ``width`` characters and hold anything."""
        missing = range(self.shown(width), len(self.header))
        return [self.header[index] or "the last one" for index in missing if any(self._column(index))]

    def shown(self, width: int) -> int:
        """How many columns, from the left, fit into ``width`` characters; at least one."""
        least = [self._least(index) for index in range(len(self.header))]
        fitting = [count for count in range(1, len(least) + 1) if sum(least[:count]) + BETWEEN * count <= width]
        return max(fitting, default=1)

    def _fitted(self, count: int, width: int) -> list[int]:
        """Widths of the first columns; the widest ones give way until all fit."""
        widths = [max(map(len, self._column(index))) for index in range(count)]
        least = [self._least(index) for index in range(count)]
        while sum(widths) + BETWEEN * count > width:
            wide = [index for index in range(count) if widths[index] > least[index]]
            if not wide:
                return widths if count > 1 else [max(1, width - BETWEEN)]
            widths[max(wide, key=widths.__getitem__)] -= 1
        return widths

    def _least(self, index: int) -> int:
        """The width below which a word of the column would be cut, or a cell that is no sentence."""
        name, *cells = self._column(index)
        if name in self.right or not any(" " in cell for cell in cells):
            return max(map(len, (*name.split(), *cells)))
        words = [min(len(word), LONGEST_WORD) for cell in cells for word in cell.split()]
        return max((*map(len, name.split()), *words))

    def _column(self, index: int) -> list[str]:
        return [line[index] for line in (self.header, *self.rows)]


def _wrapped(text: str, width: int) -> str:
    """``text`` in lines of ``width``, broken at spaces."""
    return "\n".join(textwrap.wrap(text, max(1, width), break_on_hyphens=False))


def output_console(file: TextIO | None = None) -> Console:
    """Console on ``file`` (default: the standard output) that prints text as it is."""
    return Console(file=file or sys.stdout, highlight=False, markup=False)


def print_lines(lines: Iterable[str], console: Console, indent: int = 0) -> None:
    """Print ``lines``; on a terminal they break at spaces, and what follows begins ``indent`` characters in.

    A word that is longer than a line stays whole, so that a path can be copied.
    """
    for line in lines:
        if console.is_terminal:
            line = textwrap.fill(
                line, console.width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
            )
        console.print(line, soft_wrap=True)


def print_table(table: TextTable, console: Console) -> None:
    """Print ``table``: drawn on a terminal, with a line about columns that have no room; plain in a pipe."""
    if not console.is_terminal:
        console.print(table.plain(), soft_wrap=True)
        return
    console.print(table.drawn(console.width))
    missing = table.left_out(console.width)
    if missing:
        console.print(f"no room here for {', '.join(missing)}: widen the terminal or pipe the output", soft_wrap=False)


@contextmanager
def stop_on_interrupt() -> Iterator[threading.Event]:
    """Event that the first Ctrl-C sets; the second one raises KeyboardInterrupt as usual.

    Outside of the main thread, which alone receives signals, the event is never set.
    """
    stop = threading.Event()

    def wish(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = signal.signal(signal.SIGINT, wish)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def naming(option: str) -> Iterator[None]:
    """Begin the message of an InputError with the option that it is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{option} {error}") from error


EXIT_INPUT = 2  # a usage or input error
EXIT_INTERRUPTED = 130  # by Ctrl-C, as shells have it: 128 and the number of SIGINT


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn Ctrl-C, an InputError, or a full output into a line and the end of the program; another error is a bug.

    Raises:
        SystemExit: With ``EXIT_INPUT``, or ``EXIT_INTERRUPTED``.
    """
    try:
        yield
        if sys.stdout is not None:  # closed, by >&-
            sys.stdout.flush()
    except InputError as error:
        print_lines([f"error: {printable(' '.join(str(error).split()))}"], output_console(sys.stderr))
        raise SystemExit(EXIT_INPUT) from error
    except KeyboardInterrupt as error:
        behind = "\n" if sys.stderr.isatty() else ""  # the ^C that a terminal shows
        print("; ".join([f"{behind}interrupted", *map(str, error.args)]), file=sys.stderr)
        raise SystemExit(EXIT_INTERRUPTED) from error
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:  # not of the output: a bug
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would fail again at the end
        print(f"error: the output cannot be written ({error.strerror}); send it elsewhere", file=sys.stderr)
        raise SystemExit(EXIT_INPUT) from error
