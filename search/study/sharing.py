"""Who else judges points of a study: nobody, or other sweeps on the same database."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from search.evaluation import Point, Value
from search.results.claims import Claim, SharedClaims, key_of, point_of_key
from search.results.record import Record, point_of
from search.results.trials import KeptTrials


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

    def keep(self, point: Point, record: Mapping[str, Value]) -> bool:
        """Store the trial; False if another sweep has taken the point over."""
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

    def keep(self, point: Point, record: Mapping[str, Value]) -> bool:
        """Add the trial."""
        self._trials.add(record)
        return True

    def give_up(self, point: Point) -> None:
        """Nobody waits for it."""

    def news(self) -> News:
        """There is none."""
        return News()


class SharedStudy:
    """A study to which several sweeps write.

    Args:
        waits: Whether this sweep leads the search, and so waits until the points of the others have ended.
    """

    def __init__(self, trials: KeptTrials, claims: SharedClaims, *, waits: bool) -> None:
        self.waits = waits
        self._trials = trials
        self._claims = claims
        self._study = trials.study._study_id
        self._elsewhere: frozenset[str] = frozenset()
        self._stored: dict[str, Record] = {}

    def read(self) -> list[Record]:
        """The first trial of each point; what is stored counts as claimed for good."""
        found = self._claims.patiently(self._unseen)
        for record in found:
            point = point_of(record)
            if point is not None:
                self._claims.done(self._study, point)
        return found

    def claim(self, point: Point, total: int) -> Claim:
        """One that was stored by a process that died before it could say so is taken."""
        claim = self._claims.claim(self._study, point, total)
        if claim is Claim.ours and self._claims.patiently(lambda: self._is_stored(point)):
            self._claims.done(self._study, point)
            return Claim.taken
        if claim is Claim.taken:
            self._elsewhere |= {key_of(point)}  # it may come free before the next look
        return claim

    def keep(self, point: Point, record: Mapping[str, Value]) -> bool:
        """Store the trial once, however often the server goes away in between."""
        if not self._claims.renew(self._study, point):
            return False
        self._claims.patiently(lambda: self._add(point, record))
        self._stored[key_of(point)] = dict(record)
        self._claims.done(self._study, point)
        return True

    def give_up(self, point: Point) -> None:
        """Others may judge it."""
        self._claims.give_up(self._study, point)

    def news(self) -> News:
        """What others began, stored or lost."""
        elsewhere = self._claims.elsewhere(self._study)
        records = self._claims.patiently(self._unseen)
        begun = [point_of_key(key) for key in elsewhere - self._elsewhere]
        freed = [point_of_key(key) for key in self._elsewhere - elsewhere - self._stored.keys()]
        self._elsewhere = elsewhere
        return News(records, begun, freed)

    def _unseen(self) -> list[Record]:
        """Trials of points that were not known yet."""
        found = []
        for trial in self._trials.read():
            point = point_of(trial.record)
            key = f"trial {trial.number}" if point is None else key_of(point)
            if not trial.final and key not in self._stored:
                self._stored[key] = trial.record
                found.append(trial.record)
        return found

    def _is_stored(self, point: Point) -> bool:
        """Whether a trial of ``point`` is there; what is new stays news."""
        key = key_of(point)
        return key in self._stored or any(
            key_of(known) == key for trial in self._trials.read() if (known := point_of(trial.record)) is not None
        )

    def _add(self, point: Point, record: Mapping[str, Value]) -> None:
        """Add the trial, unless an attempt of which no answer came has added it."""
        if not self._is_stored(point):
            self._trials.add(record)
