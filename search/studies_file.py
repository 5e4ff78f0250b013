"""Which file holds the studies of a results folder or storage, and who may write it: one sweep at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from kernels.errors import InputError

STUDIES_FILE = "studies.db"  # in a results folder
JOURNAL_SUFFIXES = (".log", ".journal")
SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
FILE_SUFFIXES = (".parquet", ".csv")  # of results as files, which hold no studies
CURE = "name another folder with --results"


def studies_file(location: Path | str) -> Path | None:
    """The file in which the studies of ``location`` are; None where a database server or the memory has them.

    Args:
        location: A results folder (its ``studies.db``), a ``.db``, ``.log`` or ``.journal`` file, or a URL.

    Raises:
        InputError: A file of results, or a file where a folder must be.
    """
    if "://" in str(location):
        return _file_of_url(str(location))
    path = Path(location)
    if path.suffix in FILE_SUFFIXES:
        raise InputError(f"{path}: is a file of results, which keeps no studies; {CURE}, or a .db file with --storage")
    if path.suffix in (*JOURNAL_SUFFIXES, *SQLITE_SUFFIXES):
        return path
    if path.is_file():
        raise InputError(f"{path}: is a file, not a folder of results; {CURE}, or a .db file with --storage")
    return path / STUDIES_FILE


def _file_of_url(url: str) -> Path | None:
    from sqlalchemy import make_url  # here, because it takes long to load and most locations are paths
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return None  # opening it says what is wrong
    if parsed.get_backend_name() != "sqlite" or parsed.database in (None, "", ":memory:"):
        return None
    return Path(str(parsed.database).removeprefix("file:"))


@contextmanager
def only_writer(location: Path | str) -> Iterator[None]:
    """Hold the lock of the studies' file, by whatever name it is given; a database server has locks of its own.

    Raises:
        InputError: Another sweep holds it, the folder cannot be written, or :func:`studies_file` refuses.
    """
    path = studies_file(location)
    if path is None:
        yield
        return
    real = path.resolve()
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(real.with_name(f".{real.name}.lock"), timeout=0)
        lock.acquire()
    except Timeout as error:
        raise InputError(f"{path}: another sweep is writing here; wait for it or use another --results") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); {CURE}") from error
    try:
        yield
    finally:
        lock.release()
