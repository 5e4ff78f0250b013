"""A sweep in a process of its own that shares a storage: a formula judges, slowly, and each judgement is noted."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from fake_evaluator import FakeEvaluator, judge

from search.cli import app
from search.commands import sweep
from search.evaluation import Candidate, Evaluation
from search.results import claims

SLOWLY_S = 0.15


class SlowEvaluator(FakeEvaluator):
    """Two at a time; a line of the file ``log`` for each: process, shape and point."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log
        self._threads = ThreadPoolExecutor(2)

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        return self._threads.submit(self._judge, candidate)

    def _judge(self, candidate: Candidate) -> Evaluation:
        line = json.dumps([os.getpid(), str(candidate.shape), candidate.family, candidate.config.to_dict()])
        with self._log.open("a") as file:  # one write, which other processes do not cut
            file.write(line + "\n")
        time.sleep(SLOWLY_S)
        return judge(candidate)


def main(log: str, lapse_s: float, words: list[str]) -> None:
    """Run a command of the program whose candidates are judged so."""
    sweep.make_evaluator = lambda *_, **__: SlowEvaluator(Path(log))  # type: ignore[assignment]
    sweep.shared_claims = partial(claims.shared_claims, lapse_s=lapse_s)  # type: ignore[assignment]
    app(words, standalone_mode=False)
