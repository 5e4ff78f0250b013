"""Where studies live: SQLite or a journal file in a folder, or any database that Optuna reaches by URL."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any, TypeGuard

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import get_lock_file
from optuna.trial import FrozenTrial
from sqlalchemy import Connection, Engine, create_engine, inspect, make_url, text
from sqlalchemy.exc import ArgumentError, DatabaseError, SQLAlchemyError
from sqlalchemy.orm import Session

from kernels.disk import DISTRIBUTION
from kernels.errors import InputError
from search.results.studies import CURE, JOURNAL_SUFFIXES, studies_file

TAIL_BYTES = 1 << 16  # read at once from the end of a journal
LINE_START = b'{"op_code":'  # of every line of a journal, Optuna 4 and 5
BUSY_TIMEOUT_S = 60  # how long a writer waits for another one
CREATION_TRIES = 40  # more than Optuna 5 has tables, indexes and rows of versions, of which it makes 17
CREATION_PAUSE_S = 0.1  # at most, between two tries
LAST_CREATED = "alembic_version"  # table whose row Optuna adds when all the others are there
NO_RESULTS_YET = "no results yet; wait for the sweep that is starting, or run `sweep` first"


def open_storage(location: Path | str, *, create: bool) -> BaseStorage:
    """Optuna's storage at ``location``.

    Args:
        location: As :func:`search.results.studies.studies_file` takes it.
        create: Make a file, its folder and the tables of a database where they do not exist; any number of processes
            may do so at once. Otherwise nothing is written.

    Raises:
        InputError: Nothing (yet) there and not ``create``, not writable, not a storage, unreachable, no driver.
    """
    path = studies_file(location)
    if path is not None:
        _prepare(path, create)
    if _is_journal(path, location):
        return _journal(path)
    url, name = _address(location, path)
    options = _options(url)
    with _naming(url, name):
        if _has_tables(create_engine(url, **options)):
            return RDBStorage(url, options, skip_table_creation=True)
        if create or (path is None and url.startswith("sqlite")):  # without a file it is new each time
            return _with_new_tables(url, options)
    raise InputError(f"{name}: {NO_RESULTS_YET}")


def open_to_read(location: Path | str) -> Engine | BaseStorage:
    """What holds the studies at ``location``: a journal, or a database without what Optuna loads to write there.

    Raises:
        InputError: As :func:`open_storage`, which creates nothing.
    """
    path = studies_file(location)
    if path is not None:
        _prepare(path, create=False)
    if _is_journal(path, location):
        return _journal(path)
    url, name = _address(location, path)
    with _naming(url, name):
        engine = create_engine(url, **_options(url))
        if _has_tables(engine):
            return engine
    raise InputError(f"{name}: {NO_RESULTS_YET}")


def _is_journal(path: Path | None, location: Path | str) -> TypeGuard[Path]:
    return path is not None and "://" not in str(location) and path.suffix in JOURNAL_SUFFIXES


def _address(location: Path | str, path: Path | None) -> tuple[str, str]:
    """URL of a database, and its name for people."""
    if path is None or "://" in str(location):
        return str(location), _without_password(str(location))
    return f"sqlite:///{path}", str(path)


def _options(url: str) -> dict[str, Any]:
    """Of SQLAlchemy; a server may start again."""
    return {"connect_args": {"timeout": BUSY_TIMEOUT_S}} if url.startswith("sqlite") else {"pool_pre_ping": True}


def _without_password(url: str) -> str:
    """``url`` as it may be shown."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return f"{url.partition('://')[0]}://..."


def _prepare(path: Path, create: bool) -> None:
    try:
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("ab").close()
        elif not path.is_file():
            raise InputError(f"{path}: no results; run `sweep` first, or name the folder or the file that has them")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); {CURE}") from error


@contextmanager
def _naming(url: str, name: str) -> Iterator[None]:
    """What cannot be opened is an InputError."""
    try:
        yield
    except (SQLAlchemyError, StorageInternalError, ImportError, RuntimeError, ValueError) as error:
        cause = str(error.__cause__ or error).strip().splitlines()[0]
        if isinstance(error, ModuleNotFoundError) and url.startswith("postgresql"):
            cause = f"its driver {error.name} is not installed: pip install '{DISTRIBUTION}[postgres]'"
        raise InputError(f"{name}: not a storage that Optuna can open ({cause}); check --storage") from error


def _has_tables(engine: Engine) -> bool:
    """Whether the database has all of Optuna's tables; it is only read."""
    try:
        with engine.connect() as connection:
            if not inspect(connection).has_table(LAST_CREATED):
                return False
            return connection.execute(text(f"SELECT version_num FROM {LAST_CREATED}")).first() is not None
    finally:
        engine.dispose()


def _with_new_tables(url: str, options: Mapping[str, Any]) -> BaseStorage:
    """The storage once its tables are made, by this process or by others that do so at the same time.

    Optuna looks which tables there are and makes the rest, and fails on one that another process made in between.
    Each such failure leaves fewer to make, so that their number has a limit.
    """
    end_s = time.monotonic() + BUSY_TIMEOUT_S
    for _ in range(CREATION_TRIES - 1):
        try:
            return RDBStorage(url, dict(options))
        except (DatabaseError, StorageInternalError):
            if time.monotonic() > end_s:
                raise
            time.sleep(random.uniform(0, CREATION_PAUSE_S))
    return RDBStorage(url, dict(options))


def insert_trial(connection: Connection, storage: RDBStorage, study: int, trial: FrozenTrial) -> None:
    """Add ``trial`` in a transaction that may do more, once.

    Optuna's own way has a transaction of its own, and tries again when the server's answer is lost.
    """
    from optuna.storages._rdb.models import StudyModel  # Optuna 5

    with Session(connection, join_transaction_mode="rollback_only") as session:
        StudyModel.find_or_raise_by_id(study, session, for_update=True)  # so that trials are numbered one by one
        storage._get_prepared_new_trial(study, trial, session)
        session.commit()  # to the connection, whose transaction goes on


def _journal(path: Path) -> BaseStorage:
    try:
        with open(path, "rb", buffering=0) as file:
            _whole_bytes(file)
        return JournalStorage(WholeLines(str(path)))
    except (OSError, ValueError, KeyError, TypeError, AssertionError) as error:
        raise InputError(f"{path}: not a journal that Optuna can open ({error}); check --storage") from error


class WholeLines(JournalFileBackend):
    """A journal to which only whole lines are added.

    Optuna's own backend adds to whatever is there: after a full disk or a killed writer, which cut a line off, the
    next line grows together with the rest of it, and the journal can be read no more.
    """

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Add ``logs`` as one line each, all or, where that fails, none.

        Raises:
            OSError: No room, or not writable any more.
        """
        lines = memoryview("".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs).encode())
        with get_lock_file(self._lock), open(self._file_path, "r+b", buffering=0) as file:
            whole_bytes = _whole_bytes(file)
            file.truncate(whole_bytes)
            file.seek(whole_bytes)
            try:
                while lines:
                    lines = lines[file.write(lines) :]
                os.fsync(file.fileno())
            except OSError:
                file.truncate(whole_bytes)
                raise


def _whole_bytes(file: FileIO) -> int:
    """Size of ``file`` without a last line that was cut off.

    Raises:
        ValueError: That line is none of Optuna's.
    """
    start = size = file.seek(0, os.SEEK_END)
    tail = b""
    while start > 0 and b"\n" not in tail:
        start = max(0, start - TAIL_BYTES)
        file.seek(start)
        tail = file.read(size - start)
    cut = tail[tail.rfind(b"\n") + 1 :]
    if cut[: len(LINE_START)] != LINE_START[: len(cut)]:
        raise ValueError("its last line is something else")
    return size - len(cut)
