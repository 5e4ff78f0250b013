"""AITER's code objects, each simulated once over what memory gives and how much matrix cores slow down.

One simulation takes tens of milliseconds; a refit over a thousand rows and every tile needs millions of times. The
time of a workgroup is smooth in the latency of a load, in the pace of operands and in the slow-down of matrix cores, so
it is simulated at a few values of each and is linear between them (in clocks a byte, for the pace). It is executed with
few rows of A as well as with a whole tile: most of its loads then meet no memory, most of its results are not stored.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from timed_rows import NODES, CodeObjectPoint, code_object_points, code_object_streams, row_levels

from kernels.problem import GemmShape
from kernels.rocm.code_objects import find_catalogue
from search.gfx950.machine import Machine
from search.gfx950.model.compute_unit import ComputeUnit, Supply, UnitTime
from search.gfx950.model.constants import CONSTANTS, Constants
from search.gfx950.model.issue import Kind
from search.gfx950.model.launch_time import LaunchWork, launch_time

LATENCIES = (300.0, 1200.0)  # clk
PACES = (4.0, 10.0, 18.0, 26.0, 36.0)  # B/clk
STRETCHES = (1.0, 1.35, 1.8)
FEW_ROWS = 2  # stretches that a tile is simulated at of which at most half multiplies no zeros
STORE_BYTES_PER_CLK = 8.0  # simulated; another pace adds the difference
COLUMN_GUARD = frozenset({(256, 256), (192, 256), (224, 256), (128, 512)})  # need N % tile_n == 0
Tile = tuple[int, int]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Surface:
    """One code object at one K and number of rows.

    Args:
        clks: Of one workgroup, [latencies, paces, stretches].
        further: Of each further one behind it, the same.
        mfma: Clocks that a SIMD's matrix core is busy for a workgroup, at a stretch of 1.
        other: Clocks of the busiest other unit.
        store_bytes: Of one workgroup.
    """

    clks: Floats
    further: Floats
    mfma: float
    other: float
    store_bytes: float

    def run(self, work: LaunchWork, supply: Supply, constants: Constants, count: int) -> UnitTime:
        """In place of :func:`~search.gfx950.model.launch_time.simulated`."""
        weights = self._weights(supply)
        writing = self.store_bytes / supply.store_bytes_per_clk - self.store_bytes / STORE_BYTES_PER_CLK
        first = float((weights * self.clks).sum()) + writing
        further = float((weights * self.further).sum()) + writing
        busy = {"mfma": count * self.mfma * supply.mfma_stretch, "valu": 0.0, "lds": count * self.other, "vmem": 0.0}
        return UnitTime(first + (count - 1) * further, first, busy, {"memory": 0.0, "lds": 0.0, "barrier": 0.0})

    def _weights(self, supply: Supply) -> Floats:
        """Of each simulated point, so that their weighted sum is the time at ``supply``."""
        pace = min(max(supply.load_bytes_per_clk, 2.0), PACES[-1])
        by_pace = _linear(1.0 / pace, tuple(1.0 / value for value in PACES))
        by_latency = _linear(supply.other_latency, LATENCIES)
        by_stretch = _linear(supply.mfma_stretch, STRETCHES[: self.clks.shape[2]])
        return by_latency[:, None, None] * by_pace[:, None] * by_stretch


def _linear(value: float, points: Sequence[float]) -> Floats:
    """Weights [points] of the two points beside ``value``, or of the two at an end, whose line goes on."""
    rising = points[0] < points[-1]
    place = sum((value > point) == rising for point in points) - 1
    at = min(max(place, 0), len(points) - 2)
    share = (value - points[at]) / (points[at + 1] - points[at])
    weights = np.zeros(len(points))
    weights[at], weights[at + 1] = 1.0 - share, share
    return weights


@cache
def surface(tile: Tile, K: int, rows: int) -> Surface:
    """Simulate a code object with ``K`` and so many rows at every point: some seconds."""
    waves = code_object_streams(tile, K, rows)
    stretches = STRETCHES if rows == tile[0] else STRETCHES[:FEW_ROWS]
    shape = (len(LATENCIES), len(PACES), len(stretches))
    clks, further = np.zeros(shape), np.zeros(shape)
    for at in np.ndindex(*shape):
        supply = Supply({}, LATENCIES[at[0]], PACES[at[1]], STORE_BYTES_PER_CLK, stretches[at[2]])
        two = ComputeUnit(waves, supply).run(2, 1)
        clks[at], further[at] = two.first_clks, two.clks - two.first_clks
    busy = ComputeUnit(waves, Supply({}, 300.0, 1e9, 1e9)).run(1, 1).busy
    stored = sum(size for wave in waves for (kind, _), size in wave.moved.items() if kind is Kind.STORE)
    return Surface(clks, further, busy["mfma"], max(busy["lds"], busy["valu"]), stored)


def tiles(N: int) -> list[Tile]:
    """Tiles of the catalogue that may be used at ``N`` columns."""
    known = [(one.tile_m, one.tile_n) for one in find_catalogue().preshuffled]
    return [tile for tile in known if tile not in COLUMN_GUARD or N % tile[1] == 0]


@cache
def _points(tile: Tile, shape: GemmShape) -> tuple[CodeObjectPoint, ...]:
    return code_object_points(tile, shape)


def predicted_us(tile: Tile, shape: GemmShape, machine: Machine, constants: Constants = CONSTANTS) -> float:
    """Time of one code object at ``shape`` by its surfaces."""
    warm = machine.harness.is_warm(shape.unique_bytes)
    time = partial(launch_time, machine=machine, constants=constants, warm=warm)
    us = sum(one.share * time(one.work, run=surface(tile, one.K, one.rows).run).work_us for one in _points(tile, shape))
    return machine.harness.launch_us + us


@dataclass(frozen=True)
class SurfaceRow:
    """One measured time of a code object, with the fields of :class:`timed_rows.TimedRow` that a fit needs."""

    shape: GemmShape
    tile: Tile
    us: float
    relative: bool = False

    @property
    def group(self) -> str:
        """Rows that may be compared: AITER tells the time of the winner only."""
        return str(self.shape)

    def predicted_us(self, machine: Machine, constants: Constants = CONSTANTS) -> float:
        """Time by the model."""
        return predicted_us(self.tile, self.shape, machine, constants)


def prepared(chosen: Sequence[Tile]) -> None:
    """Simulate what ``chosen`` need, told on the standard error."""
    for number, tile in enumerate(chosen, 1):
        for K, rows in itertools.product(NODES, row_levels(tile[0])):
            surface(tile, K, rows)
        print(f"surface of {tile[0]}x{tile[1]}, {number} of {len(chosen)}", file=sys.stderr, flush=True)


class Place(NamedTuple):
    """Where the tile that won stands among all that could have.

    Args:
        rank: How many are predicted no slower, itself included; 0 where the others are not known.
        slower: It is predicted than the fastest, relative.
    """

    rank: int
    slower: float


def winner_place(row: SurfaceRow, machine: Machine, constants: Constants) -> Place:
    """Place of the tile that won among the tiles that may be used at the row's N."""
    times = {tile: predicted_us(tile, row.shape, machine, constants) for tile in tiles(row.shape.N)}
    own = times.get(row.tile, float("inf"))  # of a tile that may not be used at this N
    return Place(sum(us <= own for us in times.values()), own / min(times.values()) - 1)
