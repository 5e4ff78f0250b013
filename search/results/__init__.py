"""Results: every recorded trial as one DataFrame."""

from __future__ import annotations

import csv
import io
import zipfile
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from kernels.disk import write_atomically
from kernels.errors import InputError
from kernels.wording import instead_of
from search.evaluation import Value
from search.formats import PUBLISHED_SUFFIXES, read_published
from search.results.checks import REQUIRED, check_results
from search.results.columns import COLUMNS, FLAG, INTEGER, NUMBER, TEXT, UNITS, typed_frame
from search.results.published import LEFT_OUT, frame_of
from search.results.studies import BUNDLE_RESULTS, BUNDLE_SUFFIX, FILE_SUFFIXES, STUDIES_FILE, holds_studies

PLACE = "place"  # column of where a trial comes from, if several places are read
DASHBOARD_SUFFIX = ".db"
INDEX = {"", "Unnamed: 0", "__index_level_0__"}  # a column that pandas made of an index


def load(path: Path | str, studies: Collection[str] | None = None) -> pd.DataFrame:
    """Every recorded trial under ``path``, one row each, with all ``COLUMNS``.

    Args:
        path: A results folder, a storage file or URL, a ``.parquet`` or a ``.csv`` file, a bundle; or a file of one of
            ``search.formats``, or a folder of such files. What is left out of these is in ``attrs["left_out"]``.
            Columns of your own are kept, behind ours.
        studies: Of a storage, the studies to read; None reads all.

    Raises:
        InputError: No place, nothing there, not readable, or not results: the message names row and column.
    """
    if not str(path).strip():
        raise InputError("no place of results: an empty variable? name a folder, a file or a URL")
    if isinstance(path, Path) or "://" not in path:
        path = Path(path)
        published = None if _is_ours(path) else read_published(path)
        if published is not None:
            return frame_of(published, path)
        if path.suffix in (*FILE_SUFFIXES, BUNDLE_SUFFIX):
            return _load_file(path)
    from search.results.stored import stored_frame  # loads Optuna, which files do not need

    frame = stored_frame(path, studies)
    check_results(frame, str(path))
    return frame


def load_all(places: Sequence[Path | str]) -> pd.DataFrame:
    """The trials of several places, as :func:`load` gives them; the column ``place`` says where each comes from.

    Of one place there is no such column.

    Raises:
        InputError: As :func:`load`, or a place that is named twice.
    """
    twice = [str(place) for place, count in Counter(map(str, places)).items() if count > 1]
    if twice:
        raise InputError(f"--results names {', '.join(twice)} twice; name each place once")
    frames = [load(place) for place in places]
    if len(frames) == 1:
        return frames[0]
    placed = [frame.assign(**{PLACE: str(place)}) for place, frame in zip(places, frames, strict=True)]
    whole = pd.concat(placed, ignore_index=True).astype({PLACE: TEXT})
    whole.attrs = {"units": dict(UNITS), LEFT_OUT: [line for one in frames for line in one.attrs.get(LEFT_OUT, ())]}
    return whole


def asked_for(place: Path | str) -> list[str]:
    """Shapes that the newest sweep was asked for that wrote to ``place``; none where it keeps no studies."""
    if not holds_studies(place):
        return []
    from search.results.stored import asked_shapes  # loads Optuna, which files do not need

    return asked_shapes(place)


def _is_ours(path: Path) -> bool:
    """Whether ``path`` holds studies, or a table with our columns."""
    if path.is_dir():
        return (path / STUDIES_FILE).exists()
    if path.suffix != ".csv" or not path.is_file():
        return path.suffix not in PUBLISHED_SUFFIXES
    with path.open("rb") as file:
        header = file.readline(1 << 16).decode(errors="replace")
    return "outcome" in header.strip().split(",")


def save(frame: pd.DataFrame, path: Path) -> None:
    """Write ``frame`` as CSV or Parquet, by the suffix, in one step; ``load`` gives it back exactly.

    As ``.db`` it becomes a storage for Optuna's own tools, which holds less, see :mod:`search.results.dashboard`.

    Raises:
        InputError: Another suffix, or a folder that cannot be written.
    """
    if path.suffix == ".csv":
        content = frame_to_csv(frame).encode()
    elif path.suffix == ".parquet":
        content = parquet_bytes(frame)
    elif path.suffix == DASHBOARD_SUFFIX:
        from search.results.dashboard import write_studies  # loads Optuna, which files do not need

        write_studies(frame, path)
        return
    else:
        suffixes = (*FILE_SUFFIXES, DASHBOARD_SUFFIX)
        raise InputError(f"{path}: unknown suffix {path.suffix!r}; {instead_of(path.suffix, suffixes)}")
    write_atomically(path, content)


def parquet_bytes(frame: pd.DataFrame) -> bytes:
    """Parquet whose fields say their unit in the metadata key ``unit``."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    fields = [
        field.with_metadata({"unit": UNITS[field.name]}) if field.name in UNITS else field for field in table.schema
    ]
    buffer = io.BytesIO()
    pq.write_table(table.cast(pa.schema(fields, table.schema.metadata)), buffer)
    return buffer.getvalue()


def _load_file(path: Path) -> pd.DataFrame:
    try:
        content = _bundled(path) if path.suffix == BUNDLE_SUFFIX else path.read_bytes()
        columns = csv_to_columns(content.decode()) if path.suffix == ".csv" else _parquet_columns(content)
        missing = [name for name in REQUIRED if name not in columns]
        if missing:
            raise InputError(f"{path}: not results: no column {', '.join(missing)}")
        frame = typed_frame(columns)
        check_results(frame, str(path))
        for name in [name for name in columns if name not in COLUMNS and name not in INDEX]:
            frame[name] = columns[name]
        return frame
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; `inspect --to` writes one") from error
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: not results ({str(error).splitlines()[0]}); a torn file? restore it") from error


def _bundled(path: Path) -> bytes:
    """The results in a bundle.

    Raises:
        ValueError: It is no bundle.
    """
    try:
        with zipfile.ZipFile(path) as bundle:
            return bundle.read(BUNDLE_RESULTS)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"no bundle of `report --bundle`: {error}") from error


def _parquet_columns(content: bytes) -> dict[str, Any]:
    frame = pd.read_parquet(io.BytesIO(content))
    return {str(name): frame[name].array for name in frame.columns}


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
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        raise ValueError(f"column {', '.join(twice)} is there twice")
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
