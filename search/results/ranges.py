"""One row for a range of M: the fewest rows of a ladder such that none is much slower at any M than the best there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.problem import GemmShape
from search.evaluation import Point
from search.results.columns import rows_of
from search.results.starts import Start
from search.results.winners import config_of, slowdowns, winners

SHARED = 8  # further trials of each M, at most, that are for the best points of the others
EACH = 2  # best points of each M that are asked about at every other M of the ladder


@dataclass(frozen=True)
class RangeRow:
    """A configuration that serves some neighbouring M of a ladder.

    Args:
        shape: Of the largest M that it serves.
        family: Of ``config``.
        Ms: That it serves, ascending.
        worst: How much slower it is than the best, at the M where that is most, as a part of the best time.
    """

    device: DeviceKey
    shape: GemmShape
    family: str
    config: KernelConfig
    Ms: tuple[int, ...]
    worst: float


Ladder = tuple[DeviceKey, int, int]  # device, N, K


def leaders(frame: pd.DataFrame) -> dict[Ladder, tuple[Point, ...]]:
    """The best few points of each M, of every ladder of the results."""
    found: dict[Ladder, dict[Point, None]] = defaultdict(dict)
    for winner in winners(frame):
        key = (winner.device, winner.shape.N, winner.shape.K)
        found[key][winner.family, winner.config] = None
        for point in _next_best(frame, winner.device, winner.shape, winner.evidence):
            found[key][point] = None
    return {key: tuple(points) for key, points in found.items()}


def _next_best(frame: pd.DataFrame, device: DeviceKey, shape: GemmShape, evidence: str) -> list[Point]:
    """The fastest points of a shape by the times of its search."""
    rows = rows_of(frame, device, shape)
    rows = rows[((rows["outcome"] == "ok") & (rows["evidence"] == evidence)).fillna(False)]
    fastest = rows.sort_values("time_us" if evidence == "measured" else "predicted_us", kind="stable").head(EACH)
    return [(str(row["family"]), config_of(row)) for _, row in fastest.iterrows()]


def unasked(frame: pd.DataFrame, shapes: Collection[GemmShape]) -> dict[GemmShape, tuple[Start, ...]]:
    """For each of ``shapes`` the leaders of its ladder that were not tried at it; shapes without any are left out."""
    asked = leaders(frame)
    known = slowdowns(frame, lambda device, shape: asked.get((device, shape.N, shape.K), ()))
    starts: dict[GemmShape, tuple[Start, ...]] = {}
    for (device, shape), slower in known.items():
        points = asked[device, shape.N, shape.K]
        missing = [Start(device, shape, *point, None, "", exact=True) for point in points if point not in slower]
        if missing and shape in shapes:
            starts[shape] = tuple(missing)
    return starts


def choose_ranges(frame: pd.DataFrame, max_regret: float) -> list[RangeRow]:
    """The fewest rows of each ladder of the results; of as many rows those with the least regret.

    Args:
        max_regret: Part of the best time at an M that the row which serves it may lose.
    """
    asked = leaders(frame)
    known = slowdowns(frame, lambda device, shape: asked.get((device, shape.N, shape.K), ()))
    ladders: dict[Ladder, dict[int, Mapping[Point, float]]] = defaultdict(dict)
    for (device, shape), slower in known.items():
        ladders[device, shape.N, shape.K][shape.M] = slower
    return [row for key, slower in sorted(ladders.items()) for row in _fewest(key, slower, max_regret)]


def _fewest(ladder: Ladder, slower: Mapping[int, Mapping[Point, float]], max_regret: float) -> list[RangeRow]:
    """Shortest path over the M of a ladder, an edge for each range that one point can serve."""
    Ms = sorted(slower)
    best: list[tuple[int, float, list[RangeRow]]] = [(0, 0.0, [])]
    for end in range(1, len(Ms) + 1):
        paths = []
        for begin in range(end):
            row = _serving(ladder, Ms[begin:end], slower, max_regret)
            if row is not None:
                count, worst, rows = best[begin]
                paths.append((count + 1, max(worst, row.worst), [*rows, row]))
        best.append(min(paths, key=lambda path: path[:2]))
    return best[-1][2]


def _serving(
    ladder: Ladder, Ms: Sequence[int], slower: Mapping[int, Mapping[Point, float]], max_regret: float
) -> RangeRow | None:
    """The point with the least regret over ``Ms``; None where none stays within the limit."""
    device, N, K = ladder
    common = set.intersection(*(set(slower[M]) for M in Ms))
    worst = {point: max(slower[M][point] for M in Ms) for point in common}
    point = min(worst, key=lambda one: (worst[one], str(one)), default=None)
    if point is None or worst[point] > max_regret:
        return None
    return RangeRow(device, GemmShape(Ms[-1], N, K), *point, tuple(Ms), worst[point])


def only_ranges(frame: pd.DataFrame, ranges: Sequence[RangeRow]) -> pd.DataFrame:
    """The trials of the configuration of each range at its largest M: what an export then takes for winners."""
    chosen = [_having(rows_of(frame, row.device, row.shape), row.family, row.config) for row in ranges]
    if not chosen:
        return frame.iloc[:0]
    kept = pd.concat(chosen, ignore_index=True)
    kept["trials_wanted"] = pd.array([pd.NA] * len(kept), dtype="Int64")  # of a study that is not whole here
    return kept


def _having(rows: pd.DataFrame, family: str, config: KernelConfig) -> pd.DataFrame:
    same = rows["family"] == family
    for name, value in config.to_dict().items():
        same &= rows[name] == value
    return rows[same.fillna(False)]
