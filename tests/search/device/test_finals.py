"""search.device.finals: what the finals decide is kept with the trials, and wins."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
import optuna
import pytest
from fake_gpu import H200

from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.device.finals import decide
from search.evaluation import Candidate, Evaluation, FinalsFailedError, FinalTimes
from search.results.columns import COLUMNS, typed_frame
from search.results.record import RECORD, make_record
from search.results.trials import KeptTrials
from search.results.winners import winners

SHAPE = GemmShape(16, 2112, 7168)


def candidate(group: int) -> Candidate:
    return Candidate(SHAPE, "fused", TileConfig(GROUP_M=group, quantizer="software"))


def study(times_us: dict[int, float]) -> optuna.Study:
    kept = optuna.create_study()
    for group, time_us in times_us.items():
        facts = {"time_lo_us": time_us - 0.2, "time_hi_us": time_us + 0.2, "protocol": "cold-graph-v1", "vgprs": 64,
                 "deterministic": True, "roofline_us": 2.0}  # fmt: skip
        evaluation = Evaluation("ok", "", "measured", time_us, facts)
        record = make_record(
            study="s", device=H200, candidate=candidate(group), evaluation=evaluation,
            started="2026-11-29T20:00:00+00:00", duration_s=0.5, versions={"triton": "3.6.0", "torch": "2.11.0"},
        )  # fmt: skip
        kept.add_trial(optuna.trial.create_trial(value=time_us, user_attrs={RECORD: record}))
    return kept


class SideBySide:
    """Finals whose times are given by GROUP_M, with a little noise."""

    device = H200

    def __init__(self, times_us: dict[int, float], fails: bool = False) -> None:
        self.times_us = times_us
        self.fails = fails
        self.asked: list[int] = []

    def finals(self, candidates: Sequence[Candidate], *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        self.asked += [one.config.GROUP_M for one in candidates]
        means = [self.times_us[one.config.GROUP_M] for one in candidates]
        noise = np.random.default_rng(seed).normal(0, 0.05, (rounds, len(means)))
        return self._answer((np.asarray(means) + noise).tolist())

    def confirm(self, winner: Candidate, *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        own = self.times_us[winner.config.GROUP_M]
        return self._answer([[own, own + 0.5]] * rounds)

    def _answer(self, rounds: list[list[float]]) -> Future[FinalTimes]:
        future: Future[FinalTimes] = Future()
        if self.fails:
            future.set_exception(FinalsFailedError("crashed: gone"))
        else:
            future.set_result(FinalTimes(tuple(map(tuple, rounds))))
        return future


def frame(kept: optuna.Study) -> object:
    records = [{"trial": trial.number, **trial.record} for trial in KeptTrials(kept).read()]
    return typed_frame({name: [record.get(name) for record in records] for name in COLUMNS})


def test_the_winner_of_the_finals_wins_the_shape_although_the_search_ranked_it_last() -> None:
    kept = study({1: 20.0, 2: 20.1, 4: 20.2, 8: 40.0})
    decision = decide(KeptTrials(kept), SHAPE, SideBySide({1: 20.8, 2: 21.0, 4: 19.9}), None)
    assert decision is not None
    assert decision.selection.winner.finalist.candidate == candidate(4)
    assert decision.confirmed_us == pytest.approx(20.4)
    found = winners(frame(kept))  # type: ignore[arg-type]
    assert [one.config for one in found] == [candidate(4).config]
    assert found[0].cost_us == pytest.approx(19.9, abs=0.05)
    assert found[0].margin == pytest.approx(0.9 / 19.9, abs=0.01)


class NeverServed(SideBySide):
    def confirm(self, winner: Candidate, *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        future: Future[FinalTimes] = Future()
        future.set_exception(FinalsFailedError("timed_out: on the GPU: no answer within 300 s"))
        return future


def test_a_winner_that_the_dispatcher_did_not_time_keeps_the_reason() -> None:
    kept = study({1: 20.0, 2: 20.1, 4: 30.0, 8: 40.0})
    decide(KeptTrials(kept), SHAPE, NeverServed({1: 20.0, 2: 22.0, 4: 30.0}), None)
    added = [trial.record for trial in KeptTrials(kept).read() if trial.final]
    assert [record.get("reason") for record in added] == [
        "not timed through the dispatcher: timed_out: on the GPU: no answer within 300 s", None, None,
    ]  # fmt: skip
    assert [record["selected"] for record in added] == [True, False, False]


def test_each_finalist_becomes_a_trial_with_its_new_time_and_the_winner_says_how_sure_it_is() -> None:
    kept = study({1: 20.0, 2: 20.1, 4: 30.0, 8: 40.0})
    decide(KeptTrials(kept), SHAPE, SideBySide({1: 20.0, 2: 22.0, 4: 30.0}), None)
    added = [trial.record for trial in KeptTrials(kept).read() if trial.final]
    assert [record["GROUP_M"] for record in added] == [1, 2, 4]  # fastest first
    assert [record["selected"] for record in added] == [True, False, False]
    assert added[0]["margin_us"] == pytest.approx(2.0, abs=0.1)
    assert (added[0]["tie"], added[0]["confidence"] > 0.99, added[0]["rank_tau"]) == (False, True, 1.0)
    assert added[1]["time_us"] == pytest.approx(22.0, abs=0.1)
    assert added[1]["roofline_fraction"] == pytest.approx(2.0 / 22.0, rel=0.01)
    assert (added[1]["samples"], added[1]["vgprs"], added[1]["triton"]) == (40, 64, "3.6.0")


def test_the_incumbent_is_re_timed_and_stays_inside_the_noise() -> None:
    kept = study({1: 20.0, 2: 20.1, 4: 20.2, 8: 25.0})
    evaluator = SideBySide({1: 20.0, 2: 20.0, 4: 20.0, 8: 20.05})
    decision = decide(KeptTrials(kept), SHAPE, evaluator, ("fused", candidate(8).config))
    assert sorted(evaluator.asked) == [1, 2, 4, 8]
    assert decision is not None and decision.selection.winner.finalist.candidate == candidate(8)
    assert decision.selection.tie


def test_nothing_is_decided_twice_or_without_trials() -> None:
    kept = study({1: 20.0, 2: 20.1})
    evaluator = SideBySide({1: 20.0, 2: 21.0})
    assert decide(KeptTrials(kept), SHAPE, evaluator, None) is not None
    assert decide(KeptTrials(kept), SHAPE, evaluator, None) is None
    assert decide(KeptTrials(study({})), SHAPE, evaluator, None) is None


def test_finals_that_were_cut_short_before_the_winner_was_kept_are_held_again() -> None:
    times_us = {1: 20.0, 2: 20.05, 4: 30.0}
    whole = study(times_us)
    incumbent = ("fused", candidate(2).config)  # ties with the fastest and wins, so that it is kept second
    assert decide(KeptTrials(whole), SHAPE, SideBySide(times_us), incumbent) is not None
    kept = study(times_us)
    kept.add_trial(whole.get_trials()[3])  # the first of the finals
    assert KeptTrials(kept).read()[3].record["selected"] is False
    again = decide(KeptTrials(kept), SHAPE, SideBySide(times_us), incumbent)
    assert again is not None and again.selection.winner.finalist.candidate == candidate(2)
    assert decide(KeptTrials(kept), SHAPE, SideBySide(times_us), incumbent) is None
    kept.add_trial(study({8: 25.0}).get_trials()[0])  # the search went on
    assert decide(KeptTrials(kept), SHAPE, SideBySide({**times_us, 8: 25.0}), incumbent) is not None


def test_finals_that_fail_leave_the_trials_as_they_are() -> None:
    kept = study({1: 20.0, 2: 20.1})
    with pytest.raises(FinalsFailedError):
        decide(KeptTrials(kept), SHAPE, SideBySide({1: 20.0, 2: 21.0}, fails=True), None)
    assert len(kept.get_trials()) == 2
