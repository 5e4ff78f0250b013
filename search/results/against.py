"""The best of each shape beside that of other results, a table or a published file: what got faster, what slower."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.tables.file import load_table
from kernels.tables.rows import TunedTable
from kernels.wording import counted
from search.results.columns import protocol_of
from search.results.winners import Winner, winners

Verdict = Literal["faster", "slower", "equal", "not comparable"]
PREDICTED_NOISE = 1e-3  # part of a predicted time below which two of one configuration are called equal
TABLE_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True)
class Best:
    """What serves a shape best, on one word.

    Args:
        spread_us: Width of the measured interval; of a prediction, the difference below which the model does not tell
            another configuration from it. None where unknown.
    """

    device: DeviceKey
    shape: GemmShape
    family: str
    config: KernelConfig
    evidence: str
    cost_us: float
    spread_us: float | None
    how: str


@dataclass(frozen=True)
class Comparison:
    """One shape in both.

    Args:
        ours: Of the results that are looked at.
    """

    ours: Best
    theirs: Best

    @property
    def change(self) -> float:
        """How much longer ours takes, as a part of theirs: -0.1 is a tenth faster."""
        return self.ours.cost_us / self.theirs.cost_us - 1

    @property
    def is_same(self) -> bool:
        """Whether both are one configuration."""
        return (self.ours.family, self.ours.config) == (self.theirs.family, self.theirs.config)

    @property
    def noise_us(self) -> float:
        """Difference that tells nothing: the wider interval of two measurements, the tie of two predictions."""
        spreads_us = [one.spread_us or 0.0 for one in (self.ours, self.theirs)]
        if self.ours.evidence == "measured":
            return max(spreads_us)
        least_us = PREDICTED_NOISE * self.theirs.cost_us
        return least_us if self.is_same else max(least_us, *spreads_us)

    @property
    def verdict(self) -> Verdict:
        """Which is faster, beyond the noise; times of different kinds are not compared."""
        if (self.ours.evidence, self.ours.how) != (self.theirs.evidence, self.theirs.how):
            return "not comparable"
        difference_us = self.ours.cost_us - self.theirs.cost_us
        if abs(difference_us) <= self.noise_us:
            return "equal"
        return "slower" if difference_us > 0 else "faster"

    @property
    def confidence(self) -> str:
        """Why the verdict can be believed, in a few words."""
        if self.verdict == "not comparable":
            return f"{self.ours.evidence} ({self.ours.how}) against {self.theirs.evidence} ({self.theirs.how})"
        if self.ours.evidence == "predicted":
            tied = self.verdict == "equal" and not self.is_same
            return "the model cannot tell them apart" if tied else "predicted by one model"
        if self.ours.spread_us is None or self.theirs.spread_us is None:
            return "measured, interval unknown"
        return "inside the intervals" if self.verdict == "equal" else "intervals apart"


def best_of(frame: pd.DataFrame) -> list[Best]:
    """The winner of each (device, shape) of the results."""
    return [
        Best(
            w.device, w.shape, w.family, w.config, w.evidence, w.cost_us, _spread_us(w, frame.loc[w.row]),
            protocol_of(frame.loc[w.row]),
        )
        for w in winners(frame)
    ]  # fmt: skip


def _spread_us(winner: Winner, row: pd.Series[Any]) -> float | None:
    if winner.evidence == "measured" or pd.isna(row["predicted_tie"]):
        return winner.spread_us
    return float(row["predicted_tie"]) * winner.cost_us


def best_of_table(table: TunedTable) -> list[Best]:
    """The row of each shape of a table that serves first."""
    rows = {row.shape: row for row in sorted(table.rows, key=lambda row: row.rank, reverse=True)}
    return [
        Best(table.device, shape, r.family, r.config, r.evidence, r.cost_us, r.spread_us, r.made.protocol)
        for shape, r in rows.items()
    ]


def compare(ours: Iterable[Best], theirs: Iterable[Best]) -> list[Comparison]:
    """The shapes that both have, in the order of ``ours``."""
    other = {(best.device, best.shape): best for best in theirs}
    return [Comparison(best, other[best.device, best.shape]) for best in ours if (best.device, best.shape) in other]


def alone_line(ours: Sequence[Best], theirs: Sequence[Best]) -> str | None:
    """How many shapes only one of both has; None where each has its partner."""
    mine, other = ({(best.device, best.shape) for best in side} for side in (ours, theirs))
    counts = {"here": len(mine - other), "there": len(other - mine)}
    parts = [f"{counted(count, 'shape')} only {where}" for where, count in counts.items() if count]
    return f"not compared: {', '.join(parts)}" if parts else None


def slower(comparisons: Sequence[Comparison], part: float) -> list[Comparison]:
    """Those that got slower by more than ``part`` and beyond the noise, the worst first."""
    found = [one for one in comparisons if one.verdict == "slower" and one.change > part]
    return sorted(found, key=lambda one: -one.change)


def total_line(comparisons: Sequence[Comparison]) -> str:
    """One line for people: sum of the times, geometric mean of the ratios, how many went which way."""
    same = [one for one in comparisons if one.verdict != "not comparable"]
    apart = len(comparisons) - len(same)
    rest = f"; {counted(apart, 'shape')} not comparable" if apart else ""
    if not same:
        return f"no shape can be compared{rest}"
    before_us, after_us = (sum(getattr(one, side).cost_us for one in same) for side in ("theirs", "ours"))
    mean = math.exp(sum(math.log(one.ours.cost_us / one.theirs.cost_us) for one in same) / len(same))
    counts = ", ".join(f"{sum(one.verdict == word for one in same)} {word}" for word in ("faster", "slower", "equal"))
    return (
        f"{counted(len(same), 'shape')} in sum {before_us:.2f} us before, {after_us:.2f} us now "
        f"({signed(after_us / before_us - 1)}), geometric mean {signed(mean - 1)}: {counts}{rest}"
    )


def signed(part: float) -> str:
    """A change as text; what rounds to nothing has no sign."""
    text = f"{100 * part:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text


def load_best(path: Path) -> list[Best]:
    """The best of each shape in a results folder or file, a tuned table (.yaml) or a published file.

    Raises:
        InputError: Nothing there, not readable, or no time to compare with.
    """
    if path.suffix in TABLE_SUFFIXES:
        return best_of_table(load_table(path))
    from search.results import load  # the door of this room imports this module

    best = best_of(load(path))
    if not best:
        raise InputError(f"{path}: has no time of any shape; name results, a tuned table or a file with times")
    return best
