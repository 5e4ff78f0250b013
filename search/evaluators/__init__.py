"""One way to judge candidates a file; what all of them have in common is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import ClassVar

from kernels.device import DeviceKey
from kernels.problem import GemmShape
from search.evaluation import Candidate, Evaluation, Point
from search.results.trials import KeptTrials
from search.space.available import available_spaces
from search.space.legal_set import legal_sets
from search.space.space import SearchSpace
from search.study.points import LegalPoints


class Evaluator:
    """Judges candidates, several at a time. What only some evaluators do is done by no other: nothing, by default."""

    device: DeviceKey
    protocol: str  # name and version of how the objective is obtained; part of a study's key
    capacity: int  # how many candidates to keep submitted
    lanes: int = 1  # studies that are served at a time
    ahead: ClassVar[bool] = False  # what waits for the last candidates of a study can be used by the next one
    offline: ClassVar[bool] = True  # judges without running the candidate on the device

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        """Start judging ``candidate``; the future raises only for a bug or a broken installation."""
        raise NotImplementedError

    def withdraw(self, answer: Future[Evaluation]) -> bool:
        """Give up a candidate for which nothing was done yet; False if its work has begun."""
        return False

    def prefer(self, answers: Sequence[Future[Evaluation]]) -> None:
        """Judge candidates of a study that wait in this order, as far as there is a choice."""

    def close(self) -> None:
        """Stop the workers; unfinished futures are cancelled."""

    def start(self, timeout_s: float) -> None:
        """Bring the workers up, so that no shape's share of the time is spent on that; wait ``timeout_s`` at most."""

    def available(
        self, spaces: Mapping[str, SearchSpace], asked: Sequence[str] | None
    ) -> tuple[Mapping[str, SearchSpace], list[str]]:
        """Those of ``spaces`` that can be searched here, as :func:`~search.space.available.available_spaces`."""
        return available_spaces(spaces, asked, self.device, offline=self.offline)

    def legal(self, spaces: Mapping[str, SearchSpace], shape: GemmShape) -> tuple[Mapping[str, LegalPoints], list[str]]:
        """What can be judged of ``spaces`` at ``shape``, and why a family has nothing.

        Raises:
            InputError: No family has a legal point.
        """
        return legal_sets(spaces.values(), shape, self.device)

    def hold_finals(self, kept: KeptTrials, shape: GemmShape, incumbent: Point | None, seed: int) -> None:
        """Where times are measured: settle in finals which of the study's trials is the fastest.

        Raises:
            FinalsFailedError: The finalists could not be timed; the trials stand as they are.
        """

    def study_ended(self, shape: GemmShape) -> None:
        """No more candidates of ``shape`` come."""
