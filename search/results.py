"""Results: what a trial records, and every recorded trial as one DataFrame."""

from __future__ import annotations

import io
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.atomic_file import write_atomically
from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.spelling import instead_of
from search.columns import COLUMNS, typed_frame
from search.csv_text import csv_to_columns, frame_to_csv
from search.record import RECORD, Record, make_record
from search.studies_file import FILE_SUFFIXES

__all__ = ["COLUMNS", "RECORD", "Record", "load", "make_record", "save"]

REQUIRED = ("arch", "cu_count", "M", "N", "K", "family", "outcome")  # of a file that calls itself results


def load(path: Path | str) -> pd.DataFrame:
    """Every recorded trial under ``path``, one row each, with all ``COLUMNS``.

    Args:
        path: A results folder, a storage file or URL, a ``.parquet`` or a ``.csv`` file.

    Raises:
        InputError: Nothing there, not readable, or not results: the message names the column.
    """
    if isinstance(path, Path) or "://" not in path:
        path = Path(path)
        if path.suffix in FILE_SUFFIXES:
            return _load_file(path)
    from search.stored_trials import stored_records  # loads Optuna, which files do not need

    records = stored_records(path)
    unknown = {name for record in records for name in record} - COLUMNS.keys()
    _check_names(str(path), unknown)
    return typed_frame({name: [record.get(name) for record in records] for name in COLUMNS})


def save(frame: pd.DataFrame, path: Path) -> None:
    """Write ``frame`` as CSV or Parquet, by the suffix, in one step; ``load`` gives it back exactly.

    Raises:
        InputError: Another suffix, or a folder that cannot be written.
    """
    if path.suffix == ".csv":
        content = frame_to_csv(frame).encode()
    elif path.suffix == ".parquet":
        buffer = io.BytesIO()
        frame.to_parquet(buffer, index=False)
        content = buffer.getvalue()
    else:
        raise InputError(f"{path}: unknown suffix {path.suffix!r}; {instead_of(path.suffix, FILE_SUFFIXES)}")
    write_atomically(path, content)


def _load_file(path: Path) -> pd.DataFrame:
    try:
        content = path.read_bytes()
        columns = csv_to_columns(content.decode()) if path.suffix == ".csv" else _parquet_columns(content)
        _check_names(str(path), columns.keys() - COLUMNS.keys())
        missing = [name for name in REQUIRED if name not in columns]
        if missing:
            raise InputError(f"{path}: not results: no column {', '.join(missing)}")
        return _checked(path, typed_frame(columns))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; `inspect --to` writes one") from error
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not results ({str(error).splitlines()[0]}); a torn file? restore it") from error


def _checked(path: Path, frame: pd.DataFrame) -> pd.DataFrame:
    """``frame``, each of whose rows says for which device and shape it is and how it ended."""
    required = frame[list(REQUIRED)]
    if required.isna().any(axis=None):
        row, column = next((i, name) for name in REQUIRED for i in range(len(frame)) if pd.isna(frame[name].iloc[i]))
        raise InputError(f"{path}: row {row + 1} has no {column}; correct it or remove it")
    shapes: list[Any] = list(frame[["M", "N", "K"]].drop_duplicates().itertuples(index=False, name=None))
    for M, N, K in shapes:
        try:
            GemmShape(M, N, K)
        except ValueError as error:
            raise InputError(f"{path}: shape {M}x{N}x{K}: {error}; remove its rows") from error
    return frame


def _parquet_columns(content: bytes) -> dict[str, Any]:
    frame = pd.read_parquet(io.BytesIO(content))
    return {str(name): frame[name].array for name in frame.columns}


def _check_names(path: str, unknown: Collection[str]) -> None:
    if unknown:
        raise InputError(f"{path}: unknown column {', '.join(sorted(unknown))}; use the version that wrote it")
