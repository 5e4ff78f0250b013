"""AITER's CSV of shapes that wait for its tuner: M, N, K."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Final

from kernels.errors import InputError
from kernels.tables.rows import TunedTable
from search.formats.format import WHOLE, Format, Old, Reading, Written

HEADER: Final = ["M", "N", "K"]


def recognises(path: Path, text: str) -> bool:
    """Whether the file is a list of shapes without times."""
    header = {cell.strip().upper() for cell in text.partition("\n")[0].split(",")}
    return path.suffix == ".csv" and set(HEADER) <= header and not header & {"US", "OUTCOME"}


def read(path: Path, text: str) -> Reading:
    """Refuse: shapes are no results.

    Raises:
        InputError: Always; the message says what the file is for.
    """
    raise InputError(f"{path}: holds shapes and no results; `sweep --shapes {path}` tunes them")


def write_table(table: TunedTable, old: Old) -> Written:
    """The shapes of the table, after those that are listed already."""
    text = old(WHOLE) or "M,N,K\n"
    header, *lines = text.splitlines()
    names = [cell.strip() for cell in header.split(",")]
    known = {_shape(dict(zip(names, row, strict=False))) for row in csv.reader(io.StringIO("\n".join(lines))) if row}
    shapes = dict.fromkeys((str(row.M), str(row.N), str(row.K)) for row in table.rows)
    new = [",".join(dict(zip(HEADER, shape, strict=True)).get(name, "") for name in names)
           for shape in shapes if shape not in known]  # fmt: skip
    return Written({WHOLE: "\n".join((header, *lines, *new)) + "\n"}, len(new))


def _shape(record: dict[str, str]) -> tuple[str, str, str]:
    M, N, K = (record.get(name, "").strip() for name in HEADER)
    return M, N, K


FORMAT = Format("untuned_gemm.csv", recognises, read, write_table, holds_results=False)
