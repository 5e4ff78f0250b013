"""offline_record: goes on where it ended, and stops when its time is over."""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path

from offline_record import SPACES, append, left, records_of

from kernels.device import GFX950
from kernels.problem import GemmShape
from search.evaluation import Candidate, Evaluation
from search.evaluators import Evaluator

SHAPE = GemmShape(256, 3072, 1536)


class Instant(Evaluator):
    """Judges at once."""

    device, protocol, capacity = GFX950, "offline-test", 2

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        answer: Future[Evaluation] = Future()
        answer.set_result(Evaluation("ok", evidence="predicted", objective_us=9.0))
        return answer


def test_what_is_recorded_is_not_judged_again(tmp_path: Path) -> None:
    every = left(SHAPE, SPACES, tmp_path / "none.parquet")
    assert len(set(every)) == len(every) > 100
    for part in (every[:3], every[3:5]):
        for record in records_of(Instant(), part, time.monotonic() + 60):
            append(record, tmp_path / "some.parquet")
    assert left(SHAPE, SPACES, tmp_path / "some.parquet") == every[5:]


def test_nothing_begins_after_the_end() -> None:
    candidates = left(SHAPE, SPACES, Path("none.parquet"))[:5]
    assert len(list(records_of(Instant(), candidates, time.monotonic() + 60))) == 5
    assert list(records_of(Instant(), candidates, time.monotonic())) == []
