"""Several sweeps that share one PostgreSQL database: who judges which point, and who leads the search of which shape.

A claim or a lease ends ``lapse_s`` after its owner's last sign of life, so that those of a killed process come free.
What a process changes about the claims of a study, a trial that it stores included, is one transaction that waits for
those of the others. All times are the server's. SQLite and journals have one writer, see
:func:`search.results.studies.only_writer`.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any, Final, TypeVar

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from sqlalchemy import Connection, text
from sqlalchemy.exc import InterfaceError, OperationalError

from kernels.errors import InputError
from kernels.families import FAMILIES
from search.evaluation import Point

Result = TypeVar("Result")
LAPSE_S: Final = 60.0  # a process that is silent for so long is taken for dead
BEATS: Final = 4  # signs of life in that time
PATIENCE_S: Final = 120.0  # that a database may be away, as when its server starts again
PAUSE_S: Final = 0.5  # between two tries
LOST: Final = (OperationalError, InterfaceError, StorageInternalError)  # the server is away
LOCK: Final = 0x6D786670  # of the advisory locks: "mxfp"
TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS mxfp4_claims (
        study_id integer NOT NULL REFERENCES studies (study_id) ON DELETE CASCADE, point text NOT NULL,
        owner text NOT NULL, until timestamptz NOT NULL,
        PRIMARY KEY (study_id, point))""",
    """CREATE TABLE IF NOT EXISTS mxfp4_leases (
        study_id integer PRIMARY KEY REFERENCES studies (study_id) ON DELETE CASCADE,
        owner text NOT NULL, until timestamptz NOT NULL)""",
)
NOW: Final = "clock_timestamp()"  # now() is when the transaction began, perhaps long before it had the lock
LAPSE: Final = ":lapse * interval '1 second'"
LATER: Final = f"{NOW} + {LAPSE}"


class Claim(Enum):
    """What became of the wish to judge a point."""

    ours = "nobody else judges it"
    taken = "another does or did"
    full = "the study has all its trials, or they are being judged"


def key_of(point: Point) -> str:
    """A point as text, the same in every process."""
    family, config = point
    return json.dumps([family, config.to_dict()], sort_keys=True)


def point_of_key(key: str) -> Point:
    """The point of :func:`key_of`."""
    family, values = json.loads(key)
    return family, FAMILIES[family].config(values)


class Ledger:
    """The claims of one study, within a transaction in which no other process changes them.

    A point whose claim has lapsed keeps its place for as long again: who finds the study full takes it over, and the
    points of a study do not depend on who was killed.

    Args:
        connection: Of the transaction.
    """

    def __init__(self, connection: Connection, study: int, owner: str, lapse_s: float) -> None:
        self.connection = connection
        self._names = {"study": study, "owner": owner, "lapse": lapse_s}

    def places(self) -> dict[str, bool]:
        """Keys of the points that were claimed and not stored, and whether another process judges them now."""
        self._run(f"DELETE FROM mxfp4_claims WHERE study_id = :study AND until < {NOW} - {LAPSE}")
        rows = self._run(
            f"SELECT point, owner <> :owner AND until > {NOW} FROM mxfp4_claims WHERE study_id = :study"
        )  # fmt: skip
        return {key: others for key, others in rows}

    def claim(self, key: str, stored: Collection[str], total: int) -> Claim:
        """Be the one who judges the point ``key``.

        Args:
            stored: Keys of the study's trials.
            total: Distinct points of the study that are or were judged, at most.
        """
        places = self.places()
        if key in stored or places.get(key):
            return Claim.taken
        if len(stored) + sum(other != key and other not in stored for other in places) >= total:
            return Claim.full
        self._run(
            f"""INSERT INTO mxfp4_claims (study_id, point, owner, until) VALUES (:study, :point, :owner, {LATER})
            ON CONFLICT (study_id, point) DO UPDATE SET owner = :owner, until = {LATER}""",
            point=key,
        )
        return Claim.ours

    def drop(self, key: str) -> None:
        """The point ``key`` is stored."""
        self._run("DELETE FROM mxfp4_claims WHERE study_id = :study AND point = :point", point=key)

    def _run(self, statement: str, **names: Any) -> list[tuple[Any, ...]]:
        return _rows(self.connection, statement, {**self._names, **names})


class SharedClaims:
    """The claims and leases of one process.

    Args:
        storage: On PostgreSQL.
        lapse_s: See the module.
        patience_s: How long to wait for a server that is away.
    """

    def __init__(self, storage: RDBStorage, lapse_s: float = LAPSE_S, patience_s: float = PATIENCE_S) -> None:
        self.storage = storage
        self._engine = storage.engine
        self._lapse_s = lapse_s
        self._patience_s = patience_s
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._names = {"owner": self.owner, "lapse": lapse_s}
        self._closed = threading.Event()
        with self._locked(0) as connection:
            for table in TABLES:
                connection.execute(text(table))
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._heart.start()

    def close(self) -> None:
        """Free everything at once."""
        self._closed.set()
        self._heart.join()
        with suppress(*LOST):
            self._all("DELETE FROM mxfp4_claims WHERE owner = :owner")
            self._all("DELETE FROM mxfp4_leases WHERE owner = :owner")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """No other process is in here."""
        with self._locked(0):
            yield

    def lease(self, study: int) -> bool:
        """Lead the search of ``study``; False while another process does."""
        rows = self._all(
            f"""INSERT INTO mxfp4_leases (study_id, owner, until) VALUES (:study, :owner, {LATER})
            ON CONFLICT (study_id) DO UPDATE SET owner = :owner, until = {LATER}
            WHERE mxfp4_leases.until < {NOW} OR mxfp4_leases.owner = :owner RETURNING owner""",
            study=study,
        )
        return bool(rows)

    def release(self, study: int) -> None:
        """Lead it no more."""
        self._all("DELETE FROM mxfp4_leases WHERE study_id = :study AND owner = :owner", study=study)

    @contextmanager
    def ledger(self, study: int) -> Iterator[Ledger]:
        """The claims of ``study``, and a transaction that is lost where the server goes away."""
        with self._locked(study) as connection:
            yield Ledger(connection, study, self.owner, self._lapse_s)

    def give_up(self, study: int, point: Point) -> None:
        """Judge ``point`` no more."""
        self._all(
            "DELETE FROM mxfp4_claims WHERE study_id = :study AND point = :point AND owner = :owner",
            study=study, point=key_of(point),
        )  # fmt: skip

    def elsewhere(self, study: int) -> frozenset[str]:
        """Keys of the points that other processes judge now."""
        rows = self._all(
            f"SELECT point FROM mxfp4_claims WHERE study_id = :study AND until > {NOW} AND owner <> :owner",
            study=study,
        )
        return frozenset(point for (point,) in rows)

    def patiently(self, attempt: Callable[[], Result]) -> Result:
        """What ``attempt`` gives, once the server answers; it must do no harm when it is done twice."""
        end_s = time.monotonic() + self._patience_s
        while True:
            try:
                return attempt()
            except (*LOST, InputError) as error:
                lost = isinstance(error, LOST) or isinstance(error.__cause__, LOST)
                if not lost or time.monotonic() > end_s:
                    raise
                time.sleep(PAUSE_S)

    def _all(self, statement: str, **names: Any) -> list[tuple[Any, ...]]:
        def attempt() -> list[tuple[Any, ...]]:
            with self._engine.begin() as connection:
                return _rows(connection, statement, {**self._names, **names})

        return self.patiently(attempt)

    @contextmanager
    def _locked(self, study: int) -> Iterator[Connection]:
        """A transaction that waits for those of other processes about the same study."""
        with self._engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock, :study)"), {"lock": LOCK, "study": study})
            yield connection

    def _beat(self) -> None:
        """Thread: give signs of life."""
        while not self._closed.wait(self._lapse_s / BEATS):
            with suppress(*LOST), self._engine.begin() as connection:
                for table in ("mxfp4_claims", "mxfp4_leases"):
                    _rows(connection, f"UPDATE {table} SET until = {LATER} WHERE owner = :owner", self._names)


def _rows(connection: Connection, statement: str, names: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    done = connection.execute(text(statement), names)
    return [tuple(row) for row in done] if done.returns_rows else []


def shared_claims(storage: BaseStorage, lapse_s: float = LAPSE_S) -> SharedClaims | None:
    """Those of this process where several sweeps may write to ``storage`` at a time; None elsewhere."""
    if isinstance(storage, RDBStorage) and storage.engine.name == "postgresql":
        return SharedClaims(storage, lapse_s)
    return None
