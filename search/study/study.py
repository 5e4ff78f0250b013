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
    seeded: bool

    @property
    def point(self) -> Point:
        """What is judged."""
        return self.candidate.family, self.candidate.config


@dataclass
class _Clock:
    """When a search ends, on the clock of ``time.monotonic``: with its share of the time, which begins late."""

    end_s: float
    shares: float
    first: int  # trials before the share begins

    @property
    def left_s(self) -> float:
        return max(0.0, self.end_s - time.monotonic())

    def ended(self, trials: int) -> None:
        """So many trials of this run have ended."""
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
class StudyRun:
    """Runs the trials of one study.

    Args:
        record: Results row of (candidate, evaluation, start time, seconds).
        stop: Ends the search when it is set.
        others: Trials of other shapes, for samplers that learn from them.
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
    others: Sequence[OtherShape] = ()
    sharing: Sharing | None = None
    submitted: Callable[[], None] = lambda: None
    _sharing: Sharing = field(init=False)
    _seeds: deque[Point] = field(default_factory=deque)
    _elsewhere: dict[Point, optuna.Trial] = field(default_factory=dict)  # proposals that another sweep judges
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
        total = min(trials, len(earlier) + self.points.untried)
        self.notify(self._progress(len(earlier), total))
        if total > len(earlier) and not _was_settled(earlier, total) and not self.stop.is_set():
            end_s = math.inf if deadline_s is None else deadline_s
            clock = _Clock(end_s, shares, min(FIRST_TRIALS, self.evaluator.capacity))
            self._seeds = deque(seeds)
            self._search(earlier, sampler, seed, total, clock, _Settling(stopping))
        self.submitted()
        return self._progress(sum(self._outcomes.values()), total)

    def _search(
        self,
        earlier: Sequence[Record],
        sampler: str,
        seed: int,
        total: int,
        clock: _Clock,
        settling: _Settling,
    ) -> None:
        spaces = distributions(self.points)
        task = SamplerTask(
            self.points, spaces, seed + len(earlier), total - len(earlier),
            self.shape, self.evaluator.device, self.others,
        )  # fmt: skip
        chosen = make_sampler(sampler, task)
        legal = (point for point in self._seeds if self.points.number(*point) is not None)
        self._seeds = deque(islice(legal, chosen.most_seeds))
        live = optuna.create_study(sampler=chosen)
        live.add_trials(
            frozen_trial(record, {RECORD: record}, **parameters(point_of(record), spaces)) for record in earlier
        )
        running: dict[Future[Evaluation], _Running] = {}
        done = len(earlier)
        idle = False
        while done < total and clock.left_s > 0 and not self.stop.is_set() and not settling.settled:
            elsewhere, settled = self._learn(live, spaces, total)
            done += elsewhere
            if settled or (idle and not elsewhere and not self._sharing.waits):
                break
            capacity = self.evaluator.capacity  # grows where a node joins
            allowed = in_flight(capacity, done) if chosen.learns else capacity
            while len(running) < allowed and done + len(running) < total and self.points.untried:
                begun = self._start(live, spaces, total)
                if begun is None:
                    break
                future, started = begun
                running[future] = started
                settling.proposed(None if started.seeded else chosen.expected_gain, self._noise)
            if done + len(running) >= total:
                self.submitted()
            idle = not running
            if idle:  # others judge what is left
                self.stop.wait(min(clock.left_s, LOOK_S))
            for future in wait(running, min(clock.left_s, LOOK_S), FIRST_COMPLETED).done:
                if not self._finish(live, running.pop(future), future.result(), total, settling):
                    continue
                done += 1
                clock.ended(done - len(earlier))
                self.notify(self._progress(done, total))
            self._reconsider(live, chosen, running)
        for future, one in running.items():
            future.cancel()
            self._sharing.give_up(one.point)

    def _learn(self, live: optuna.Study, spaces: Mapping[str, Mapping[str, Any]], total: int) -> tuple[int, bool]:
        """Hear what other sweeps did: how many trials they have added, and whether one of them has settled."""
        news = self._sharing.news()
        for point in news.begun:
            self.points.mark(*point)
        for point in news.freed:
            self.points.reopen(*point)
            self._seeds.appendleft(point)
            if point in self._elsewhere:
                live.tell(self._elsewhere.pop(point), state=TrialState.FAIL)
        for record in news.records:
            self._tell(live, spaces, record)
            self._remember(record)
        if news.records:
            self.notify(self._progress(sum(self._outcomes.values()), total))
        return len(news.records), _was_settled(list(news.records), total)

    def _tell(self, live: optuna.Study, spaces: Mapping[str, Mapping[str, Any]], record: Record) -> None:
        """Tell the sampler of another sweep's trial, which it may have proposed too."""
        point = point_of(record)
        told = frozen_trial(record, {RECORD: record}, **parameters(point, spaces))
        if point is None or point not in self._elsewhere:
            live.add_trial(told)
            return
        trial = self._elsewhere.pop(point)
        trial.set_user_attr(RECORD, record)
        live.tell(trial, told.value, state=told.state)

    def _reconsider(
        self, live: optuna.Study, chosen: LegalSampler, running: dict[Future[Evaluation], _Running]
    ) -> None:
        """Give up what waits and has become hopeless; the rest is judged in the order of its promise."""
        hopes = chosen.hopes(live)
        for future in [f for f, one in running.items() if hopes.get(one.trial.number, 1) < HOPELESS]:
            if self.evaluator.withdraw(future):
                given_up = running.pop(future)
                live.tell(given_up.trial, state=TrialState.FAIL)
                self.points.reopen(*given_up.point)
                self._sharing.give_up(given_up.point)
        self.evaluator.prefer(sorted(running, key=lambda f: -hopes.get(running[f].trial.number, 1)))

    def _enqueue(self, live: optuna.Study, spaces: Mapping[str, Mapping[str, Any]]) -> bool:
        """Queue the next seed that can be tried; False where there is none."""
        while self._seeds:
            family, config = self._seeds.popleft()
            if self.points.is_untried(family, config):
                values = config.to_dict()
                live.enqueue_trial({"family": family, **{name: values[name] for name in spaces[family]}})
                return True
        return False

    def _start(
        self, live: optuna.Study, spaces: Mapping[str, Mapping[str, Any]], total: int
    ) -> tuple[Future[Evaluation], _Running] | None:
        """Begin with the next seed or proposal that is free; None where others judge all that is left."""
        while self.points.untried:
            seeded = self._enqueue(live, spaces)
            trial = live.ask()
            point = suggest(trial, spaces)
            self.points.mark(*point)
            claim = self._sharing.claim(point, total)
            if claim is Claim.ours:
                candidate = Candidate(self.shape, *point)
                started = datetime.now(timezone.utc).isoformat(timespec="seconds")
                return self.evaluator.submit(candidate), _Running(trial, candidate, started, time.monotonic(), seeded)
            if claim is Claim.full:
                live.tell(trial, state=TrialState.FAIL)
                self.points.reopen(*point)
                self._seeds.appendleft(point)
                return None
            self._elsewhere[point] = trial  # as one that runs
        return None

    def _finish(
        self, live: optuna.Study, running: _Running, evaluation: Evaluation, wanted: int, settling: _Settling
    ) -> bool:
        """Keep the trial; False where another sweep has taken the point over."""
        seconds = time.monotonic() - running.start_s
        record = {**self.record(running.candidate, evaluation, running.started, seconds), "trials_wanted": wanted}
        settling.ended(better=self._is_better(evaluation))
        if settling.settled:
            record["settled"] = True
        if not self._sharing.keep(running.point, record, wanted):
            self._elsewhere[running.point] = running.trial
            return False
        running.trial.set_user_attr(RECORD, record)
        # Pruned, not failed: TPE learns from complete and pruned trials only.
        if evaluation.outcome == "ok":
            live.tell(running.trial, evaluation.objective_us)
        else:
            live.tell(running.trial, state=TrialState.PRUNED)
        self._remember(record)
        return True

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

    def _progress(self, done: int, total: int) -> Progress:
        best_us, evidence = self._best or (None, "")
        return Progress(self.shape, done, total, best_us, evidence, dict(self._outcomes))


def _was_settled(trials: Sequence[Mapping[str, Any]], wanted: int) -> bool:
    """Whether the last of ``trials`` ended a search that could have gone on as far as this one."""
    record = trials[-1] if trials else {}
    return bool(record.get("settled")) and int(record["trials_wanted"]) >= wanted


def _uncertainty(record: Mapping[str, Any]) -> float:
    """Half of the interval of a measured time, as a part of it; 0 where there is none."""
    if "time_lo_us" not in record or "time_hi_us" not in record:
        return 0.0
    return float(record["time_hi_us"] - record["time_lo_us"]) / 2 / float(record["time_us"])
