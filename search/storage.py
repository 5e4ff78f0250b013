"""Where studies live: SQLite or a journal file in a folder, or any database that Optuna reaches by URL."""

from __future__ import annotations

from pathlib import Path

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from kernels.errors import InputError

STUDIES_FILE = "studies.db"  # in a results folder
JOURNAL_SUFFIXES = (".log", ".journal")
SQLITE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
BUSY_TIMEOUT_S = 60  # how long a writer waits for another one


def open_storage(location: Path | str, *, create: bool) -> BaseStorage:
    """Optuna's storage at ``location``.

    Args:
        location: A results folder (its ``studies.db``), a ``.db``, ``.log`` or ``.journal`` file, or a URL.
        create: Make a file, and its folder, that does not exist. Tables of a database are made either way.

    Raises:
        InputError: Nothing there and not ``create``, not writable, not a storage, unreachable, no driver.
    """
    if "://" in str(location):
        return _database(str(location), _without_password(str(location)))
    path = storage_file(Path(location))
    _prepare(path, create)
    if path.suffix in JOURNAL_SUFFIXES:
        return _journal(path)
    return _database(f"sqlite:///{path}", str(path))


def _without_password(url: str) -> str:
    """``url`` as it may be shown."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return f"{url.partition('://')[0]}://..."


def storage_file(path: Path) -> Path:
    """The storage file that ``path`` is, or that it has as a results folder."""
    return path if path.suffix in (*JOURNAL_SUFFIXES, *SQLITE_SUFFIXES) else path / STUDIES_FILE


def _prepare(path: Path, create: bool) -> None:
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
        elif not path.is_file():
            raise InputError(f"{path}: no results; run `sweep` first, or name its folder with --results")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); name another folder with --results") from error


def _database(url: str, name: str) -> BaseStorage:
    options = {"connect_args": {"timeout": BUSY_TIMEOUT_S}} if url.startswith("sqlite") else {}
    try:
        return RDBStorage(url, engine_kwargs=options)
    except (SQLAlchemyError, StorageInternalError, ImportError, RuntimeError, ValueError) as error:
        cause = str(error.__cause__ or error).strip().splitlines()[0]
        raise InputError(f"{name}: not a storage that Optuna can open ({cause}); check --storage") from error


def _journal(path: Path) -> BaseStorage:
    try:
        return JournalStorage(JournalFileBackend(str(path)))
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise InputError(f"{path}: not a journal that Optuna can open ({error}); check --storage") from error
