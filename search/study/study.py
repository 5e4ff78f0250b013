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
from typing import Any

import optuna
from optuna.trial import TrialState

from kernels.problem import GemmShape
from search.evaluation import Candidate, Evaluation, Judge, Point, Value
from search.results.dashboard import main_facts
from search.results.record import FINAL, RECORD, point_of
from search.study.points import Points, distributions, suggest
from search.study.samplers import make_sampler

FIRST_TRIALS = 16  # at most, that a search has before its share of the time begins
LOOK_S = 0.5  # how often a search that waits looks whether it shall stop
Record = Callable[[Candidate, Evaluation, str, float], Mapping[str, Value]]


@dataclass(frozen=True)
class Progress:
    """State of a study, for people who wait.

    Args:
        shape: Being searched.
        done: Trials that ended, earlier runs included.
        total: Trials wanted.
        best_us: Smallest objective so far, None before the first.
        evidence: Whether it was measured or predicted, "" before the first.
        outcomes: Trials by outcome.
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
class StudyRun:
    """Runs the trials of one study.

    Args:
        kept: Study in the storage.
        shape: Problem.
        evaluator: Judges the candidates.
        points: Legal points of the shape.
        record: Results row of (candidate, evaluation, start time, seconds).
        notify: Told after every trial.
        stop: Ends the search when it is set.
    """

    kept: optuna.Study
    shape: GemmShape
    evaluator: Judge
    points: Points
    record: Record
    notify: Callable[[Progress], None] = lambda progress: None
    stop: threading.Event = field(default_factory=threading.Event)
    _outcomes: Counter[str] = field(default_factory=Counter)
    _best: tuple[float, str] | None = None

    def run(
        self,
        *,
        sampler: str,
        seed: int,
        trials: int,
        seeds: Sequence[Point] = (),
        deadline_s: float | None = None,
        shares: float = 1,
    ) -> Progress:
        """Run until the study holds ``trials`` trials, no point is left, or the deadline has passed.

        Args:
            sampler: Name of the sampler.
            seed: Of the sampler.
            trials: Trials wanted, those of earlier runs included.
            seeds: Points to try first, in order; illegal and tried ones are skipped.
            deadline_s: End, on the clock of ``time.monotonic``.
            shares: The search takes one of so many equal parts of the time until then. Its part begins when as many
                trials have ended as are judged at a time, or 16: a small one would end before the first.

        Returns:
            State at the end.
        """
        kept = self.kept.get_trials(deepcopy=False)
        earlier = [t for t in kept if RECORD in t.user_attrs and FINAL not in t.user_attrs]
        for trial in earlier:
            self._remember(trial.user_attrs["record"])
        total = min(trials, len(earlier) + self.points.untried)
        self.notify(self._progress(len(earlier), total))
        if total > len(earlier):
            end_s = math.inf if deadline_s is None else deadline_s
            self._search(earlier, sampler, seed, total, deque(seeds), _Clock(end_s, shares, self.evaluator.capacity))
        return self._progress(sum(self._outcomes.values()), total)

    def _search(
        self,
        earlier: list[optuna.trial.FrozenTrial],
        sampler: str,
        seed: int,
        total: int,
        seeds: deque[Point],
        clock: _Clock,
    ) -> None:
        spaces = distributions(self.points)
        chosen = make_sampler(
            sampler, self.points, spaces, seed=seed + len(earlier), budget=total - len(earlier),
            shape=self.shape, device=self.evaluator.device,
        )  # fmt: skip
        live = optuna.create_study(sampler=chosen)
        live.add_trials(earlier)
        running: dict[Future[Evaluation], _Running] = {}
        done = len(earlier)
        while done < total and clock.left_s > 0 and not self.stop.is_set():
            while len(running) < self.evaluator.capacity and done + len(running) < total:
                future, started = self._start(live, spaces, seeds)
                running[future] = started
            for future in wait(running, min(clock.left_s, LOOK_S), FIRST_COMPLETED).done:
                self._finish(live, running.pop(future), future.result(), total)
                done += 1
                clock.ended(done - len(earlier))
                self.notify(self._progress(done, total))
        for future in running:
            future.cancel()

    def _start(
        self, live: optuna.Study, spaces: Mapping[str, Mapping[str, Any]], seeds: deque[Point]
    ) -> tuple[Future[Evaluation], _Running]:
        while seeds:
            family, config = seeds.popleft()
            if self.points.is_untried(family, config):
                values = config.to_dict()
                live.enqueue_trial({"family": family, **{name: values[name] for name in spaces[family]}})
                break
        trial = live.ask()
        family, config = suggest(trial, spaces)
        self.points.mark(family, config)
        candidate = Candidate(self.shape, family, config)
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        return self.evaluator.submit(candidate), _Running(trial, candidate, started, time.monotonic())

    def _finish(self, live: optuna.Study, running: _Running, evaluation: Evaluation, wanted: int) -> None:
        seconds = time.monotonic() - running.start_s
        record = {**self.record(running.candidate, evaluation, running.started, seconds), "trials_wanted": wanted}
        for name, value in {RECORD: record, **main_facts(record)}.items():
            running.trial.set_user_attr(name, value)
        # Pruned, not failed: TPE learns from complete and pruned trials only.
        if evaluation.outcome == "ok":
            told = live.tell(running.trial, evaluation.objective_us)
        else:
            told = live.tell(running.trial, state=TrialState.PRUNED)
        self.kept.add_trial(told)
        self._remember(record)

    def _remember(self, record: Mapping[str, Any]) -> None:
        point = point_of(record)
        if point is not None:
            self.points.mark(*point)
        self._outcomes[record["outcome"]] += 1
        if record["outcome"] == "ok":
            best = (record["time_us" if record["evidence"] == "measured" else "predicted_us"], record["evidence"])
            self._best = min(best, self._best or best)

    def _progress(self, done: int, total: int) -> Progress:
        best_us, evidence = self._best or (None, "")
        return Progress(self.shape, done, total, best_us, evidence, dict(self._outcomes))
