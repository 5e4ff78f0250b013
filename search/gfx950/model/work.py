"""Work of kernels from tile sizes alone, for whole columns of configurations, before anything is compiled.

The counts follow what Triton 3.9 generates: fits to compiled code, good for ranking.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernels.families.aiter_triton import AiterGemm, AiterSum
from kernels.families.fused_splitk_ticket import TicketGemm
from kernels.families.stages import SMALL_KERNEL, ZERO_BLOCK, Clear, Gemm, Quantize, Round, Sum
from kernels.problem import GemmShape
from search.gfx950.code.instruction_mix import VALU_CLKS
from search.gfx950.machine import Machine, Number
from search.gfx950.model.formula import CallWork
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

SMALL_WAVES = SMALL_KERNEL["num_warps"]
HAND_WRITTEN_STAGES = 4  # loads far enough ahead that only the fitted step floor remains


def gemm_work(stage: Gemm, shape: GemmShape, machine: Machine) -> CallWork:
    """Of a Triton GEMM, whose splits add to one fp32 output, or each store a slice."""
    M, N, K = shape.M, shape.N, shape.K
    tile, split_k, packed = TileWork.of(stage), stage.split_k, stage.staged
    steps = cdiv(cdiv(K, tile.BLOCK_K), split_k)
    unrolled = np.maximum(steps, np.asarray(tile.num_stages) - 1)  # peeled steps run whether or not they have data
    a_bytes = np.minimum(tile.BLOCK_M, M) * tile.BLOCK_K * (ROW_BYTES if packed else 2)
    out_bytes = np.where(np.asarray(split_k) > 1, 4.0, 2.0) * M * N * split_k
    resident = machine.resident_workgroups(tile.vgprs, tile.lds_bytes, tile.num_warps)
    return CallWork(
        workgroups=cdiv(M, tile.BLOCK_M) * cdiv(N, tile.BLOCK_N) * split_k,
        waves=tile.num_warps,
        resident=np.maximum(1, resident),
        mfma=steps * tile.mfma,
        mfma_clks=steps * tile.mfma * MFMA_CLKS,
        valu_clks=VALU_CLKS * (PROLOGUE_VALU + STORE_VALU * tile.accumulators + unrolled * tile.valu),
        lds_clks=unrolled * tile.lds_clks,
        vmem_clks=unrolled * SPILL_CLKS * np.maximum(0, tile.vgprs - tile.vgpr_limit(machine)),
        barriers=steps * (2 if packed else 4),
        steps=steps,
        stages=tile.num_stages,
        feed_bytes=steps * (a_bytes + tile.BLOCK_N * tile.BLOCK_K * ROW_BYTES),
        read_bytes=M * K * (ROW_BYTES if packed else 2) + N * K * ROW_BYTES,
        written_bytes=0.0 if stage.atomic else out_bytes,
        atomic_bytes=4.0 * M * N * split_k if stage.atomic else 0.0,
    )


def ticket_gemm_work(stage: TicketGemm, shape: GemmShape, machine: Machine) -> CallWork:
    """As :func:`gemm_work`, and the sum of a tile's slices by the last of its workgroups.

    Its stores reach memory, its ticket comes back, the slices arrive, all of them at once: three round trips.
    """
    gemm, tile = gemm_work(stage, shape, machine), TileWork.of(stage)
    rows = np.minimum(tile.BLOCK_M, shape.M)
    slices_clks = 4.0 * rows * tile.BLOCK_N * stage.split_k * machine.clock_mhz / (machine.feed_gbs * 1e3)
    sum_clks = VALU_CLKS * tile.accumulators * stage.split_k * cdiv(tile.num_warps, machine.simds)
    return replace(
        gemm,
        written_bytes=(4.0 * stage.split_k + 2.0) * shape.M * shape.N,
        tail_clks=3 * machine.l2_latency_clks + np.maximum(slices_clks, sum_clks),
    )


def gemm_overflows(stage: Gemm, machine: Machine) -> Any:
    """Whether a tile exceeds the registers or the LDS.

    ``waves_per_eu`` makes the compiler stay within the registers that leave room for so many waves on a SIMD.
    """
    tile = TileWork.of(stage)
    hinted = np.maximum(1, stage.tile.waves_per_eu)
    registers = np.minimum(tile.vgpr_limit(machine), machine.vgprs // (hinted * machine.vgpr_step) * machine.vgpr_step)
    return (tile.vgprs > registers) | (tile.lds_bytes > machine.lds_bytes)


def aiter_gemm_work(stage: AiterGemm, shape: GemmShape, machine: Machine) -> CallWork:
    """Of AITER's Triton GEMM, as of one of this project with the same tile."""
    return gemm_work(_alike(stage), shape, machine)


def aiter_gemm_overflows(stage: AiterGemm, machine: Machine) -> Any:
    """As :func:`gemm_overflows`."""
    return gemm_overflows(_alike(stage), machine)


def _alike(stage: AiterGemm) -> Gemm:
    tile = SimpleNamespace(**vars(stage.tile), quantizer=stage.quantizer)
    return Gemm(tile, staged=stage.quantizer is None, split_k=tile.split_k)


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


def quantize_work(stage: Quantize | Round, shape: GemmShape, machine: Machine) -> CallWork:
    """Of the Triton kernel that quantises A, or rounds it, which no table serves here: as a quantiser in software."""
    M, K = shape.M, shape.K
    quantizer = stage.quantizer if isinstance(stage, Quantize) else "software"
    values = np.asarray(stage.BLOCK_M) * stage.BLOCK_K / (LANES * SMALL_WAVES)  # a lane
    workgroups = cdiv(M, stage.BLOCK_M) * cdiv(K, stage.BLOCK_K)
    return CallWork(
        workgroups=workgroups,
        waves=SMALL_WAVES,
        resident=4,
        valu_clks=VALU_CLKS * (PROLOGUE_VALU + quantize_valu(quantizer) * values),
        barriers=7,
        feed_bytes=2.0 * M * K / workgroups,
        read_bytes=2.0 * M * K,
        written_bytes=M * K * ROW_BYTES,
    )


def sum_work(stage: Sum | AiterSum, shape: GemmShape, machine: Machine) -> CallWork:
    """Of the kernel that sums fp32 slices and rounds to bf16."""
    M, N, slices = shape.M, shape.N, stage.slices
    values = np.asarray(stage.BLOCK_M) * stage.BLOCK_N / (LANES * SMALL_WAVES)  # a lane
    workgroups = cdiv(M, stage.BLOCK_M) * cdiv(N, stage.BLOCK_N)
    return CallWork(
        workgroups=workgroups,
        waves=SMALL_WAVES,
        resident=8,
        valu_clks=VALU_CLKS * (20 + values * slices),
        feed_bytes=4.0 * M * N * slices / workgroups,
        read_bytes=4.0 * M * N * np.asarray(slices),
        written_bytes=2.0 * M * N,
        from_hbm=False,
    )


def clear_work(stage: Clear, shape: GemmShape, machine: Machine) -> CallWork:
    """Of clearing fp32 sums, or the bf16 output."""
    elements = shape.M * shape.N
    written = (2.0 if stage.buffer == "out" else 4.0) * elements
    return CallWork(
        workgroups=cdiv(elements, ZERO_BLOCK), waves=SMALL_WAVES, resident=8, steps=0, written_bytes=written
    )
