"""An evaluator that needs no compiler: the time is a formula of the configuration. Shared by the search's tests."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from kernels.config import KernelConfig
from kernels.device import GFX950
from search.evaluation import Candidate, Evaluation
from search.evaluators import Evaluator


def bowl(config: KernelConfig) -> float:
    """Microseconds with one best point: BLOCK_M = 16, BLOCK_N = 64, BLOCK_K = 256, 4 waves; other knobs are free."""
    knobs = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 256, "num_warps": 4}
    values = config.to_dict()
    return 10.0 + sum(abs(int(values.get(name, best)).bit_length() - best.bit_length()) for name, best in knobs.items())


def judge(candidate: Candidate) -> Evaluation:
    """Configurations with BLOCK_N = 256 do not compile; the others take what ``bowl`` says."""
    if candidate.config.to_dict().get("BLOCK_N") == 256:
        return Evaluation("compile_error", "BLOCK_N = 256 is too large for this fake")
    return Evaluation("ok", evidence="predicted", objective_us=bowl(candidate.config))


class FakeEvaluator(Evaluator):
    """Answers at once and remembers what it was asked."""

    device = GFX950
    protocol = "fake-v1"

    def __init__(self, function: Callable[[Candidate], Evaluation] = judge, capacity: int = 2) -> None:
        self.function = function
        self.capacity = capacity
        self.asked: list[Candidate] = []

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        self.asked.append(candidate)
        future: Future[Evaluation] = Future()
        future.set_result(self.function(candidate))
        return future


class NotedEvaluator(FakeEvaluator):
    """Two at a time, slowly; a line of the file ``log`` for each: the process and what ``told`` says of it."""

    def __init__(self, log: Path, seconds: float, told: Callable[[Candidate], list[Any]]) -> None:
        super().__init__()
        self._log, self._seconds, self._told = log, seconds, told
        self._threads = ThreadPoolExecutor(2)

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        return self._threads.submit(self._judge, candidate)

    def _judge(self, candidate: Candidate) -> Evaluation:
        with self._log.open("a") as file:  # one write, which other processes do not cut
            file.write(json.dumps([os.getpid(), *self._told(candidate)]) + "\n")
        time.sleep(self._seconds)
        return judge(candidate)
