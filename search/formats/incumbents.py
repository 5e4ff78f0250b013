"""What other libraries that are installed here would launch for a shape: it is tried before anything else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from kernels.config import KernelConfig
from kernels.errors import InputError
from kernels.families.aiter_triton import PLAIN_SCALES_BELOW, next_pow2
from kernels.families.stages import cdiv
from kernels.problem import GemmShape
from kernels.rocm.aiter_triton import triton_root
from search.formats.aiter_json import choice
from search.formats.format import make_config

OPERATIONS: Final = {
    "aiter_triton_a4w4": "GEMM-AFP4WFP4_PRESHUFFLED",
    "aiter_triton_a16w4": "GEMM-A16WFP4_PRESHUFFLED",
}  # of AITER, by the family that runs its kernel
Point = tuple[str, KernelConfig]


def incumbents(shape: GemmShape, families: Collection[str] = tuple(OPERATIONS)) -> list[Point]:
    """AITER's own choice for each of its kernels among ``families``; none where no AITER is found, or it has no file.

    Raises:
        InputError: A file of AITER's that cannot be read.
    """
    asked = [(family, operation) for family, operation in OPERATIONS.items() if family in families]
    if not asked:
        return []
    try:
        root = triton_root()
    except InputError:
        return []
    chosen = [(family, choice(root, operation, shape)) for family, operation in asked]
    return [(family, _config(family, knobs, shape)) for family, knobs in chosen if knobs is not None]


def _config(family: str, knobs: Mapping[str, Any], shape: GemmShape) -> KernelConfig:
    """The choice as the spaces name it: no group larger than there are tiles, a quantise kernel for so many rows."""
    most = next_pow2(cdiv(shape.M, knobs["BLOCK_M"]))
    values = {**knobs, "GROUP_M": 1 if knobs["BLOCK_N"] >= shape.N else min(knobs["GROUP_M"], most)}
    if family == "aiter_triton_a4w4":
        values |= {"QUANT_BLOCK_M": 1, "QUANT_BLOCK_K": 1024} if shape.M < PLAIN_SCALES_BELOW else {}
    return make_config(family, values)
