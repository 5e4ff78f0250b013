"""Choose the winner of a shape: finalists re-timed side by side, paired differences, ties broken by rule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from search.device.timing import median_interval
from search.evaluation import Candidate, Value
from search.results.winners import RESOURCES, Preference, preference

LEAST, MOST = 3, 8  # finalists
ROUNDS = 40  # of finals: a sign test of 40 rounds sees a candidate that wins 7 of 10
TIE_CONFIDENCE = 0.95  # below this a difference is noise
TIE_RATIO = 0.01  # nor is one smaller than this: the time of one configuration moves that much between processes
Times = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Finalist:
    """A measured candidate that may win.

    Args:
        time_us: Median of the search's own timing.
        deterministic: Whether every run gave the same bits.
        resources: Sorts the one that needs less first.
    """

    candidate: Candidate
    time_us: float
    lo_us: float
    hi_us: float
    deterministic: bool
    resources: tuple[float, ...] = ()
    incumbent: bool = False

    def preference(self, time_us: float) -> Preference:
        """Its place among finalists that are as good, by its time in the finals."""
        return preference(self.incumbent, self.deterministic, self.resources, time_us)


@dataclass(frozen=True)
class Final:
    """A finalist's time in the finals: the median over the rounds and its 95 % interval, in microseconds."""

    finalist: Finalist
    time_us: float
    lo_us: float
    hi_us: float


@dataclass(frozen=True)
class Selection:
    """What the finals decided.

    Args:
        finals: Every finalist, fastest first.
        margin_us: Median of the paired differences to the fastest one that is no tie with the winner, or to the
            next one where all are; None for a single finalist.
        confidence: That the winner is faster than that one: 1 - p of a two-sided sign test over the rounds.
        tie: Whether another finalist could not be told from the winner.
        rank_tau: Kendall's tau between the ranks of the search and of the finals; None for a single finalist.
    """

    winner: Final
    finals: tuple[Final, ...]
    margin_us: float | None
    confidence: float | None
    tie: bool
    rank_tau: float | None
    rounds: int

    def facts(self) -> dict[str, Value]:
        """Results columns of the winner's row."""
        return {
            "selected": True, "tie": self.tie, "margin_us": self.margin_us, "confidence": self.confidence,
            "rank_tau": self.rank_tau,
        }  # fmt: skip


def finalist(candidate: Candidate, record: Mapping[str, Value], *, incumbent: bool = False) -> Finalist:
    """Finalist of a measured results row."""
    time_us = _number(record["time_us"])
    return Finalist(
        candidate,
        time_us,
        _number(record.get("time_lo_us"), time_us),
        _number(record.get("time_hi_us"), time_us),
        bool(record.get("deterministic")),
        tuple(_number(record.get(name), math.inf) for name in RESOURCES),
        incumbent,
    )


def _number(value: Value, otherwise: float = math.nan) -> float:
    return float(value) if isinstance(value, (int, float)) else otherwise


def choose_finalists(measured: Sequence[Finalist]) -> list[Finalist]:
    """Those within the noise of the fastest, at least :data:`LEAST`, and the incumbent, which always defends its place.

    Within the noise: the interval reaches down to the upper end of the fastest one's.
    """
    ranked = sorted(measured, key=lambda one: one.time_us)
    if not ranked:
        return []
    close = [one for i, one in enumerate(ranked) if i < LEAST or one.lo_us <= ranked[0].hi_us][:MOST]
    return close + [one for one in ranked if one.incumbent and one not in close]


def select(finalists: Sequence[Finalist], rounds: Sequence[Sequence[float]]) -> Selection:
    """The winner by times of ``rounds`` [round][finalist] in microseconds, taken side by side.

    The fastest median leads. Every finalist that a sign test on the paired differences cannot tell from the leader,
    or that is less than 1 % behind, ties with it. Among those the incumbent wins, then a deterministic one, then the
    one with fewer resources, then the faster one.

    Raises:
        ValueError: No finalist, or rounds of another width.
    """
    times: Times = np.asarray(rounds, dtype=np.float64)
    if not finalists or times.ndim != 2 or times.shape[1] != len(finalists):
        raise ValueError(f"{len(finalists)} finalists need rounds of as many times, got {times.shape}")
    intervals = [median_interval(list(column)) for column in times.T]
    medians = [median for _, median, _ in intervals]
    leader = int(np.argmin(medians))
    tied = [i for i in range(len(finalists)) if i == leader or _ties(times, leader, i)]
    chosen = min(tied, key=lambda i: finalists[i].preference(medians[i]))
    finals = [Final(one, mid, lo, hi) for one, (lo, mid, hi) in zip(finalists, intervals, strict=True)]
    rival = _rival(chosen, tied, medians)
    return Selection(
        winner=finals[chosen],
        finals=tuple(sorted(finals, key=lambda one: one.time_us)),
        margin_us=None if rival is None else float(np.median(times[:, rival] - times[:, chosen])),
        confidence=None if rival is None else _confidence(times, chosen, rival),
        tie=len(tied) > 1,
        rank_tau=_tau([one.time_us for one in finalists], medians),
        rounds=len(times),
    )


def _ties(times: Times, leader: int, other: int) -> bool:
    behind = float(np.median(times[:, other] - times[:, leader])) / float(np.median(times[:, leader]))
    return behind < TIE_RATIO or _confidence(times, leader, other) < TIE_CONFIDENCE


def _confidence(times: Times, faster: int, slower: int) -> float:
    """1 - p of the two-sided sign test that neither is faster; equal times say nothing."""
    from scipy.stats import binomtest  # here, because it takes long to load

    difference = times[:, slower] - times[:, faster]
    wins, losses = int((difference > 0).sum()), int((difference < 0).sum())
    return 1.0 - float(binomtest(wins, wins + losses).pvalue) if wins + losses else 0.0


def _rival(chosen: int, tied: Sequence[int], medians: Sequence[float]) -> int | None:
    """The one that the margin is to: the fastest beyond the ties, else the fastest other one."""
    others = [i for i in range(len(medians)) if i != chosen]
    beyond = [i for i in others if i not in tied]
    return min(beyond or others, key=lambda i: medians[i], default=None)


def _tau(before: Sequence[float], after: Sequence[float]) -> float | None:
    if len(before) < 2:
        return None
    from scipy.stats import kendalltau  # here, because it takes long to load

    tau = float(kendalltau(before, after).statistic)
    return None if math.isnan(tau) else tau
