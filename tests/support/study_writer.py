"""A process that shares a small study on PostgreSQL: it leads it or helps until all is done, and may be killed."""

from __future__ import annotations

import time
from pathlib import Path

import optuna
from fake_evaluator import FakeEvaluator, NotedEvaluator
from small_search import SHAPE, points, record

from search.evaluation import Candidate
from search.results.claims import SharedClaims, key_of
from search.results.storage import open_storage
from search.results.trials import KeptTrials
from search.study.sharing import SharedStudy, SharedTrials
from search.study.study import StudyRun

STUDY = "shared"
SLOWLY_S = 0.02
LOOK_S = 0.1


def told(candidate: Candidate) -> list[str]:
    """Its point."""
    return [key_of((candidate.family, candidate.config))]


def search(kept: optuna.Study, evaluator: FakeEvaluator, trials: int, sharing: SharedStudy | None) -> None:
    run = StudyRun(kept, SHAPE, evaluator, points(), record, sharing=sharing)
    run.run(sampler="grid", seed=0, trials=trials)


def main(url: str, log: str, trials: int, lapse_s: float) -> None:
    """Share the study until it has ``trials`` trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = open_storage(url, create=False)
    claims = SharedClaims(storage, lapse_s)  # type: ignore[arg-type] # PostgreSQL
    kept = optuna.load_study(storage=storage, study_name=STUDY)
    evaluator = NotedEvaluator(Path(log), SLOWLY_S, told)
    while sum(not trial.final for trial in KeptTrials(kept).read()) < trials:
        leads = claims.lease(kept._study_id)
        search(kept, evaluator, trials, SharedStudy(SharedTrials(kept, claims), waits=leads))
        time.sleep(0 if leads else LOOK_S)
    claims.close()
