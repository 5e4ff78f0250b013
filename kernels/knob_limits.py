"""The range in which a file may set a knob, wide enough for any device; the rules of a family are narrower.

It keeps out what no rule need judge: typing errors, and numbers whose products overflow the 32 bits of an index.
"""

from __future__ import annotations

from collections.abc import Mapping

Limits = tuple[int, int]  # both ends included

TILE: Limits = (1, 1 << 20)  # elements of one Triton block (triton.language.core.TRITON_MAX_TENSOR_NUMEL)
SPECIAL: Mapping[str, Limits] = {
    "GROUP_M": (1, 4096),  # times the tiles of a row of C it stays far below 2**31
    "num_warps": (1, 32),  # 1,024 threads of a workgroup, in waves of 32
    "num_stages": (1, 32),
    "waves_per_eu": (0, 20),  # 0 gives no hint; no AMD architecture keeps more (RDNA: 20 of 32 lanes)
    "matrix_instr_nonkdim": (0, 64),
    "num_xcds": (1, 64),
    "split_k": (1, 65535),  # y extent of a grid (CUDA C++ Programming Guide, compute capabilities)
}
OTHER: Limits = (0, 1 << 16)


def knob_limits(name: str) -> Limits:
    """Least and greatest value of the whole-number knob ``name``."""
    if name in SPECIAL:
        return SPECIAL[name]
    return TILE if "BLOCK_" in name else OTHER
