"""search.study.study with a fake evaluator: what is kept, resumed and never repeated."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import optuna
import pytest
from fake_evaluator import FakeEvaluator, judge
from small_search import SHAPE, open_study, points, record

from kernels.families.fused import TileConfig
from search.evaluation import Candidate, Evaluation
from search.results.record import Record, point_of
from search.results.trials import KeptTrials
from search.study.study import Progress, Stopping, StudyRun, in_flight

GOOD = TileConfig(BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, num_warps=4)


def search(folder: Path, trials: int, evaluator: FakeEvaluator | None = None, **options: Any) -> FakeEvaluator:
    evaluator = evaluator or FakeEvaluator()
    run = StudyRun(open_study(folder), SHAPE, evaluator, points(), record, options.pop("notify", lambda _: None))
    run.run(sampler=options.pop("sampler", "tpe"), seed=0, trials=trials, **options)
    return evaluator


def records(folder: Path) -> list[Record]:
    return [trial.record for trial in KeptTrials(open_study(folder)).read()]


def test_keeps_every_trial_with_its_record(tmp_path: Path) -> None:
    search(tmp_path, trials=15)
    trials = open_study(tmp_path).trials
    assert len(trials) == 15
    for trial, kept in zip(trials, records(tmp_path), strict=True):
        assert kept["outcome"] == "ok"
        assert kept["predicted_us"] == trial.value
        assert "time_us" not in kept


def test_resumes_without_repeating_an_evaluation(tmp_path: Path) -> None:
    first = search(tmp_path, trials=12)
    second = search(tmp_path, trials=30)
    asked = [(c.family, c.config) for c in first.asked + second.asked]
    assert (len(first.asked), len(second.asked)) == (12, 18)
    assert len(set(asked)) == 30


def test_each_trial_says_how_many_its_run_was_to_reach(tmp_path: Path) -> None:
    search(tmp_path, trials=2)
    search(tmp_path, trials=3)
    kept = [record["trials_wanted"] for record in records(tmp_path)]
    assert kept == [2, 2, 3]
    total = points().total
    search(tmp_path, trials=10 * total, sampler="auto")
    assert records(tmp_path)[-1]["trials_wanted"] == total  # there are no more points


def test_a_finished_study_is_not_touched(tmp_path: Path) -> None:
    search(tmp_path, trials=12)
    assert search(tmp_path, trials=12).asked == []


def test_stops_when_no_point_is_left(tmp_path: Path) -> None:
    total = points().total
    assert len(search(tmp_path, trials=10 * total, sampler="auto").asked) == total


def test_tries_the_seeds_first_and_skips_illegal_and_repeated_ones(tmp_path: Path) -> None:
    illegal = TileConfig(BLOCK_M=256)
    other = TileConfig(BLOCK_M=8, BLOCK_N=128, BLOCK_K=512, num_warps=2)
    seeds = [("fused", illegal), ("fused", GOOD), ("fused", GOOD), ("fused", other)]
    asked = search(tmp_path, trials=5, seeds=seeds).asked
    assert [c.config for c in asked[:2]] == [GOOD, other]


@pytest.mark.parametrize(("sampler", "taken"), [("tpe", 12), ("surrogate", 8)])
def test_a_sampler_that_knows_better_takes_the_first_seeds_only(tmp_path: Path, sampler: str, taken: int) -> None:
    illegal = ("fused", TileConfig(BLOCK_M=256))
    seeds = [illegal, *(("fused", points().legal["fused"].config(index)) for index in range(0, 96, 8))]
    asked = search(tmp_path, trials=14, sampler=sampler, evaluator=FakeEvaluator(capacity=1), seeds=seeds).asked
    assert [c.config for c in asked[:taken]] == [config for _, config in seeds[1 : taken + 1]]
    assert [c.config for c in asked[taken:12]] != [config for _, config in seeds[taken + 1 :]] or taken == 12


def test_what_fails_is_recorded_as_pruned_with_its_reason(tmp_path: Path) -> None:
    def fail(candidate: Candidate) -> Evaluation:
        return Evaluation("resource_limit", "spills 12 registers")

    search(tmp_path, trials=3, evaluator=FakeEvaluator(fail))
    for trial in open_study(tmp_path).trials:
        assert trial.state == optuna.trial.TrialState.PRUNED
    assert {record["reason"] for record in records(tmp_path)} == {"spills 12 registers"}


def test_a_bug_in_the_evaluator_stops_the_run_and_keeps_what_was_done(tmp_path: Path) -> None:
    def break_at_five(candidate: Candidate) -> Evaluation:
        if len(evaluator.asked) == 5:
            raise ZeroDivisionError
        return judge(candidate)

    evaluator = FakeEvaluator(break_at_five, capacity=1)
    with pytest.raises(ZeroDivisionError):
        search(tmp_path, trials=10, evaluator=evaluator)
    assert len(open_study(tmp_path).trials) == 4


def test_a_passed_deadline_ends_the_search(tmp_path: Path) -> None:
    assert search(tmp_path, trials=10, deadline_s=0.0).asked == []


def test_a_small_share_of_the_time_is_a_trial_for_each_worker_at_least(tmp_path: Path) -> None:
    asked = search(tmp_path, trials=60, deadline_s=time.monotonic() + 600, shares=10**9).asked
    assert len(open_study(tmp_path).trials) == len(asked) == 2


def test_on_a_large_host_a_share_begins_after_16_trials_all_the_same(tmp_path: Path) -> None:
    evaluator = FakeEvaluator(capacity=257)
    search(tmp_path, trials=60, evaluator=evaluator, deadline_s=time.monotonic() + 600, shares=10**9)
    assert len(open_study(tmp_path).trials) < 40  # those that had begun by then may end, no other begins


def test_progress_counts_earlier_trials_and_names_the_best(tmp_path: Path) -> None:
    search(tmp_path, trials=4)
    seen: list[Progress] = []
    search(tmp_path, trials=6, notify=seen.append)
    assert [p.done for p in seen] == [4, 5, 6]
    best = min(t.value for t in open_study(tmp_path).trials if t.value is not None)
    assert (seen[-1].best_us, seen[-1].evidence) == (best, "predicted")
    assert sum(seen[-1].outcomes.values()) == 6


def test_a_point_is_read_back_from_its_record() -> None:
    candidate = Candidate(SHAPE, "fused", GOOD)
    kept = record(candidate, judge(candidate), "2026-01-01T00:00:00+00:00", 1.0)
    assert point_of(kept) == ("fused", GOOD)
    assert point_of({**kept, "family": "retired"}) is None


@pytest.mark.parametrize(
    ("capacity", "ended", "allowed"), [(1, 0, 1), (257, 0, 8), (257, 40, 20), (17, 40, 17), (257, 600, 257)]
)
def test_in_flight_are_half_as_many_as_have_ended(capacity: int, ended: int, allowed: int) -> None:
    assert in_flight(capacity, ended) == allowed


def test_a_large_host_proposes_no_more_than_it_knows(tmp_path: Path) -> None:
    class Slow(FakeEvaluator):
        """Answers one candidate after the other, when the search waits."""

        def submit(self, candidate: Candidate) -> Any:
            ahead.append(len(self.asked) - len(ended))
            return super().submit(candidate)

    ahead: list[int] = []
    ended: list[Progress] = []
    search(tmp_path, trials=40, evaluator=Slow(capacity=257), sampler="surrogate", notify=ended.append)
    assert max(ahead[:16]) < 16


class QueueingEvaluator(FakeEvaluator):
    """Judges one candidate a time, the one that the search prefers; the others wait."""

    def __init__(self) -> None:
        super().__init__(capacity=12)
        self.waiting: dict[Future[Evaluation], Candidate] = {}
        self.withdrawn: list[Candidate] = []

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        self.asked.append(candidate)
        answer: Future[Evaluation] = Future()
        self.waiting[answer] = candidate
        return answer

    def withdraw(self, answer: Future[Evaluation]) -> bool:
        if answer is next(iter(self.waiting)):
            return False  # its work has begun
        self.withdrawn.append(self.waiting.pop(answer))
        return True

    def prefer(self, answers: Sequence[Future[Evaluation]]) -> None:
        if answers:
            answers[0].set_result(self.function(self.waiting.pop(answers[0])))


def test_what_waits_and_has_become_hopeless_is_given_up_and_may_come_again(tmp_path: Path) -> None:
    evaluator = QueueingEvaluator()
    search(tmp_path, trials=60, evaluator=evaluator, sampler="surrogate")
    trials = open_study(tmp_path).trials
    judged = [point_of(record) for record in records(tmp_path)]
    assert len(set(judged)) == len(trials) == 60
    assert evaluator.withdrawn
    assert len(evaluator.asked) == 60 + len(evaluator.withdrawn)  # a trial that was given up is no trial
    assert min(trial.value for trial in trials if trial.value is not None) == 10.0  # the best of all


def test_patience_ends_a_search_and_the_same_command_does_not_go_on(tmp_path: Path) -> None:
    best = [("fused", GOOD)]
    search(tmp_path, trials=40, evaluator=FakeEvaluator(capacity=1), seeds=best, stopping=Stopping(patience=5))
    assert [record.get("settled") for record in records(tmp_path)] == [None] * 5 + [True]
    assert search(tmp_path, trials=40).asked == []
    assert len(search(tmp_path, trials=41).asked) == 35  # who asks for more gets more


def test_a_search_that_promises_nothing_more_ends(tmp_path: Path) -> None:
    options: dict[str, Any] = {"sampler": "surrogate", "stopping": Stopping(until=0.01)}
    search(tmp_path, trials=160, evaluator=FakeEvaluator(capacity=1), **options)
    trials = open_study(tmp_path).trials
    assert len(trials) < 160
    assert min(trial.value for trial in trials if trial.value is not None) == 10.0  # the best of all
