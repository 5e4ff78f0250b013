"""A process that shares a small study on PostgreSQL: it leads it or helps until all is done, and may be killed."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import optuna
from fake_evaluator import FakeEvaluator, judge
from small_search import SHAPE, points, record

from search.evaluation import Candidate, Evaluation
from search.results.claims import SharedClaims, key_of
from search.results.storage import open_storage
from search.results.trials import KeptTrials
from search.study.sharing import SharedStudy, SharedTrials
from search.study.study import StudyRun

STUDY = "shared"
SLOWLY_S = 0.02
LOOK_S = 0.1


class NotedEvaluator(FakeEvaluator):
    """Two at a time; a line of the file ``log`` for each: process and point."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log
        self._threads = ThreadPoolExecutor(2)

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        return self._threads.submit(self._judge, candidate)

    def _judge(self, candidate: Candidate) -> Evaluation:
        with self._log.open("a") as file:  # one write, which other processes do not cut
            file.write(json.dumps([os.getpid(), key_of((candidate.family, candidate.config))]) + "\n")
        time.sleep(SLOWLY_S)
        return judge(candidate)


def search(kept: optuna.Study, evaluator: FakeEvaluator, trials: int, sharing: SharedStudy | None) -> None:
    run = StudyRun(kept, SHAPE, evaluator, points(), record, sharing=sharing)
    run.run(sampler="grid", seed=0, trials=trials)


def main(url: str, log: str, trials: int, lapse_s: float) -> None:
    """Share the study until it has ``trials`` trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = open_storage(url, create=False)
    claims = SharedClaims(storage, lapse_s)  # type: ignore[arg-type] # PostgreSQL
    kept = optuna.load_study(storage=storage, study_name=STUDY)
    evaluator = NotedEvaluator(Path(log))
    while sum(not trial.final for trial in KeptTrials(kept).read()) < trials:
        leads = claims.lease(kept._study_id)
        search(kept, evaluator, trials, SharedStudy(SharedTrials(kept, claims), waits=leads))
        time.sleep(0 if leads else LOOK_S)
    claims.close()
