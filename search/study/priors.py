"""What a search tries first, and what last: favourites of the model, near winners, likely spills."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.families.defaults import default_choice
from kernels.families.stages import Gemm
from kernels.problem import GemmShape
from search.evaluation import Point
from search.gfx950.machine import Machine, machine_of
from search.gfx950.model.families import Flags, columns_of, estimate_us, is_modelled, overflows
from search.results.columns import rows_of
from search.results.record import point_of
from search.study.points import LegalPoints, Points

EACH = 3  # favourites of every family
OVERALL = 12
# Times a lane's registers that its part of a step's tiles may take: what Triton decodes itself is there twice.
CROWDED = {"e2m1": 1.0, "bf16": 1.5}
WGMMA_ROWS = 64  # of its left operand, the weight; narrower tiles are multiplied by other instructions


@dataclass(frozen=True)
class Favourites:
    """What the formula likes, by estimated time.

    Args:
        first: The best point of every family.
        others: The next few of every family, then the best of the rest.
    """

    first: tuple[tuple[str, KernelConfig], ...]
    others: tuple[tuple[str, KernelConfig], ...]


def _ordering_machine(device: DeviceKey) -> Machine:
    """What orders the points before any is tried: on a device without a model, the one there is with its compute units.

    Of other architectures it says nothing in microseconds, and no such time is shown or kept; but which tiles fill the
    device and which K loops are long it orders well enough to begin with, and measurements correct the rest.
    """
    return machine_of(device) or Machine(cu_count=device.cu_count)


def favourites(legal: Mapping[str, LegalPoints], shape: GemmShape, device: DeviceKey) -> Favourites:
    """The best few points of every family, and the best of all.

    Points that the estimate cannot tell apart (it knows no GROUP_M, waves_per_eu or cache_modifier) count once, and
    doubtful ones not at all.
    """
    machine = _ordering_machine(device)
    first: list[tuple[float, str, int]] = []
    each: list[tuple[float, str, int]] = []
    rest: list[tuple[float, str, int]] = []
    for family, points in legal.items():
        if is_modelled(family):
            likely = np.flatnonzero(~doubtful_on(device, family, points.frame))
            times, indices = np.unique(
                estimate_us(family, points.frame, shape, machine)[likely].round(4), return_index=True
            )
            ranked = [(float(time), family, int(index)) for time, index in zip(times, likely[indices], strict=True)]
            first += ranked[:1]
            each += ranked[1:EACH]
            rest += ranked[EACH:OVERALL]

    def picked(chosen: list[tuple[float, str, int]]) -> tuple[tuple[str, KernelConfig], ...]:
        return tuple((family, legal[family].config(index)) for _, family, index in chosen)

    return Favourites(picked(sorted(first)), picked([*sorted(each), *sorted(rest)[:OVERALL]]))


def estimates_us(
    legal: Mapping[str, LegalPoints], shape: GemmShape, device: DeviceKey
) -> npt.NDArray[np.float64] | None:
    """Estimated time of every point of every family, in order [points]; NaN where a family has no model.

    None where no family has one.
    """
    machine = _ordering_machine(device)
    times = {
        family: estimate_us(family, points.frame, shape, machine) if is_modelled(family) else None
        for family, points in legal.items()
    }
    if all(column is None for column in times.values()):
        return None
    unknown = {family: np.full(len(points), np.nan) for family, points in legal.items()}
    return np.concatenate([unknown[family] if column is None else column for family, column in times.items()])


def doubtful(family: str, frame: pd.DataFrame, machine: Machine) -> Flags:
    """Whether each point of ``frame`` [points] will probably spill, or not fit the LDS of ``machine``."""
    return overflows(family, columns_of(frame), len(frame), machine)


def decoded_tiles_overflow(family: str, frame: pd.DataFrame, device: DeviceKey) -> Flags:
    """Whether each point of ``frame`` [points] crowds registers or shared memory where operands are decoded.

    Without an FP4 matrix unit a step's tiles lie in registers, two bf16 values in each, beside the accumulators. On an
    H200 no point that asks a lane for more than :data:`CROWDED` times its registers came within 1.4 times of its
    shape's best; they are 7 % of the points, and compilers spent 30 % of their time on them
    (``benchmarks/crowded_tiles.py``).
    """
    stages = FAMILIES[family].stages(SimpleNamespace(**columns_of(frame)))
    gemm = next((stage for stage in stages if isinstance(stage, Gemm)), None)
    if gemm is None or device.has_scaled_fp4:
        return np.zeros(len(frame), np.bool_)
    tile, lane = gemm.tile, device.architecture.lane_registers
    m, n, k, warps = tile.BLOCK_M, tile.BLOCK_N, tile.BLOCK_K, tile.num_warps
    registers = (m * n + (m + n) * k / 2) / (warps * device.architecture.wave)
    allowed = np.where(tile.a_operand == "bf16", CROWDED["bf16"], CROWDED["e2m1"]) * lane
    return np.asarray((registers > allowed) | (_pipelined_bytes(gemm, device) > device.architecture.lds_bytes))


def _pipelined_bytes(gemm: Gemm, device: DeviceKey) -> Any:
    """Shared memory that Triton's pipeline takes at least, where that is known: for values of A that ``wgmma`` reads.

    It reads a step's from shared memory while the loads of as many steps as there are stages go on; B's codes leave it
    a step earlier. Source: what Triton 3.9 allocates.
    """
    tile = gemm.tile
    a, b = tile.BLOCK_M * tile.BLOCK_K * 2, tile.BLOCK_N * tile.BLOCK_K / 2
    known = np.logical_and(gemm.rounded, tile.BLOCK_N >= WGMMA_ROWS) & (not device.is_amd)
    return np.where(known, tile.num_stages * a + (tile.num_stages - 1) * b, 0)


def doubtful_on(device: DeviceKey, family: str, frame: pd.DataFrame) -> Flags:
    """Which points of ``frame`` [points] are left until no other is."""
    machine = machine_of(device)
    return decoded_tiles_overflow(family, frame, device) if machine is None else doubtful(family, frame, machine)


def winners_of(frame: pd.DataFrame, device: DeviceKey) -> dict[GemmShape, Point]:
    """Best point of each shape in earlier results for ``device``."""
    found: dict[GemmShape, Point] = {}
    for _, rows in rows_of(frame, device).groupby(["M", "N", "K"]):
        records = rows.to_dict("records")
        best = best_point(records)
        if best is not None:
            found[GemmShape(*(int(records[0][name]) for name in ("M", "N", "K")))] = best
    return found


def best_point(records: Iterable[Mapping[Any, Any] | None]) -> Point | None:
    """The fastest point that a record says is ok: by measured time where there is one, else by predicted time."""
    good = [record for record in records if record is not None and record.get("outcome") == "ok"]
    measured = [record for record in good if record["evidence"] == "measured"]
    column = "time_us" if measured else "predicted_us"
    best = min(measured or good, key=lambda record: float(record[column]), default=None)
    return None if best is None else point_of(best)


def distance(a: GemmShape, b: GemmShape) -> float:
    """How unlike two shapes are: the sum of the ratios of their extents, as logarithms."""
    ratios = ((a.M, b.M), (a.N, b.N), (a.K, b.K))
    return sum(abs(math.log2(x / y)) for x, y in ratios)


NEIGHBOURS = 3  # winners of other shapes that are tried first


def first_trials(
    shape: GemmShape,
    device: DeviceKey,
    points: Points,
    served: Point,
    winners: Mapping[GemmShape, Point],
    defaults: Iterable[Point],
) -> list[Point]:
    """Points to try first, the likeliest to win ahead: few trials do not reach far into the defaults.

    Args:
        served: What the tuned tables choose now.
        winners: Of other shapes.
    """
    untuned = default_choice(shape, device)  # shows what a missing row would cost
    neighbours = [winners[other] for other in sorted(winners, key=lambda other: distance(shape, other))[:NEIGHBOURS]]
    liked = favourites(points.legal, shape, device)
    in_order = [served, untuned, *neighbours, *liked.first, *defaults, *liked.others]
    return list(dict.fromkeys(in_order))


def sweep_points(legal: Mapping[str, LegalPoints], device: DeviceKey, seed: int) -> Points:
    """The legal points of a shape; those that will probably spill come last."""
    return Points(legal, seed, {family: doubtful_on(device, family, found.frame) for family, found in legal.items()})
