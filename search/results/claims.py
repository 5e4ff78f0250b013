"""Several sweeps that share one PostgreSQL database: who judges which point, and who leads the search of which shape.

A claim or a lease ends ``lapse_s`` after its owner's last sign of life, so that those of a killed process come free.
All times are the server's. SQLite and journals have one writer, see :func:`search.results.studies.only_writer`.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
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
        owner text NOT NULL, until timestamptz NOT NULL, done boolean NOT NULL DEFAULT false,
        PRIMARY KEY (study_id, point))""",
    """CREATE TABLE IF NOT EXISTS mxfp4_leases (
        study_id integer PRIMARY KEY REFERENCES studies (study_id) ON DELETE CASCADE,
        owner text NOT NULL, until timestamptz NOT NULL)""",
)
LATER: Final = "now() + :lapse * interval '1 second'"


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


class SharedClaims:
    """The claims and leases of one process.

    Args:
        storage: On PostgreSQL.
        lapse_s: See the module.
        patience_s: How long to wait for a server that is away.
    """

    def __init__(self, storage: RDBStorage, lapse_s: float = LAPSE_S, patience_s: float = PATIENCE_S) -> None:
        self._engine = storage.engine
        self._lapse_s = lapse_s
        self._patience_s = patience_s
        self.owner = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
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
            self._all("DELETE FROM mxfp4_claims WHERE owner = :owner AND NOT done")
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
            WHERE mxfp4_leases.until < now() OR mxfp4_leases.owner = :owner RETURNING owner""",
            study=study,
        )
        return bool(rows)

    def release(self, study: int) -> None:
        """Lead it no more."""
        self._all("DELETE FROM mxfp4_leases WHERE study_id = :study AND owner = :owner", study=study)

    def claim(self, study: int, point: Point, total: int) -> Claim:
        """Be the one who judges ``point``.

        Args:
            total: Distinct points of the study that are or were judged, at most.
        """

        def attempt() -> Claim:
            with self._locked(study) as connection:
                others = "study_id = :study AND point <> :point AND (done OR until > now())"
                place = self._names(study=study, point=key_of(point))
                held = connection.execute(text(f"SELECT count(*) FROM mxfp4_claims WHERE {others}"), place).scalar_one()
                if held >= total:
                    return Claim.full
                mine = connection.execute(
                    text(f"""INSERT INTO mxfp4_claims (study_id, point, owner, until)
                    VALUES (:study, :point, :owner, {LATER})
                    ON CONFLICT (study_id, point) DO UPDATE SET owner = :owner, until = {LATER}
                    WHERE NOT mxfp4_claims.done AND (mxfp4_claims.until < now() OR mxfp4_claims.owner = :owner)
                    RETURNING owner"""),
                    place,
                ).first()
                return Claim.taken if mine is None else Claim.ours

        return self.patiently(attempt)

    def renew(self, study: int, point: Point) -> bool:
        """Whether the claim is still this process's: it was not silent for so long that another took it over."""
        rows = self._all(
            f"""UPDATE mxfp4_claims SET until = {LATER}
            WHERE study_id = :study AND point = :point AND owner = :owner AND NOT done RETURNING owner""",
            study=study, point=key_of(point),
        )  # fmt: skip
        return bool(rows)

    def done(self, study: int, point: Point) -> None:
        """The trial of ``point`` is stored."""
        self._all(
            f"""INSERT INTO mxfp4_claims (study_id, point, owner, until, done)
            VALUES (:study, :point, :owner, {LATER}, true)
            ON CONFLICT (study_id, point) DO UPDATE SET done = true""",
            study=study, point=key_of(point),
        )  # fmt: skip

    def give_up(self, study: int, point: Point) -> None:
        """Judge ``point`` no more."""
        self._all(
            "DELETE FROM mxfp4_claims WHERE study_id = :study AND point = :point AND owner = :owner AND NOT done",
            study=study, point=key_of(point),
        )  # fmt: skip

    def elsewhere(self, study: int) -> frozenset[str]:
        """Keys of the points that other processes judge now."""
        rows = self._all(
            """SELECT point FROM mxfp4_claims
            WHERE study_id = :study AND NOT done AND until > now() AND owner <> :owner""",
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

    def _names(self, **names: Any) -> dict[str, Any]:
        return {"owner": self.owner, "lapse": self._lapse_s, **names}

    def _all(self, statement: str, **names: Any) -> list[tuple[Any, ...]]:
        def attempt() -> list[tuple[Any, ...]]:
            with self._engine.begin() as connection:
                done = connection.execute(text(statement), self._names(**names))
                return [tuple(row) for row in done] if done.returns_rows else []

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
                for table in ("mxfp4_claims WHERE NOT done AND", "mxfp4_leases WHERE"):
                    name, _, where = table.partition(" ")
                    statement = f"UPDATE {name} SET until = {LATER} {where} owner = :owner"
                    connection.execute(text(statement), self._names())


def shared_claims(storage: BaseStorage, lapse_s: float = LAPSE_S) -> SharedClaims | None:
    """Those of this process where several sweeps may write to ``storage`` at a time; None elsewhere."""
    if isinstance(storage, RDBStorage) and storage.engine.name == "postgresql":
        return SharedClaims(storage, lapse_s)
    return None
