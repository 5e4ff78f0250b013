"""The cliff: how long a shape takes beside its winner where no row serves it, or where the library chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from kernels.defaults import default_choice
from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.spelling import counted
from search.winners import Point, Winner, slowdowns

LIBRARY: Point = ("aiter", FAMILIES["aiter"].config_type())
UNTUNED, CHOSEN = "without a row the default", "AITER's own choice"


@dataclass(frozen=True)
class Cliff:
    """What else could serve, beside the winners.

    Args:
        subject: Words for it, up to the verb.
        factors: How many times as long as the winner it takes, by shape; 1 where it is as good.
        shapes: How many shapes have a winner, those without a factor included.
    """

    subject: str
    factors: Mapping[GemmShape, float]
    shapes: int

    def line(self) -> str:
        """One line for people."""
        worst = max(self.factors, key=lambda shape: self.factors[shape])
        least, most = (f"{limit(self.factors.values()):.2f}" for limit in (min, max))
        known = len(self.factors)
        part = "" if known == self.shapes else f" (at {known} of {counted(self.shapes, 'shape')})"
        if most == "1.00":
            return f"{self.subject} is as good as the winner{part}"
        span, place = (most, "") if least == most else (f"{least} to {most}", f", most at {worst}")
        return f"{self.subject} takes {span} times as long as the winner{part}{place}"


def cliffs(frame: pd.DataFrame, best: Sequence[Winner]) -> list[Cliff]:
    """The cliff to the default that serves an untuned shape, and that to the library, where results know them.

    Where the winners are of several devices, the words begin with the device.

    Args:
        frame: Results with all columns.
        best: Winners of ``frame``.
    """
    known = slowdowns(frame, lambda device, shape: (default_choice(shape, device), LIBRARY))
    devices = list(dict.fromkeys(winner.device for winner in best))
    found: list[Cliff] = []
    for device in devices:
        place = f"{device}: " if len(devices) > 1 else ""
        mine = [winner for winner in best if winner.device == device]
        untuned, library = _factors(frame, mine, known)
        pairs = ((UNTUNED, untuned), (CHOSEN, library))
        found += [Cliff(f"{place}{subject}", factors, len(mine)) for subject, factors in pairs if factors]
    return found


def _factors(
    frame: pd.DataFrame, best: Sequence[Winner], known: Mapping[tuple[DeviceKey, GemmShape], Mapping[Point, float]]
) -> tuple[dict[GemmShape, float], dict[GemmShape, float]]:
    """How many times as long as each winner, all of one device, the default takes, and the library."""
    untuned: dict[GemmShape, float] = {}
    library: dict[GemmShape, float] = {}
    for winner in best:
        slower = known.get((winner.device, winner.shape), {})
        baseline_us = frame["baseline_us"][winner.row]  # of a measured trial: the default, on the same GPU
        default = default_choice(winner.shape, winner.device)
        if default in slower:
            untuned[winner.shape] = 1 + slower[default]
        elif winner.evidence == "measured" and not pd.isna(baseline_us):
            untuned[winner.shape] = max(1.0, float(baseline_us) / winner.cost_us)
        if LIBRARY in slower:
            library[winner.shape] = 1 + slower[LIBRARY]
    return untuned, library
