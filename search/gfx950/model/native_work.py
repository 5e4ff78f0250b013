"""Work of the kernels that Triton does not make, from their knobs alone, for whole columns of configurations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernels.families.staged_ck import CodeObjectGemm
from kernels.families.staged_hip import SCALED_K, HipGemm, hip_lds_bytes
from kernels.families.stages import HipQuantize
from kernels.launches.coverage import QUANTIZE_COLUMNS, quantize_height
from kernels.problem import GemmShape
from kernels.rocm.code_objects import K_STEP
from search.gfx950.code.instruction_mix import VALU_CLKS
from search.gfx950.machine import Machine, Number
from search.gfx950.model.formula import CallWork
from search.gfx950.model.tile_work import HARDWARE_VALU, LANES, MFMA_CLKS, PROLOGUE_VALU, ROW_BYTES, STORE_VALU, cdiv
from search.gfx950.model.work import estimate_code_object_work

# Of clang 22's code of kernels/hip/gemm.hip.
STEP_VALU = 10.0  # vector instructions of a wave and step
BASE_VGPRS = 30.0  # registers of a lane besides accumulators and operands
HIP_FILLED = 0.9  # of a lane's registers: 448 of 512 by the estimate still fit, 498 spilled


def hip_vgprs(c: Any) -> Number:
    """Registers of a lane that the HIP GEMM wants, from its knobs or columns of them."""
    waves = np.asarray(c.waves_m) * c.waves_n
    accumulators = np.asarray(c.BLOCK_M) * c.BLOCK_N / (LANES * waves)
    part_m, part_n = np.asarray(c.BLOCK_M) / c.waves_m, np.asarray(c.BLOCK_N) / c.waves_n
    columns = part_n * c.BLOCK_K / 2 / (4 * LANES)  # registers of B of one step
    words = np.asarray(c.BLOCK_K) / SCALED_K * np.asarray(c.matrix_instr_nonkdim) / 16  # of scales
    scales = (np.ceil(part_m / 32) + np.ceil(part_n / 32)) * words
    rows = part_m * 128 / 2 / (4 * LANES)  # of A, one matrix instruction deep
    wanted: Number = BASE_VGPRS + accumulators + c.num_stages * (columns + scales) + 2 * rows
    return wanted


def hip_gemm_overflows(stage: HipGemm, machine: Machine) -> Any:
    """Whether a tile exceeds the registers; the family's rules see to the LDS."""
    waves_per_simd = np.ceil(np.asarray(stage.tile.waves_m) * stage.tile.waves_n / machine.simds)
    return hip_vgprs(stage.tile) > HIP_FILLED * machine.vgprs / waves_per_simd


def hip_gemm_work(stage: HipGemm, shape: GemmShape, machine: Machine) -> CallWork:
    """Work of ``kernels/hip/gemm.hip``: A through the LDS, B and all scales straight to registers."""
    c = stage.tile
    M, N, K = shape.M, shape.N, shape.K
    block_m, block_n, block_k = (np.asarray(block) for block in (c.BLOCK_M, c.BLOCK_N, c.BLOCK_K))
    split_k = np.asarray(c.split_k)
    waves = np.asarray(c.waves_m) * c.waves_n
    steps = cdiv(cdiv(K, block_k), split_k)
    units = block_m * block_n * block_k / (16 * 16 * 128) / waves  # of a wave and step
    per_instruction = np.where(np.asarray(c.matrix_instr_nonkdim) == 32, 2.0, 1.0)
    a_bytes, b_bytes = block_m * block_k / 2, block_n * block_k / 2
    loaded = a_bytes / waves + b_bytes / c.waves_n  # by one wave, in a step
    read = block_m / c.waves_m * block_k / 2
    lds_bytes = hip_lds_bytes(block_m, block_k, waves, np.asarray(c.num_stages))
    resident = machine.resident_workgroups(hip_vgprs(c), lds_bytes, waves)
    return CallWork(
        workgroups=cdiv(M, block_m) * cdiv(N, block_n) * split_k,
        waves=waves,
        resident=np.maximum(1, resident),
        mfma=steps * units / per_instruction,
        mfma_clks=steps * units * MFMA_CLKS,
        valu_clks=VALU_CLKS * (PROLOGUE_VALU + STORE_VALU * block_m * block_n / (LANES * waves) + steps * STEP_VALU),
        lds_clks=steps * (read + a_bytes / waves) / LANES,
        vmem_clks=steps * loaded / machine.l1_bytes_per_clk,
        barriers=steps,
        steps=steps,
        stages=c.num_stages,
        feed_bytes=steps * (np.minimum(block_m, M) + block_n) * block_k * ROW_BYTES,
        read_bytes=(M + N) * K * ROW_BYTES,
        written_bytes=np.where(split_k > 1, 4.0, 2.0) * M * N * split_k,
    )


def hip_quantize_work(stage: HipQuantize, shape: GemmShape, machine: Machine) -> CallWork:
    """Work of ``kernels/hip/quantize.hip``."""
    threads, groups, vector = (np.asarray(knob) for knob in (stage.threads, stage.groups, stage.vector))
    rows = quantize_height(threads, groups, vector) * np.where(groups > 1, 2, 1)
    workgroups = cdiv(shape.M, rows) * cdiv(shape.K, QUANTIZE_COLUMNS)
    values = rows * QUANTIZE_COLUMNS / threads  # a lane
    return CallWork(
        workgroups=workgroups,
        waves=threads / LANES,
        resident=np.maximum(1, np.floor(1024 / threads)),
        valu_clks=VALU_CLKS * (PROLOGUE_VALU / 2 + HARDWARE_VALU / 2 * values),
        feed_bytes=2.0 * shape.M * shape.K / workgroups,
        read_bytes=2.0 * shape.M * shape.K,
        written_bytes=shape.M * shape.K * ROW_BYTES,
    )


def code_object_gemm_work(stage: CodeObjectGemm, shape: GemmShape, machine: Machine) -> CallWork:
    """Work of AITER's GEMM; each slice of K reads its part of the operands and adds to C."""
    split = np.asarray(stage.log2_k_split)
    gemm = estimate_code_object_work(np.asarray(stage.BLOCK_M), stage.BLOCK_N, shape.M, shape.N, shape.K)
    slice_k = cdiv(shape.K / 2.0**split, K_STEP) * K_STEP
    slices = np.where(split > 0, cdiv(shape.K, slice_k), 1)
    share = np.where(split > 0, slice_k / shape.K, 1.0)
    written = 2.0 * shape.M * shape.N
    return replace(
        gemm, workgroups=gemm.workgroups * slices, mfma=gemm.mfma * share, mfma_clks=gemm.mfma_clks * share,
        steps=gemm.steps * share, feed_bytes=gemm.feed_bytes * share,
        written_bytes=np.where(split > 0, 0.0, written), atomic_bytes=np.where(split > 0, written * slices, 0.0),
    )  # fmt: skip
