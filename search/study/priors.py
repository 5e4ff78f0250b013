"""What a search tries first, and what last: favourites of the model, near winners, likely spills."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.problem import GemmShape
from search.gfx950.machine import Machine
from search.gfx950.model.families import FAMILY_WORK, estimate_calls
from search.gfx950.model.native_work import hip_vgprs
from search.gfx950.model.tile_work import TileWork
from search.gfx950.model.timing_model import total_us
from search.results.record import Point, point_of
from search.study.points import LegalPoints, Points

EACH = 3  # favourites of every family
OVERALL = 12


@dataclass(frozen=True)
class Favourites:
    """What the timing model likes, by estimated time.

    Args:
        first: The best point of every family.
        others: The next few of every family, then the best of the rest.
    """

    first: tuple[tuple[str, KernelConfig], ...]
    others: tuple[tuple[str, KernelConfig], ...]


def favourites(legal: Mapping[str, LegalPoints], shape: GemmShape, device: DeviceKey) -> Favourites:
    """The best few points of every family, and the best of all.

    Points that the estimate cannot tell apart (it knows no GROUP_M, waves_per_eu or cache_modifier) count once.
    """
    machine = Machine(cu_count=device.cu_count)
    first: list[tuple[float, str, int]] = []
    each: list[tuple[float, str, int]] = []
    rest: list[tuple[float, str, int]] = []
    for family, points in legal.items():
        if family in FAMILY_WORK:
            times, indices = np.unique(estimate_us(family, points.frame, shape, machine).round(4), return_index=True)
            ranked = [(float(time), family, int(index)) for time, index in zip(times, indices, strict=True)]
            first += ranked[:1]
            each += ranked[1:EACH]
            rest += ranked[EACH:OVERALL]

    def picked(chosen: list[tuple[float, str, int]]) -> tuple[tuple[str, KernelConfig], ...]:
        return tuple((family, legal[family].config(index)) for _, family, index in chosen)

    return Favourites(picked(sorted(first)), picked([*sorted(each), *sorted(rest)[:OVERALL]]))


def estimate_us(family: str, frame: pd.DataFrame, shape: GemmShape, machine: Machine) -> npt.NDArray[np.float64]:
    """Estimated time [points] of each configuration in ``frame``."""
    columns = {
        str(name): frame[name].to_numpy(np.float64 if pd.api.types.is_numeric_dtype(frame[name]) else object)
        for name in frame.columns
    }
    times = total_us(estimate_calls(family, columns, shape, machine), machine)
    return np.broadcast_to(np.asarray(times, np.float64), len(frame))


def estimates_us(
    legal: Mapping[str, LegalPoints], shape: GemmShape, device: DeviceKey
) -> npt.NDArray[np.float64] | None:
    """Estimated time of every point of every family, in order [points]; NaN where a family has no model.

    None where no family has one.
    """
    machine = Machine(cu_count=device.cu_count)
    times = {
        family: estimate_us(family, points.frame, shape, machine) if family in FAMILY_WORK else None
        for family, points in legal.items()
    }
    if all(column is None for column in times.values()):
        return None
    unknown = {family: np.full(len(points), np.nan) for family, points in legal.items()}
    return np.concatenate([unknown[family] if column is None else column for family, column in times.items()])


TRITON_KNOBS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages", "matrix_instr_nonkdim")
HIP_KNOBS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "waves_m", "waves_n", "num_stages", "matrix_instr_nonkdim")
HIP_FILLED = 0.9  # of a lane's registers: 448 of 512 by the estimate still fit, 498 spilled (clang 22)
Flags = npt.NDArray[np.bool_]


def doubtful(family: str, frame: pd.DataFrame, machine: Machine) -> Flags:
    """Whether each point of ``frame`` [points] probably exceeds the registers or the LDS of ``machine``.

    No point of a family whose kernels are built already is doubtful.
    """
    judge = _JUDGES.get(family)
    return np.zeros(len(frame), np.bool_) if judge is None else judge(frame, machine)


def _fused(frame: pd.DataFrame, machine: Machine) -> Flags:
    return _triton(frame, machine, frame["quantizer"].astype(str).to_numpy())


def _staged_triton(frame: pd.DataFrame, machine: Machine) -> Flags:
    return _triton(frame, machine, None)  # its GEMM quantises nothing


def _triton(frame: pd.DataFrame, machine: Machine, quantizer: Any) -> Flags:
    """``waves_per_eu`` makes the compiler stay within the registers that leave room for so many waves on a SIMD."""
    tile = TileWork(**_numbers(frame, TRITON_KNOBS), quantizer=quantizer)
    hinted = np.maximum(1, frame["waves_per_eu"].to_numpy(np.float64))
    registers = np.minimum(tile.vgpr_limit(machine), machine.vgprs // (hinted * machine.vgpr_step) * machine.vgpr_step)
    return np.asarray((tile.vgprs > registers) | (tile.lds_bytes > machine.lds_bytes), dtype=np.bool_)


def _staged_hip(frame: pd.DataFrame, machine: Machine) -> Flags:
    knobs = _numbers(frame, HIP_KNOBS)
    waves_per_simd = np.ceil(knobs["waves_m"] * knobs["waves_n"] / machine.simds)
    return np.asarray(hip_vgprs(knobs) > HIP_FILLED * machine.vgprs / waves_per_simd, dtype=np.bool_)


def _numbers(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, npt.NDArray[np.float64]]:
    return {name: frame[name].to_numpy(np.float64) for name in names}


_JUDGES: Mapping[str, Callable[[pd.DataFrame, Machine], Flags]] = {
    "fused": _fused,
    "fused_splitk_atomic": _fused,
    "fused_splitk_workspace": _fused,
    "staged_triton": _staged_triton,
    "staged_hip": _staged_hip,
}


def winners_of(frame: pd.DataFrame, device: DeviceKey) -> dict[GemmShape, Point]:
    """Best point of each shape in earlier results for ``device``."""
    mine = frame[(frame["arch"] == device.arch) & (frame["cu_count"] == device.cu_count)]
    found: dict[GemmShape, Point] = {}
    for _, rows in mine.groupby(["M", "N", "K"]):
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


def sweep_points(legal: Mapping[str, LegalPoints], device: DeviceKey, seed: int) -> Points:
    """The legal points of a shape; on gfx950 those that will probably spill come last."""
    if not device.has_scaled_fp4:
        return Points(legal, seed)
    machine = Machine(cu_count=device.cu_count)
    return Points(legal, seed, {family: doubtful(family, found.frame, machine) for family, found in legal.items()})
