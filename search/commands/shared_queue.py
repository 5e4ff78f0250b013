"""The shapes of a sweep that shares its storage: each is led by one sweep, and seen to its end by all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import optuna

from kernels.problem import GemmShape
from search.results.claims import SharedClaims


class SharedQueue:
    """What is left to do; its methods may be called from several threads.

    Args:
        shapes: In the order in which they are led.
    """

    def __init__(
        self, claims: SharedClaims, shapes: Sequence[GemmShape], open_study: Callable[[GemmShape], optuna.Study]
    ) -> None:
        self._claims = claims
        self._open_study = open_study
        self._waiting = list(shapes)
        self._numbers: dict[GemmShape, int] = {}  # of their studies, as far as they were looked at
        self._taken: dict[GemmShape, int] = {}  # numbers of the studies that this sweep leads
        self._lock = threading.Lock()

    @property
    def left(self) -> list[GemmShape]:
        """Shapes that were not led to their end here."""
        with self._lock:
            return list(self._waiting)

    def take(self) -> GemmShape | None:
        """The first shape that no other sweep leads, which this one leads from now on; None if there is none."""
        with self._lock:
            for shape in self._waiting:
                study = self._number(shape)
                if self._claims.lease(study):
                    self._waiting.remove(shape)
                    self._taken[shape] = study
                    return shape
            return None

    def done(self, shape: GemmShape) -> None:
        """The search of ``shape`` has ended, and other sweeps may look at it."""
        with self._lock:
            self._claims.release(self._taken.pop(shape))

    def _number(self, shape: GemmShape) -> int:
        if shape not in self._numbers:
            self._numbers[shape] = self._open_study(shape)._study_id
        return self._numbers[shape]
