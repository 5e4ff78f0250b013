"""A tuned table, or every trial, in the file format of a neighbouring project."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kernels.device import GFX950
from kernels.disk import write_atomically
from kernels.errors import InputError
from kernels.tables.file import load_table
from kernels.tables.sources import table_path
from kernels.wording import instead_of
from search.formats import FORMATS, TABLE_FORMAT, format_named
from search.formats.format import WHOLE, Old, Written, grouped
from search.results import load_all
from search.results.locks import locked
from search.results.published import trials_of
from search.terminal import naming


@dataclass(frozen=True)
class Published:
    """What was written: no file where nothing fits.

    Args:
        added: Entries that were not there.
        left_out: Lines about what the format cannot say, one a reason.
        lost: What of every row the format never says.
    """

    paths: tuple[Path, ...]
    added: int
    replaced: int
    left_out: tuple[str, ...]
    lost: str


def publish(
    name: str, *, results: Sequence[Path | str] = (), table: Path | None = None, output: Path | None = None
) -> Published:
    """Write the format ``name``, merged into the files that are there, each in one step.

    Args:
        results: What a format of trials is written from; one of tables takes none.
        table: What a format of tables is written from; default: the project's own for ``GFX950``.
        output: A file, or a folder of a format that has several files; default: in the current folder.

    Raises:
        InputError: An unknown format, a source of the other kind, one that cannot be read, or a file that cannot be
            written.
    """
    if name not in FORMATS:
        raise InputError(f"unknown format {name!r}; {instead_of(name, [TABLE_FORMAT, *FORMATS])}")
    format, write = format_named(name), _writer(name, results, table)
    fitting = write(lambda file: None)
    if not fitting.added:
        return Published((), 0, 0, tuple(grouped(fitting.left_out)), format.lost)
    place = output or Path(format.file)
    if not format.file:
        _make(place)
    with locked([place if format.file else place / name]):
        written = write(lambda file: _text(_file(place, file)))
        paths = {_file(place, file): text for file, text in written.files.items()}
        for path, text in paths.items():
            write_atomically(path, text.encode())
    return Published(tuple(paths), written.added, written.replaced, tuple(grouped(written.left_out)), format.lost)


def _writer(name: str, results: Sequence[Path | str], table: Path | None) -> Callable[[Old], Written]:
    """Writes the format ``name`` of what is to be published."""
    format = format_named(name)
    if format.write_trials is not None:
        if table is not None:
            raise InputError(f"--format {name} writes trials: leave out --table, name --results")
        return partial(format.write_trials, list(trials_of(load_all(results or ["results"]))))
    if results:
        raise InputError(f"--format {name} writes a table: export the results into one, then give --table")
    assert format.write_table is not None
    with naming("--table"):
        return partial(format.write_table, load_table(table or table_path(GFX950)))


def _file(place: Path, file: str) -> Path:
    return place if file == WHOLE else place / file


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); name another --output") from error


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error}); restore it, or name another --output") from error
