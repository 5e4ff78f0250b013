"""Work of kernels from tile sizes alone, for whole columns of configurations, before anything is compiled.

The counts follow what Triton 3.9 generates: fits to compiled code, good for ranking.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernels.families.stages import ZERO_BLOCK, Clear, Gemm, Quantize, Round, Sum
from kernels.problem import GemmShape
from search.gfx950.code.instruction_mix import VALU_CLKS
from search.gfx950.machine import Machine, Number
from search.gfx950.model.tile_work import (
    LANES,
    MFMA_CLKS,
    PROLOGUE_VALU,
    ROW_BYTES,
    SPILL_CLKS,
    STORE_VALU,
    TileWork,
    cdiv,
    quantize_valu,
)
from search.gfx950.model.timing_model import CallWork

HAND_WRITTEN_STAGES = 4  # loads far enough ahead that only the fitted step floor remains


def estimate_gemm_work(
    BLOCK_M: Number,
    BLOCK_N: Number,
    BLOCK_K: Number,
    M: int,
    N: int,
    K: int,
    *,
    split_k: Number = 1,
    num_warps: Number = 4,
    num_stages: Number = 2,
    matrix_instr_nonkdim: Number = 16,
    quantizer: Any = None,
    atomic: bool = False,
    machine: Machine,
) -> CallWork:
    """Work of a Triton GEMM kernel.

    Args:
        split_k: Workgroups that share a tile.
        matrix_instr_nonkdim: Rows of the MFMA instruction: 16 or 32; 0 counts as 16.
        quantizer: ``hardware`` or ``software`` (or a column of these) where A is bf16 and quantised in the loop;
            None where A is packed.
        atomic: The splits add to one fp32 output; else each stores a slice.
    """
    steps = cdiv(cdiv(K, BLOCK_K), split_k)
    unrolled = np.maximum(steps, np.asarray(num_stages) - 1)  # peeled steps run whether or not they have data
    a_bytes = np.minimum(BLOCK_M, M) * BLOCK_K * (ROW_BYTES if quantizer is None else 2)
    out_bytes = np.where(np.asarray(split_k) > 1, 4.0, 2.0) * M * N * split_k
    tile = TileWork(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, matrix_instr_nonkdim, quantizer)
    resident = machine.resident_workgroups(tile.vgprs, tile.lds_bytes, num_warps)
    return CallWork(
        workgroups=cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N) * split_k,
        waves=num_warps,
        resident=np.maximum(1, resident),
        mfma=steps * tile.mfma,
        mfma_clks=steps * tile.mfma * MFMA_CLKS,
        valu_clks=VALU_CLKS * (PROLOGUE_VALU + STORE_VALU * tile.accumulators + unrolled * tile.valu),
        lds_clks=unrolled * tile.lds_clks,
        vmem_clks=unrolled * SPILL_CLKS * np.maximum(0, tile.vgprs - tile.vgpr_limit(machine)),
        barriers=steps * (2 if quantizer is None else 4),
        steps=steps,
        stages=num_stages,
        feed_bytes=steps * (a_bytes + BLOCK_N * BLOCK_K * ROW_BYTES),
        read_bytes=M * K * (ROW_BYTES if quantizer is None else 2) + N * K * ROW_BYTES,
        written_bytes=0.0 if atomic else out_bytes,
        atomic_bytes=4.0 * M * N * split_k if atomic else 0.0,
    )


def estimate_code_object_work(tile_m: Number, tile_n: Number, M: Number, N: Number, K: Number) -> CallWork:
    """Work of AITER's hand-written GEMM with packed operands: one workgroup of 4 waves a compute unit.

    Everything that such a kernel overlaps by hand is inside the fitted efficiency, so only the matrix cores, the
    operands and memory count.
    """
    steps = cdiv(K, 256)
    mfma = steps * tile_m * tile_n / 512  # of a wave: 16x16x128 in each of 4 waves
    return CallWork(
        workgroups=cdiv(M, tile_m) * cdiv(N, tile_n),
        waves=4,
        mfma=mfma,
        mfma_clks=16 * mfma,
        steps=steps,
        stages=HAND_WRITTEN_STAGES,
        feed_bytes=steps * (np.minimum(tile_m, M) + np.asarray(tile_n)) * 256 * ROW_BYTES,
        read_bytes=(np.asarray(M) + N) * K * ROW_BYTES,
        written_bytes=2.0 * np.asarray(M) * N,
    )


def estimate_quantize_work(
    BLOCK_M: Number, BLOCK_K: Number, M: int, K: int, *, quantizer: Any, num_warps: Number = 4
) -> CallWork:
    """Work of the kernel that quantises A [M, K] of bf16 to packed codes and scales."""
    values = np.asarray(BLOCK_M) * BLOCK_K / (LANES * num_warps)  # a lane
    workgroups = cdiv(M, BLOCK_M) * cdiv(K, BLOCK_K)
    return CallWork(
        workgroups=workgroups,
        waves=num_warps,
        resident=4,
        valu_clks=VALU_CLKS * (PROLOGUE_VALU + quantize_valu(quantizer) * values),
        barriers=7,
        feed_bytes=2.0 * M * K / workgroups,
        read_bytes=2.0 * M * K,
        written_bytes=M * K * ROW_BYTES,
    )


def estimate_reduce_work(
    BLOCK_M: Number, BLOCK_N: Number, M: int, N: int, *, slices: Number, num_warps: Number = 4
) -> CallWork:
    """Work of the kernel that sums fp32 slices [slices, M, N] and rounds to bf16."""
    values = np.asarray(BLOCK_M) * BLOCK_N / (LANES * num_warps)  # a lane
    workgroups = cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)
    return CallWork(
        workgroups=workgroups,
        waves=num_warps,
        resident=8,
        valu_clks=VALU_CLKS * (20 + values * slices),
        feed_bytes=4.0 * M * N * slices / workgroups,
        read_bytes=4.0 * M * N * np.asarray(slices),
        written_bytes=2.0 * M * N,
        from_hbm=False,
    )


def estimate_zero_work(M: int, N: int, *, block: int = 2048) -> CallWork:
    """Work of the kernel that clears an fp32 accumulator [M, N]."""
    return CallWork(workgroups=cdiv(M * N, block), waves=4, resident=8, steps=0, written_bytes=4.0 * M * N)


def gemm_work(stage: Gemm, shape: GemmShape, machine: Machine) -> CallWork:
    """Of a Triton GEMM."""
    tile = stage.tile
    return estimate_gemm_work(
        tile.BLOCK_M, tile.BLOCK_N, tile.BLOCK_K, shape.M, shape.N, shape.K,
        split_k=stage.split_k, num_warps=tile.num_warps, num_stages=tile.num_stages,
        matrix_instr_nonkdim=tile.matrix_instr_nonkdim, quantizer=_quantizer(stage), atomic=stage.atomic,
        machine=machine,
    )  # fmt: skip


def _quantizer(stage: Gemm) -> Any:
    return None if stage.staged else stage.tile.quantizer


def gemm_overflows(stage: Gemm, machine: Machine) -> Any:
    """Whether a tile exceeds the registers or the LDS.

    ``waves_per_eu`` makes the compiler stay within the registers that leave room for so many waves on a SIMD.
    """
    c = stage.tile
    tile = TileWork(
        c.BLOCK_M, c.BLOCK_N, c.BLOCK_K, c.num_warps, c.num_stages, c.matrix_instr_nonkdim, _quantizer(stage)
    )
    hinted = np.maximum(1, c.waves_per_eu)
    registers = np.minimum(tile.vgpr_limit(machine), machine.vgprs // (hinted * machine.vgpr_step) * machine.vgpr_step)
    return (tile.vgprs > registers) | (tile.lds_bytes > machine.lds_bytes)


def quantize_work(stage: Quantize, shape: GemmShape, machine: Machine) -> CallWork:
    """Of the Triton quantise kernel."""
    return estimate_quantize_work(stage.BLOCK_M, stage.BLOCK_K, shape.M, shape.K, quantizer=stage.quantizer)


def round_work(stage: Round, shape: GemmShape, machine: Machine) -> CallWork:
    """Of the rounding kernel, which no table serves on this machine: as a quantiser in software."""
    return estimate_quantize_work(stage.BLOCK_M, stage.BLOCK_K, shape.M, shape.K, quantizer="software")


def sum_work(stage: Sum, shape: GemmShape, machine: Machine) -> CallWork:
    """Of the reduction."""
    return estimate_reduce_work(stage.BLOCK_M, stage.BLOCK_N, shape.M, shape.N, slices=stage.slices)


def clear_work(stage: Clear, shape: GemmShape, machine: Machine) -> CallWork:
    """Of clearing fp32 sums, or the bf16 output."""
    item_bytes = 2.0 if stage.buffer == "out" else 4.0
    zero = estimate_zero_work(shape.M, shape.N, block=ZERO_BLOCK)
    return replace(zero, written_bytes=item_bytes * shape.M * shape.N)
