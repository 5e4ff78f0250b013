"""AITER's code objects, each simulated once over what memory gives and how much matrix cores slow down.

One simulation takes tens of milliseconds; a refit over a thousand rows and every tile needs millions of times. The
time of a workgroup is smooth in the latency of a load, in the pace of operands and in the slow-down of matrix cores, so
it is simulated at a few values of each and is linear between them (in clocks a byte, for the pace).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from timed_rows import NODES, code_object_points, code_object_streams

from kernels.problem import GemmShape
from kernels.rocm.code_objects import find_catalogue
from search.gfx950.machine import Machine
from search.gfx950.model.compute_unit import ComputeUnit, Supply, UnitTime
from search.gfx950.model.constants import CONSTANTS, Constants
from search.gfx950.model.issue import Kind
from search.gfx950.model.launch_time import LaunchWork, launch_time

LATENCIES = (300.0, 1200.0)  # clk
PACES = (4.0, 10.0, 18.0, 26.0, 36.0, 60.0)  # B/clk
STRETCHES = (1.0, 1.35, 1.8)
STORE_BYTES_PER_CLK = 8.0  # simulated; another pace adds the difference
COLUMN_GUARD = frozenset({(256, 256), (192, 256), (224, 256), (128, 512)})  # need N % tile_n == 0
Tile = tuple[int, int]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Surface:
    """One code object at one K.

    Args:
        clks: Of one workgroup, [latencies, paces, stretches].
        further: Of each further one behind it, the same.
        mfma: Clocks that a SIMD's matrix core is busy for a workgroup, at a stretch of 1.
        other: Clocks of the busiest other unit.
        load_bytes: Of one workgroup.
        store_bytes: The same.
    """

    clks: Floats
    further: Floats
    mfma: float
    other: float
    load_bytes: float
    store_bytes: float

    def run(self, work: LaunchWork, supply: Supply, constants: Constants, count: int) -> UnitTime:
        """In place of :func:`~search.gfx950.model.launch_time.simulated`."""
        loaded = sum(work.moved(Kind.LOAD).values())
        stored = sum(work.moved(Kind.STORE).values())
        weights = _weights(supply, self.load_bytes / loaded)
        writing = stored / supply.store_bytes_per_clk - self.store_bytes / STORE_BYTES_PER_CLK
        first = float((weights * self.clks).sum()) + writing
        further = float((weights * self.further).sum()) + writing
        busy = {"mfma": count * self.mfma * supply.mfma_stretch, "valu": 0.0, "lds": count * self.other, "vmem": 0.0}
        return UnitTime(first + (count - 1) * further, first, busy, {"memory": 0.0, "lds": 0.0, "barrier": 0.0})


def _weights(supply: Supply, fuller: float) -> Floats:
    """Of each simulated point, so that their weighted sum is the time at ``supply``.

    Args:
        fuller: Bytes of the simulated workgroup over those of the real one, whose rows may be few: its operands come
            so much sooner.
    """
    pace = min(max(supply.load_bytes_per_clk * fuller, 2.0), PACES[-1])
    by_pace = _linear(1.0 / pace, tuple(1.0 / value for value in PACES))
    by_latency, by_stretch = _linear(supply.other_latency, LATENCIES), _linear(supply.mfma_stretch, STRETCHES)
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
def surface(tile: Tile, K: int) -> Surface:
    """Simulate a code object with ``K`` at every point: some seconds."""
    waves = code_object_streams(tile, K)
    shape = (len(LATENCIES), len(PACES), len(STRETCHES))
    clks, further = np.zeros(shape), np.zeros(shape)
    for at in np.ndindex(*shape):
        supply = Supply({}, LATENCIES[at[0]], PACES[at[1]], STORE_BYTES_PER_CLK, STRETCHES[at[2]])
        two = ComputeUnit(waves, supply).run(2, 1)
        clks[at], further[at] = two.first_clks, two.clks - two.first_clks
    busy = ComputeUnit(waves, Supply({}, 300.0, 1e9, 1e9)).run(1, 1).busy
    moved = {kind: sum(size for wave in waves for (one, _), size in wave.moved.items() if one is kind) for kind in Kind}
    return Surface(
        clks, further, busy["mfma"], max(busy["lds"], busy["valu"]), moved[Kind.LOAD], moved[Kind.STORE]
    )  # fmt: skip


def tiles(N: int) -> list[Tile]:
    """Tiles of the catalogue that may be used at ``N`` columns."""
    known = [(one.tile_m, one.tile_n) for one in find_catalogue().preshuffled]
    return [tile for tile in known if tile not in COLUMN_GUARD or N % tile[1] == 0]


@cache
def _launches(tile: Tile, shape: GemmShape) -> tuple[tuple[float, int, LaunchWork], ...]:
    """(share, K, launch) of the executions that ``shape`` lies between."""
    return tuple((share, node, works[0]) for share, node, works in code_object_points(tile, shape))


def predicted_us(tile: Tile, shape: GemmShape, machine: Machine, constants: Constants = CONSTANTS) -> float:
    """Time of one code object at ``shape`` by its surfaces."""
    warm = machine.harness.is_warm(shape.unique_bytes)
    time = partial(launch_time, machine=machine, constants=constants, warm=warm)
    us = sum(
        share * time(launch, run=surface(tile, node).run).work_us for share, node, launch in _launches(tile, shape)
    )
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
        for K in NODES:
            surface(tile, K)
        print(f"surface of {tile[0]}x{tile[1]}, {number} of {len(chosen)}", file=sys.stderr, flush=True)


def winner_rank(row: SurfaceRow, machine: Machine, constants: Constants) -> int:
    """How many tiles are predicted no slower than the one that won, itself included."""
    times = {tile: predicted_us(tile, row.shape, machine, constants) for tile in tiles(row.shape.N)}
    own = times.get(row.tile, float("inf"))  # of a tile that may not be used at this N
    return sum(us <= own for us in times.values())
