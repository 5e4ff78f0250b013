"""AITER's Triton GEMMs alone, without the quantise kernel before, as its published times count them.

The kernels are those of the families ``aiter_triton_a4w4`` and ``aiter_triton_a16w4``, found in ``MXFP4_AITER``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import triton

from kernels.families.aiter_triton import AiterFusedGemm, AiterPackedGemm, AiterSum, AiterTritonConfig
from kernels.families.stages import compose, packed_buffers
from kernels.launches.program import Program
from kernels.problem import GemmShape


@dataclass(frozen=True)
class Knobs:
    """A configuration under AITER's names for its knobs, in lower case.

    Args:
        block_m, block_n, block_k: Tile; block_k in elements.
        split_k: Slices of K.
        num_warps, num_stages, waves_per_eu, matrix_instr_nonkdim: Launch options.
        cache_modifier: Of the weight loads.
        group_m: Tile rows visited together.
        reduce_n: Columns of a tile of the reduction.
    """

    block_m: int
    block_n: int
    block_k: int
    split_k: int = 1
    num_warps: int = 4
    num_stages: int = 2
    waves_per_eu: int = 2
    matrix_instr_nonkdim: int = 16
    cache_modifier: str = ".cg"
    group_m: int = 1
    reduce_n: int = 64

    @property
    def config(self) -> AiterTritonConfig:
        """The same under this project's names."""
        return AiterTritonConfig(
            self.block_m, self.block_n, self.block_k, self.group_m, self.num_warps, self.num_stages, self.waves_per_eu,
            self.matrix_instr_nonkdim, ".cg" if self.cache_modifier else "", self.split_k,
        )  # fmt: skip


def split_block(packed_k: int, knobs: Knobs) -> tuple[int, Knobs]:
    """Elements of K of a slice, and the knobs that AITER's wrapper takes instead of ``knobs``.

    Source: AITER's ``get_splitk``: it halves the split or the step until K divides.
    """
    split, block_k = knobs.split_k, knobs.block_k
    slice_k = _slice(packed_k, split, block_k)
    while split > 1 and block_k > 16:
        if packed_k % (slice_k // 2):
            split //= 2
        elif packed_k % (block_k // 2):
            block_k //= 2
        else:
            break
        slice_k = _slice(packed_k, split, block_k)
    if split == 1:
        slice_k = 2 * packed_k
    if block_k >= 2 * packed_k:
        block_k, split, slice_k = triton.next_power_of_2(2 * packed_k), 1, 2 * packed_k
    return slice_k, replace(knobs, split_k=split, block_k=block_k, block_n=max(knobs.block_n, 32))


def _slice(packed_k: int, split: int, block_k: int) -> int:
    whole = 2 * -(-packed_k // split)
    return -(-whole // block_k) * block_k


def gemm_program(shape: GemmShape, asked: Knobs, *, fused: bool) -> Program:
    """AITER's GEMM with preshuffled B, and its reduction where K is split.

    Args:
        shape: Problem.
        asked: Configuration; AITER's wrapper may lower its split or its step.
        fused: A is bf16 and quantised in the loop; else it is packed, with shuffled scales from BLOCK_M = 32 on.
    """
    _, knobs = split_block(shape.K // 2, asked)
    gemm = AiterFusedGemm(knobs.config) if fused else AiterPackedGemm(knobs.config)
    reduction = AiterSum(knobs.split_k, knobs.reduce_n, when=knobs.split_k > 1)
    program = compose((gemm, reduction), shape, shape.K)
    return program if fused else replace(program, buffers=(*program.buffers, *packed_buffers(shape)))
