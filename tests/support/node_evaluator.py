"""What a node of a cluster holds in tests: a formula in the place of compiler and GPU."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from fake_evaluator import FakeEvaluator, bowl

from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from search.device.ahead import Artefacts, Compiled
from search.evaluation import Candidate, Evaluation, FinalTimes
from search.evaluators import offline
from search.evaluators.offline import OfflineEvaluator
from search.evaluators.offline_task import OfflineTask


class NodeEvaluator(FakeEvaluator):
    """Judges in threads, and notes who judged; GROUP_M = 5 is a bug, GROUP_M = 7 takes its process with it.

    GROUP_M = 9 waits until it is withdrawn.
    """

    lanes = 1

    def __init__(self, jobs: int, device: DeviceKey = GFX950, slowly_s: float = 0.0) -> None:
        super().__init__(capacity=2 * jobs)
        self.device = device  # type: ignore[misc]
        self._slowly_s = slowly_s

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        answer: Future[Evaluation] = Future()
        if candidate.config.to_dict()["GROUP_M"] != 9:
            threading.Thread(target=self._judge, args=(candidate, answer)).start()
        return answer

    def withdraw(self, answer: Future[Evaluation]) -> bool:
        answer.set_result(Evaluation("crashed", "withdrawn"))
        return True

    def _judge(self, candidate: Candidate, answer: Future[Evaluation]) -> None:
        group = candidate.config.to_dict()["GROUP_M"]
        if group == 5:
            answer.set_exception(InputError("the compiler is gone"))
            return
        if group == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self._slowly_s)
        facts = {"device_name": str(os.getpid())}
        answer.set_result(Evaluation("ok", "", "predicted", bowl(candidate.config), facts))

    def finals(self, candidates: Sequence[Candidate], *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        return self._times(len(candidates), rounds)

    def confirm(self, winner: Candidate, *, rounds: int, seed: int = 0) -> Future[FinalTimes]:
        return self._times(2, rounds)

    def _times(self, count: int, rounds: int) -> Future[FinalTimes]:
        answer: Future[FinalTimes] = Future()
        answer.set_result(FinalTimes(((float(os.getpid()),) * count,) * rounds))
        return answer


def mortal(jobs: int) -> OfflineEvaluator:
    """Judges in real worker processes: GROUP_M = 7 kills its own, GROUP_M = 9 does not end."""
    offline.judge_in_worker = _judge_or_die  # type: ignore[assignment] # in the process of the host
    return OfflineEvaluator(jobs=jobs, timeout_s=2.0)


def _judge_or_die(task: OfflineTask, **_: object) -> Evaluation:
    group = task.candidate.config.to_dict()["GROUP_M"]
    if group == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600 if group == 9 else 0)
    return Evaluation("ok", "", "predicted", bowl(task.candidate.config))


def sending(device: DeviceKey) -> Callable[[Candidate], tuple[Evaluation | Compiled, Artefacts]]:
    """Compiles as :func:`compile_or_refuse`, whatever the device."""
    return compile_or_refuse


def compile_or_refuse(candidate: Candidate) -> tuple[Evaluation | Compiled, Artefacts]:
    """On a node that compiles: GROUP_M = 3 does not compile, 7 takes its process with it; others give one file."""
    group = candidate.config.to_dict()["GROUP_M"]
    if group == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    if group == 3:
        return Evaluation("compile_error", "3 is too much here"), Artefacts()
    made = Artefacts({(f"KEY{group}", "k.json"): {"k.json": b"{}"}})
    return Compiled(0.1, cached=False, kernels=1, lds_bytes=0), made
