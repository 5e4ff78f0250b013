"""Which configurations will probably spill or outgrow the LDS: judged from their knobs, before anything is compiled.

Compiling such a candidate takes several times as long as another one and ends as ``resource_limit``, so a search
leaves these points to the end. Nothing is refused on this word: the compiler decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from search.gfx950.machine import Machine
from search.gfx950.native_estimate import hip_vgprs
from search.gfx950.tile_work import TileWork

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
