"""One study: the search of one shape on one target.

Proposals are made by a study in memory; each trial is added to the kept study, whole and in one transaction, when
it ends. A killed sweep therefore loses at most the trials that were running, and leaves nothing half-written.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from typing import Any

import optuna
from optuna.trial import TrialState

from kernels.problem import GemmShape
from search.evaluation import Candidate, Evaluation, Judge, Point, Value
from search.results.claims import Claim
from search.results.record import RECORD, Record, point_of
from search.results.trials import KeptTrials, frozen_trial
from search.study.earlier import OtherShape
from search.study.legal_samplers import LegalSampler
from search.study.points import Points, distributions, parameters, suggest
from search.study.samplers import SamplerTask, make_sampler
from search.study.sharing import Sharing, SoleWriter

FIRST_TRIALS = 16  # at most, that a search has before its share of the time begins
FIRST_IN_FLIGHT = 8  # candidates, before any has ended
SURE = 4  # proposals in a row expect too little, and
HOPELESS = 0.05  # of what the best open point promises: a candidate that waits with less is given up
WAITED = 64  # trials in a row were no better, where a search ends by itself: on an H200, after 16 it lost up to 32 %
LOOK_S = 0.5  # how often a search that waits looks whether it shall stop
RecordOf = Callable[[Candidate, Evaluation, str, float], Mapping[str, Value]]


@dataclass(frozen=True)
class Stopping:
    """When a search has done enough; what is None ends none.

    Args:
        patience: Trials in a row without a better one.
        until: Part of the best time: no point that is left is expected to save so much, however uncertain its time.
            Where the best time itself is less certain, its uncertainty counts instead.
    """

    patience: int | None = None
    until: float | None = None


@dataclass(frozen=True)
class Progress:
    """State of a study, for people who wait.

    Args:
        done: Trials that ended, earlier runs included.
        best_us: Smallest objective so far, None before the first.
        evidence: Whether it was measured or predicted, "" before the first.
    """

    shape: GemmShape
    done: int
    total: int
    best_us: float | None
    evidence: str
    outcomes: Mapping[str, int]


@dataclass
class _Running:
    trial: optuna.Trial
    candidate: Candidate
    started: str
    start_s: float

    @property
    def point(self) -> Point:
        """What is judged."""
        return self.candidate.family, self.candidate.config


@dataclass
class _Clock:
    """When a search ends, on the clock of ``time.monotonic``: with its share of the time, which begins late."""

    end_s: float
    shares: float
    first: int  # trials, earlier runs included, before the share begins

    @property
    def left_s(self) -> float:
        return max(0.0, self.end_s - time.monotonic())

    def ended(self, trials: int) -> None:
        """So many trials have ended, earlier runs included."""
        if trials == self.first:
            now_s = time.monotonic()
            self.end_s = now_s + (self.end_s - now_s) / self.shares


@dataclass
class _Settling:
    """Whether a search has done enough, told of each proposal and each end."""

    stopping: Stopping
    waited: int = 0  # trials since the best one
    hopeless: int = 0  # proposals in a row that expected too little

    def proposed(self, expected_gain: float | None, noise: float) -> None:
        """A sampler's proposal, with the part of the best time that it hopes to save and that is noise."""
        until = self.stopping.until
        little = until is not None and expected_gain is not None and expected_gain < max(until, noise)
        self.hopeless = self.hopeless + 1 if little else 0

    def ended(self, *, better: bool) -> None:
        """A trial ended, and was the best so far or not."""
        self.waited = 0 if better else self.waited + 1

    @property
    def settled(self) -> bool:
        """Whether the search may end."""
        patience = self.stopping.patience
        hopeless = self.hopeless >= SURE and self.waited >= WAITED
        return hopeless or (patience is not None and self.waited >= patience)


def in_flight(capacity: int, ended: int) -> int:
    """Candidates to keep in flight: half as many as have ended, so that each is chosen knowing two of three before it.

    Args:
        capacity: What the evaluator can take.
    """
    return min(capacity, max(FIRST_IN_FLIGHT, ended // 2))


@dataclass
class _Live:
    """The study in memory, of which a sampler's proposals come.

    Args:
        elsewhere: Proposals that another sweep judges: they count as running.
    """

    study: optuna.Study
    spaces: Mapping[str, Mapping[str, Any]]
    elsewhere: dict[Point, optuna.Trial] = field(default_factory=dict)

    def ask(self, seed: Point | None) -> tuple[optuna.Trial, Point]:
        """The next proposal: the seed, if there is one."""
        if seed is not None:
            family, values = seed[0], seed[1].to_dict()
            self.study.enqueue_trial({"family": family, **{name: values[name] for name in self.spaces[family]}})
        trial = self.study.ask()
        return trial, suggest(trial, self.spaces)

    def keep(self, record: Record) -> None:
        """A trial that this search did not run; one that it proposed too takes the place of the proposal."""
        point = point_of(record)
        told = frozen_trial(record, {RECORD: record}, **parameters(point, self.spaces))
        trial = None if point is None else self.elsewhere.pop(point, None)
        if trial is None:
            self.study.add_trial(told)
        else:
            trial.set_user_attr(RECORD, record)
            self.study.tell(trial, told.value, state=told.state)

    def end(self, trial: optuna.Trial, record: Record, objective_us: float | None) -> None:
        """A trial of this search has ended; the objective is None unless it was ok."""
        trial.set_user_attr(RECORD, record)
        # Pruned, not failed: TPE learns from complete and pruned trials only.
        state = TrialState.PRUNED if objective_us is None else TrialState.COMPLETE
        self.study.tell(trial, objective_us, state=state)

    def drop(self, trial: optuna.Trial) -> None:
        """A proposal that nobody judges."""
        self.study.tell(trial, state=TrialState.FAIL)


@dataclass
class StudyRun:
    """Runs the trials of one study.

    Args:
        record: Results row of (candidate, evaluation, start time, seconds).
        stop: Ends the search when it is set.
        others: Reads trials of other shapes, for samplers that learn from them.
        sharing: With other sweeps; None shares with nobody.
        submitted: Called when the last candidate was submitted, and at the end of the search at the latest.
    """

    kept: optuna.Study
    shape: GemmShape
    evaluator: Judge
    points: Points
    record: RecordOf
    notify: Callable[[Progress], None] = lambda progress: None
    stop: threading.Event = field(default_factory=threading.Event)
    others: Callable[[], Sequence[OtherShape]] = tuple
    sharing: Sharing | None = None
    submitted: Callable[[], None] = lambda: None
    _sharing: Sharing = field(init=False)
    _live: _Live = field(init=False)
    _sampler: LegalSampler = field(init=False)
    _clock: _Clock = field(init=False)
    _settling: _Settling = field(init=False)
    _total: int = 0  # trials wanted, as far as there are points
    _seeds: deque[Point] = field(default_factory=deque)
    _running: dict[Future[Evaluation], _Running] = field(default_factory=dict)
    _outcomes: Counter[str] = field(default_factory=Counter)
    _best: tuple[float, str] | None = None
    _noise: float = 0.0  # uncertainty of the best time, as a part of it

    def run(
        self,
        *,
        sampler: str,
        seed: int,
        trials: int,
        seeds: Sequence[Point] = (),
        deadline_s: float | None = None,
        shares: float = 1,
        stopping: Stopping = Stopping(),
    ) -> Progress:
        """Run until the study holds ``trials`` trials, no point is left, enough was done, or the deadline has passed.

        Args:
            trials: Trials wanted, those of earlier runs included.
            seeds: Points to try first, in order, or as many as the sampler wants; illegal and tried ones are skipped.
            deadline_s: End, on the clock of ``time.monotonic``.
            shares: The search takes one of so many equal parts of the time until then. Its part begins when as many
                trials have ended as are judged at a time, or 16: a small one would end before the first.
            stopping: When fewer trials are enough.

        Returns:
            State at the end.
        """
        self._sharing = self.sharing or SoleWriter(KeptTrials(self.kept))
        earlier = self._sharing.read()
        for record in earlier:
            self._remember(record)
        self._total = min(trials, self._done + self.points.untried)
        self._tell_progress()
        if self._total > self._done and not _was_settled(earlier, self._total) and not self.stop.is_set():
            end_s = math.inf if deadline_s is None else deadline_s
            self._clock = _Clock(end_s, shares, self._done + min(FIRST_TRIALS, self.evaluator.capacity))
            self._settling = _Settling(stopping)
            self._prepare(earlier, sampler, seed, seeds)
            self._search()
        self.submitted()
        return self._progress()

    def _prepare(self, earlier: Sequence[Record], sampler: str, seed: int, seeds: Sequence[Point]) -> None:
        """Make the sampler and the study that it proposes for."""
        spaces = distributions(self.points)
        task = SamplerTask(
            self.points, spaces, seed + len(earlier), self._total - len(earlier), self.shape, self.evaluator.device,
            self.others,
        )  # fmt: skip
        self._sampler = make_sampler(sampler, task)
        legal = (point for point in seeds if self.points.number(*point) is not None)
        self._seeds = deque(islice(legal, self._sampler.most_seeds))
        self._live = _Live(optuna.create_study(sampler=self._sampler), spaces)
        for record in earlier:
            self._live.keep(record)

    def _search(self) -> None:
        """Keep candidates in flight until enough was done or time is up, and give up those that run then."""
        idle = False
        while self._goes_on and self._hear(idle=idle):
            self._fill()
            if self._done + len(self._running) >= self._total:
                self.submitted()
            idle = not self._running
            if idle:  # others judge what is left
                self.stop.wait(min(self._clock.left_s, LOOK_S))
            for future in wait(self._running, min(self._clock.left_s, LOOK_S), FIRST_COMPLETED).done:
                self._finish(self._running.pop(future), future.result())
            self._reconsider()
        for future, one in self._running.items():
            future.cancel()
            self._sharing.give_up(one.point)

    @property
    def _done(self) -> int:
        """Trials that have ended, earlier runs and other sweeps included."""
        return self._outcomes.total()

    @property
    def _goes_on(self) -> bool:
        wanted = self._done < self._total and not self._settling.settled
        return wanted and self._clock.left_s > 0 and not self.stop.is_set()

    def _hear(self, *, idle: bool) -> bool:
        """Hear what other sweeps did; False where one of them has settled, or an idle search waits for nothing."""
        news = self._sharing.news()
        for point in news.begun:
            self.points.mark(*point)
        for point in news.freed:
            self.points.reopen(*point)
            self._seeds.appendleft(point)
            if point in self._live.elsewhere:
                self._live.drop(self._live.elsewhere.pop(point))
        for record in news.records:
            self._live.keep(record)
            self._remember(record)
        if news.records:
            self._tell_progress()
        waits = not idle or bool(news.records) or self._sharing.waits
        return waits and not _was_settled(list(news.records), self._total)

    def _fill(self) -> None:
        """Begin as many candidates as may be in flight."""
        capacity = self.evaluator.capacity  # grows where a node joins
        allowed = in_flight(capacity, self._done) if self._sampler.learns else capacity
        while len(self._running) < allowed and self._done + len(self._running) < self._total and self._start():
            pass

    def _start(self) -> bool:
        """Begin with the next seed or proposal that is free; False where others judge all that is left."""
        while self.points.untried:
            seed = self._next_seed()
            trial, point = self._live.ask(seed)
            self.points.mark(*point)
            claim = self._sharing.claim(point, self._total)
            if claim is Claim.ours:
                self._submit(trial, point, seeded=seed is not None)
                return True
            if claim is Claim.full:
                self._live.drop(trial)
                self.points.reopen(*point)
                self._seeds.appendleft(point)
                return False
            self._live.elsewhere[point] = trial
        return False

    def _next_seed(self) -> Point | None:
        """The next seed that can be tried."""
        while self._seeds:
            point = self._seeds.popleft()
            if self.points.is_untried(*point):
                return point
        return None

    def _submit(self, trial: optuna.Trial, point: Point, *, seeded: bool) -> None:
        candidate = Candidate(self.shape, *point)
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        future = self.evaluator.submit(candidate)
        self._running[future] = _Running(trial, candidate, started, time.monotonic())
        self._settling.proposed(None if seeded else self._sampler.expected_gain, self._noise)

    def _reconsider(self) -> None:
        """Give up what waits and has become hopeless; the rest is judged in the order of its promise."""
        hopes = self._sampler.hopes(self._live.study)
        for future in [f for f, one in self._running.items() if hopes.get(one.trial.number, 1) < HOPELESS]:
            if self.evaluator.withdraw(future):
                given_up = self._running.pop(future)
                self._live.drop(given_up.trial)
                self.points.reopen(*given_up.point)
                self._sharing.give_up(given_up.point)
        self.evaluator.prefer(sorted(self._running, key=lambda f: -hopes.get(self._running[f].trial.number, 1)))

    def _finish(self, running: _Running, evaluation: Evaluation) -> None:
        """Keep the trial, unless another sweep has taken the point over."""
        seconds = time.monotonic() - running.start_s
        record = {**self.record(running.candidate, evaluation, running.started, seconds), "trials_wanted": self._total}
        self._settling.ended(better=self._is_better(evaluation))
        if self._settling.settled:
            record["settled"] = True
        if not self._sharing.keep(running.point, record, self._total):
            self._live.elsewhere[running.point] = running.trial
            return
        self._live.end(running.trial, record, evaluation.objective_us if evaluation.outcome == "ok" else None)
        self._remember(record)
        self._clock.ended(self._done)
        self._tell_progress()

    def _remember(self, record: Mapping[str, Any]) -> None:
        point = point_of(record)
        if point is not None:
            self.points.mark(*point)
        self._outcomes[record["outcome"]] += 1
        if record["outcome"] == "ok":
            best = (record["time_us" if record["evidence"] == "measured" else "predicted_us"], record["evidence"])
            if self._best is None or best < self._best:
                self._best, self._noise = best, _uncertainty(record)

    def _is_better(self, evaluation: Evaluation) -> bool:
        if evaluation.outcome != "ok" or evaluation.objective_us is None:
            return False
        return self._best is None or evaluation.objective_us < self._best[0]

    def _tell_progress(self) -> None:
        self.notify(self._progress())

    def _progress(self) -> Progress:
        best_us, evidence = self._best or (None, "")
        return Progress(self.shape, self._done, self._total, best_us, evidence, dict(self._outcomes))


def _was_settled(trials: Sequence[Mapping[str, Any]], wanted: int) -> bool:
    """Whether the last of ``trials`` ended a search that could have gone on as far as this one."""
    record = trials[-1] if trials else {}
    return bool(record.get("settled")) and int(record["trials_wanted"]) >= wanted


def _uncertainty(record: Mapping[str, Any]) -> float:
    """Half of the interval of a measured time, as a part of it; 0 where there is none."""
    if "time_lo_us" not in record or "time_hi_us" not in record:
        return 0.0
    return float(record["time_hi_us"] - record["time_lo_us"]) / 2 / float(record["time_us"])
