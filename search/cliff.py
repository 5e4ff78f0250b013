"""The cliff: how long a shape takes beside its winner where no row serves it, or where the library chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from kernels.defaults import default_choice
from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.winners import Point, Winner, slowdowns

LIBRARY: Point = ("aiter", FAMILIES["aiter"].config_type())
UNTUNED, CHOSEN = "without a row the default takes", "AITER's own choice takes"


@dataclass(frozen=True)
class Cliff:
    """What else could serve, beside the winners.

    Args:
        subject: Words for it, up to the verb.
        factors: How many times as long as the winner it takes, by shape; 1 where it is as good.
    """

    subject: str
    factors: Mapping[GemmShape, float]

    def line(self) -> str:
        """One line for people."""
        worst = max(self.factors, key=lambda shape: self.factors[shape])
        least, most = (f"{limit(self.factors.values()):.2f}" for limit in (min, max))
        span = most if least == most else f"{least} to {most}"
        place = "" if len(self.factors) == 1 else f", most at {worst}"
        return f"{self.subject} {span} times as long as the winner{place}"


def cliffs(frame: pd.DataFrame, best: Sequence[Winner]) -> list[Cliff]:
    """The cliff to the default that serves an untuned shape, and that to the library, where results know them.

    Args:
        frame: Results with all columns.
        best: Winners of ``frame``.
    """
    known = slowdowns(frame, lambda device, shape: (_default(device, shape), LIBRARY))
    untuned: dict[GemmShape, float] = {}
    library: dict[GemmShape, float] = {}
    for winner in best:
        slower = known.get((winner.device, winner.shape), {})
        baseline_us = frame["baseline_us"][winner.row]  # of a measured trial: the default, on the same GPU
        if _default(winner.device, winner.shape) in slower:
            untuned[winner.shape] = 1 + slower[_default(winner.device, winner.shape)]
        elif winner.evidence == "measured" and not pd.isna(baseline_us):
            untuned[winner.shape] = max(1.0, float(baseline_us) / winner.cost_us)
        if LIBRARY in slower:
            library[winner.shape] = 1 + slower[LIBRARY]
    return [Cliff(subject, factors) for subject, factors in ((UNTUNED, untuned), (CHOSEN, library)) if factors]


def _default(device: DeviceKey, shape: GemmShape) -> Point:
    return default_choice(shape, device)
