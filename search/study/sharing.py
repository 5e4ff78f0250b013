"""Who else judges points of a study: nobody, or other sweeps on the same database."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import optuna
from sqlalchemy import Connection

from search.evaluation import Point, Value
from search.results.claims import Claim, SharedClaims, key_of, point_of_key
from search.results.record import Record, point_of
from search.results.storage import insert_trial
from search.results.stored import newer_trials
from search.results.trials import KeptTrial, KeptTrials, kept_as


@dataclass(frozen=True)
class News:
    """What happened to a study since the last look.

    Args:
        records: That other sweeps have stored.
        begun: Points that others judge now.
        freed: Points that others judged and gave up, as when they were killed.
    """

    records: Collection[Record] = ()
    begun: Collection[Point] = ()
    freed: Collection[Point] = ()


class Sharing(Protocol):
    """The one way in which a search takes points and keeps trials."""

    waits: bool  # for points that others judge, when there is nothing else to do

    def read(self) -> list[Record]:
        """The trials of the search so far, each point once, oldest first."""
        ...

    def claim(self, point: Point, total: int) -> Claim:
        """Be the one who judges ``point``, of ``total`` distinct ones of the study."""
        ...

    def keep(self, point: Point, record: Mapping[str, Value], total: int) -> bool:
        """Store the trial; False if another sweep has taken the point over, or its place among ``total``."""
        ...

    def give_up(self, point: Point) -> None:
        """Judge ``point`` no more."""
        ...

    def news(self) -> News:
        """See :class:`News`."""
        ...


class SoleWriter:
    """A study that no other sweep writes to."""

    waits = False

    def __init__(self, trials: KeptTrials) -> None:
        self._trials = trials

    def read(self) -> list[Record]:
        """All of them: it asks for no point twice."""
        return [trial.record for trial in self._trials.read() if not trial.final]

    def claim(self, point: Point, total: int) -> Claim:
        """It is free."""
        return Claim.ours

    def keep(self, point: Point, record: Mapping[str, Value], total: int) -> bool:
        """Add the trial."""
        self._trials.add(record)
        return True

    def give_up(self, point: Point) -> None:
        """Nobody waits for it."""

    def news(self) -> News:
        """There is none."""
        return News()


class SharedTrials(KeptTrials):
    """The trials of a study to which several sweeps write, on a server that may be away for a while."""

    def __init__(self, study: optuna.Study, claims: SharedClaims) -> None:
        super().__init__(study)
        self.claims = claims
        self.number = study._study_id

    def read(self) -> list[KeptTrial]:
        """All of them, oldest first."""
        return self.claims.patiently(self._read)

    def add(self, record: Mapping[str, Value], *, final: bool = False) -> None:
        """Add a trial once, however often the server goes away in between."""

        def attempt() -> None:
            with self.claims.ledger(self.number) as ledger:
                if dict(record) not in [trial.record for trial in self._read()]:  # as the last attempt may have done
                    self.add_within(ledger.connection, record, final=final)

        self.claims.patiently(attempt)

    def add_within(self, connection: Connection, record: Mapping[str, Value], *, final: bool = False) -> None:
        """Add a trial in a transaction that may do more."""
        insert_trial(connection, self.claims.storage, self.number, kept_as(record, final=final))

    def _read(self) -> list[KeptTrial]:
        with self.claims.storage.engine.connect() as connection:
            return [trial for _, trial in newer_trials(connection, self.number, -1)]


class SharedStudy:
    """A study to which several sweeps write.

    Args:
        waits: Whether this sweep leads the search, and so waits until the points of the others have ended.
    """

    def __init__(self, trials: SharedTrials, *, waits: bool) -> None:
        self.waits = waits
        self._trials = trials
        self._claims = trials.claims
        self._elsewhere: frozenset[str] = frozenset()
        self._last = -1  # Optuna's number of the last trial that was heard of
        self._stored: set[str] = set()
        self._unread: list[Record] = []

    def read(self) -> list[Record]:
        """The first trial of each point, less those that were read before."""
        self._claims.patiently(self._look)
        found, self._unread = self._unread, []
        return found

    @property
    def stored(self) -> int:
        """Distinct points that have a trial."""
        self._claims.patiently(self._look)
        return len(self._stored)

    def vacant(self, total: int) -> bool:
        """Whether there may be a point to claim of ``total``: a new one, or one that a killed process left."""

        def attempt() -> bool:
            with self._claims.ledger(self._trials.number) as ledger:
                self._hear(ledger.connection)
                places = {key: others for key, others in ledger.places().items() if key not in self._stored}
                return not all(places.values()) or len(self._stored) + len(places) < total

        return self._claims.patiently(attempt)

    def claim(self, point: Point, total: int) -> Claim:
        """One that has a trial is taken, however it came there."""
        key = key_of(point)

        def attempt() -> Claim:
            with self._claims.ledger(self._trials.number) as ledger:
                self._hear(ledger.connection)
                return ledger.claim(key, self._stored, total)

        claim = self._claims.patiently(attempt)
        if claim is Claim.taken:
            self._elsewhere |= {key}  # it may come free before the next look
        return claim

    def keep(self, point: Point, record: Mapping[str, Value], total: int) -> bool:
        """Store the trial once; where no answer comes to that, it is news like those of other sweeps."""
        key = key_of(point)

        def attempt() -> bool:
            with self._claims.ledger(self._trials.number) as ledger:
                self._hear(ledger.connection)
                if ledger.claim(key, self._stored, total) is not Claim.ours:
                    return False
                self._trials.add_within(ledger.connection, record)
                ledger.drop(key)
            return True

        kept = self._claims.patiently(attempt)
        if kept:
            self._stored.add(key)
        return kept

    def give_up(self, point: Point) -> None:
        """Others may judge it."""
        self._claims.give_up(self._trials.number, point)

    def news(self) -> News:
        """What others began, stored or lost."""
        elsewhere = self._claims.elsewhere(self._trials.number)
        records = self.read()
        begun = [point_of_key(key) for key in elsewhere - self._elsewhere]
        freed = [point_of_key(key) for key in self._elsewhere - elsewhere - self._stored]
        self._elsewhere = elsewhere
        return News(records, begun, freed)

    def _look(self) -> None:
        with self._claims.storage.engine.connect() as connection:
            self._hear(connection)

    def _hear(self, connection: Connection) -> None:
        """Note the trials of points that had none."""
        for number, trial in newer_trials(connection, self._trials.number, self._last):
            self._last = number
            point = point_of(trial.record)
            key = f"trial {trial.number}" if point is None else key_of(point)
            if not trial.final and key not in self._stored:
                self._stored.add(key)
                self._unread.append(trial.record)
