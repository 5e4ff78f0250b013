"""search.study.sharing on a real PostgreSQL: the points of a shared study do not depend on who was killed, or when."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path

import optuna
import pytest
import study_writer
from fake_evaluator import FakeEvaluator, judge
from fake_gpu import H200
from hatchery import Hatchery, hatchery
from postgres import Server, running_server
from small_search import SHAPE, record
from sqlalchemy.exc import OperationalError
from study_writer import STUDY

from kernels.families.fused import TileConfig
from search.device.finals import decide
from search.evaluation import Candidate, Evaluation, FinalTimes, Point
from search.results.claims import Claim, Ledger, SharedClaims, key_of
from search.results.record import Record, point_of
from search.results.storage import open_storage
from search.study.sharing import SharedStudy, SharedTrials

TRIALS = 20
LAPSE_S = 0.8
RUNS = 4  # of three writers each
WAIT_S = 120.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as running:
        open_storage(running.url, create=True)
        yield running


@pytest.fixture
def study(server: Server) -> Iterator[optuna.Study]:
    storage = open_storage(server.url, create=False)
    yield optuna.create_study(storage=storage, study_name=STUDY)
    optuna.delete_study(storage=storage, study_name=STUDY)


@pytest.fixture
def claims(server: Server) -> Iterator[SharedClaims]:
    made = SharedClaims(open_storage(server.url, create=False), LAPSE_S)  # type: ignore[arg-type] # PostgreSQL
    yield made
    made.close()


def point(group: int) -> Point:
    return "fused", TileConfig(GROUP_M=group)


def trial(group: int) -> Record:
    candidate = Candidate(SHAPE, *point(group))
    return dict(record(candidate, judge(candidate), "2026-11-30T15:00:00+00:00", 0.25))


def shared(study: optuna.Study, claims: SharedClaims) -> SharedStudy:
    return SharedStudy(SharedTrials(study, claims), waits=True)


def points_of(study: optuna.Study, claims: SharedClaims) -> list[str]:
    found = [point_of(trial.record) for trial in SharedTrials(study, claims).read() if not trial.final]
    return sorted(key_of(one) for one in found if one is not None)


def test_what_one_keeps_is_news_to_the_other_once(study: optuna.Study, claims: SharedClaims, server: Server) -> None:
    others = SharedClaims(open_storage(server.url, create=False), LAPSE_S)  # type: ignore[arg-type] # PostgreSQL
    first, second = shared(study, claims), shared(study, others)
    assert first.claim(point(1), 2) is Claim.ours
    assert second.claim(point(1), 2) is Claim.taken
    assert first.keep(point(1), trial(1), 2)
    assert first.news().records == [] and second.news().records == [trial(1)] and second.news().records == []
    assert (first.stored, second.stored) == (1, 1)
    assert second.claim(point(1), 2) is Claim.taken and second.vacant(2)
    assert second.claim(point(2), 2) is Claim.ours
    assert first.claim(point(4), 2) is Claim.full and not first.vacant(2)
    others.close()
    assert first.vacant(2)


def test_a_trial_whose_answer_is_lost_is_stored_once_and_comes_as_news(
    study: optuna.Study, claims: SharedClaims, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = shared(study, claims)
    mine.claim(point(1), 9)
    whole, answers = SharedClaims.ledger, iter([True])

    @contextmanager
    def losing(self: SharedClaims, number: int) -> Iterator[Ledger]:
        with whole(self, number) as ledger:
            yield ledger
        if next(answers, False):
            raise OperationalError("COMMIT", {}, Exception("server closed the connection"))

    monkeypatch.setattr(SharedClaims, "ledger", losing)
    assert not mine.keep(point(1), trial(1), 9)
    assert mine.news().records == [trial(1)]
    answers = iter([True])
    SharedTrials(study, claims).add(trial(2), final=True)
    assert [one.record for one in SharedTrials(study, claims).read()] == [trial(1), trial(2)]


def test_a_process_that_was_silent_for_long_stores_nothing_beyond_the_number_of_trials(
    study: optuna.Study, claims: SharedClaims, server: Server
) -> None:
    silent = SharedClaims(open_storage(server.url, create=False), LAPSE_S)  # type: ignore[arg-type] # PostgreSQL
    late = shared(study, silent)
    assert late.claim(point(1), 1) is Claim.ours
    silent._closed.set()
    time.sleep(2.5 * LAPSE_S)
    other = shared(study, claims)
    assert other.claim(point(2), 1) is Claim.ours
    assert not late.keep(point(1), trial(1), 1)
    assert other.keep(point(2), trial(2), 1)
    assert points_of(study, claims) == [key_of(point(2))]


class ServerDies:
    """Finals during which the database server dies; it starts again when they have ended."""

    device = H200

    def __init__(self, server: Server) -> None:
        self._server = server

    def finals(self, candidates: Sequence[Candidate], *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        self._server.kill()
        threading.Timer(1.5, self._server.start).start()
        return self._times([float(one.config.to_dict()["GROUP_M"]) for one in candidates], rounds)

    def confirm(self, winner: Candidate, *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        return self._times([1.0, 1.5], rounds)

    def _times(self, row: list[float], rounds: int) -> Future[FinalTimes]:
        answer: Future[FinalTimes] = Future()
        answer.set_result(FinalTimes((tuple(row),) * rounds))
        return answer


def test_finals_wait_for_a_server_that_dies_meanwhile(
    study: optuna.Study, claims: SharedClaims, server: Server
) -> None:
    trials = SharedTrials(study, claims)
    for group in (1, 2, 4):
        facts = {"time_lo_us": 9.9, "time_hi_us": 10.1, "protocol": "cold-graph-v1", "deterministic": True}
        evaluation = Evaluation("ok", "", "measured", 10.0, facts)
        trials.add(record(Candidate(SHAPE, *point(group)), evaluation, "2026-11-30T15:00:00+00:00", 0.25))
    decision = decide(trials, SHAPE, ServerDies(server), None)
    assert decision is not None and decision.confirmed_us == 1.5
    finals = [one.record for one in trials.read() if one.final]
    assert {final["GROUP_M"]: final["time_us"] for final in finals} == {1: 1.0, 2: 2.0, 4: 4.0} and len(finals) == 3
    assert [final["GROUP_M"] for final in finals if final["selected"]] == [1]


@pytest.fixture(scope="module")
def writers() -> Iterator[Hatchery]:
    with hatchery(study_writer) as made:
        yield made


@pytest.fixture(scope="module")
def alone() -> list[str]:
    """The points that one process tries."""
    evaluator = FakeEvaluator()
    study_writer.search(optuna.create_study(), evaluator, TRIALS, None)
    return sorted(key_of((one.family, one.config)) for one in evaluator.asked)


@pytest.mark.parametrize("seed", range(RUNS))
def test_three_writers_try_the_points_of_one_whichever_is_killed_whenever(
    seed: int, study: optuna.Study, claims: SharedClaims, server: Server, writers: Hatchery,
    alone: list[str], tmp_path: Path,
) -> None:  # fmt: skip
    log = tmp_path / "log"
    processes = writers.fork([[server.url, str(log), TRIALS, LAPSE_S]] * 3)
    chance = random.Random(seed)
    victim, judgements = chance.choice(processes), chance.randrange(1, TRIALS)
    end_s = time.monotonic() + WAIT_S
    while time.monotonic() < end_s and (not log.exists() or log.read_bytes().count(b"\n") < judgements):
        time.sleep(0.005)
    time.sleep(chance.uniform(0, 2 * study_writer.SLOWLY_S))
    with suppress(ProcessLookupError):  # it may have ended
        os.kill(victim, signal.SIGKILL)
    codes = dict(zip(processes, writers.codes(), strict=True))
    assert {codes.pop(victim)} <= {0, -signal.SIGKILL} and set(codes.values()) == {0}
    assert points_of(study, claims) == alone
    judged = Counter(key for process, key in map(json.loads, log.read_text().splitlines()) if process != victim)
    assert max(judged.values()) == 1
