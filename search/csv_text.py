r"""CSV that keeps what CSV cannot say: an empty cell is NA, ``""`` the empty text, ``\`` escapes a leading one.

Numbers are written with all their digits, so that text and DataFrame convert into each other exactly.
"""

from __future__ import annotations

import csv
import io
from typing import Any

import pandas as pd

from search.columns import COLUMNS, FLAG, INTEGER, NUMBER, TEXT
from search.evaluate import Value

EMPTY = '""'
_FLAGS = {"True": True, "False": False}


def frame_to_csv(frame: pd.DataFrame) -> str:
    """Header and one line a row."""
    cells = [[_write(value) for value in frame[name].array] for name in frame.columns]
    text = io.StringIO(newline="")
    plain = csv.writer(text, lineterminator="\n")
    quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)  # before Python 3.13 "\r" is not quoted
    plain.writerow(frame.columns)
    for line in zip(*cells, strict=True):
        (quoted if any("\r" in cell for cell in line) else plain).writerow(line)
    return text.getvalue()


def csv_to_columns(text: str) -> dict[str, list[Value]]:
    """Values by column; None where a cell is empty. Unknown columns hold text.

    Raises:
        ValueError: No header, a line with another number of cells, or a cell that is not of its column's dtype.
    """
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise ValueError(f"not CSV: {error}") from error
    if not lines:
        raise ValueError("holds nothing")
    header = lines[0]
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(header):
            raise ValueError(f"row {number} has {len(line)} cells, the header {len(header)}")
    return {name: _column(name, [line[i] for line in lines[1:]]) for i, name in enumerate(header)}


def _write(value: Any) -> str:
    if value is pd.NA or value is None:
        return ""
    if not isinstance(value, str):
        return repr(value.item()) if hasattr(value, "item") else repr(value)
    if value == "":
        return EMPTY
    return "\\" + value if value[0] in '"\\' else value


def _column(name: str, cells: list[str]) -> list[Value]:
    dtype = COLUMNS.get(name, TEXT)
    try:
        return [None if cell == "" else _read(cell, dtype) for cell in cells]
    except (KeyError, ValueError) as error:
        raise ValueError(f"column {name} is not {dtype}: {error}") from error


def _read(cell: str, dtype: str) -> Value:
    if dtype == INTEGER:
        return int(cell)
    if dtype == NUMBER:
        return float(cell)
    if dtype == FLAG:
        return _FLAGS[cell]
    if cell == EMPTY:
        return ""
    return cell[1:] if cell[0] == "\\" else cell
