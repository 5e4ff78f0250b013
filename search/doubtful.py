"""Which configurations will probably spill or outgrow the LDS: judged from their knobs, before anything is compiled.

Compiling such a candidate takes several times as long as another one and ends as ``resource_limit``, so a search
leaves these points to the end. Nothing is refused on this word: the compiler decides.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from search.gfx950.machine import Machine
from search.gfx950.tile_work import TileWork

PACKED_FAMILIES = frozenset({"staged_triton"})  # their GEMM quantises nothing


def doubtful(family: str, frame: pd.DataFrame, machine: Machine) -> npt.NDArray[np.bool_]:
    """Whether each point of ``frame`` [points] probably exceeds the registers or the LDS of ``machine``.

    ``waves_per_eu`` makes the compiler stay within the registers that leave room for so many waves on a SIMD.
    """
    knobs = {
        name: frame[name].to_numpy(np.float64)
        for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages", "matrix_instr_nonkdim")
    }
    quantizer = None if family in PACKED_FAMILIES else frame["quantizer"].astype(str).to_numpy()
    tile = TileWork(**knobs, quantizer=quantizer)
    hinted = np.maximum(1, frame["waves_per_eu"].to_numpy(np.float64))
    registers = np.minimum(tile.vgpr_limit(machine), machine.vgprs // (hinted * machine.vgpr_step) * machine.vgpr_step)
    return np.asarray((tile.vgprs > registers) | (tile.lds_bytes > machine.lds_bytes), dtype=np.bool_)
