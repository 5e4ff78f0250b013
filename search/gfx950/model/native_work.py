"""Work of the kernels that Triton does not make, from their knobs alone, for whole columns of configurations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from kernels.families.staged_hip import SCALED_K, hip_lds_bytes
from kernels.launches.coverage import QUANTIZE_COLUMNS, quantize_height
from kernels.problem import GemmShape
from kernels.rocm.code_objects import K_STEP
from search.gfx950.code.instruction_mix import VALU_CLKS
from search.gfx950.machine import Machine, Number
from search.gfx950.model.tile_work import HARDWARE_VALU, LANES, MFMA_CLKS, PROLOGUE_VALU, ROW_BYTES, STORE_VALU, cdiv
from search.gfx950.model.timing_model import CallWork
from search.gfx950.model.work import (
    estimate_code_object_work,
    estimate_quantize_work,
    estimate_reduce_work,
    estimate_zero_work,
)

# Of clang 22's code of kernels/hip/gemm.hip.
STEP_VALU = 10.0  # vector instructions of a wave and step
BASE_VGPRS = 30.0  # registers of a lane besides accumulators and operands


def hip_vgprs(c: Mapping[str, Any]) -> Number:
    """Registers of a lane that the HIP GEMM wants."""
    waves = np.asarray(c["waves_m"]) * c["waves_n"]
    accumulators = np.asarray(c["BLOCK_M"]) * c["BLOCK_N"] / (LANES * waves)
    part_m, part_n = np.asarray(c["BLOCK_M"]) / c["waves_m"], np.asarray(c["BLOCK_N"]) / c["waves_n"]
    columns = part_n * c["BLOCK_K"] / 2 / (4 * LANES)  # registers of B of one step
    words = np.asarray(c["BLOCK_K"]) / SCALED_K * np.asarray(c["matrix_instr_nonkdim"]) / 16  # of scales
    scales = (np.ceil(part_m / 32) + np.ceil(part_n / 32)) * words
    rows = part_m * 128 / 2 / (4 * LANES)  # of A, one matrix instruction deep
    wanted: Number = BASE_VGPRS + accumulators + c["num_stages"] * (columns + scales) + 2 * rows
    return wanted


def estimate_hip_gemm_work(c: Mapping[str, Any], shape: GemmShape, machine: Machine) -> CallWork:
    """Work of ``kernels/hip/gemm.hip``: A through the LDS, B and all scales straight to registers."""
    M, N, K = shape.M, shape.N, shape.K
    block_m, block_n, block_k = (np.asarray(c[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    split_k = np.asarray(c["split_k"])
    waves = np.asarray(c["waves_m"]) * c["waves_n"]
    steps = cdiv(cdiv(K, block_k), split_k)
    units = block_m * block_n * block_k / (16 * 16 * 128) / waves  # of a wave and step
    per_instruction = np.where(np.asarray(c["matrix_instr_nonkdim"]) == 32, 2.0, 1.0)
    a_bytes, b_bytes = block_m * block_k / 2, block_n * block_k / 2
    loaded = a_bytes / waves + b_bytes / c["waves_n"]  # by one wave, in a step
    read = block_m / c["waves_m"] * block_k / 2
    lds_bytes = hip_lds_bytes(block_m, block_k, waves, np.asarray(c["num_stages"]))
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
        stages=c["num_stages"],
        feed_bytes=steps * (np.minimum(block_m, M) + block_n) * block_k * ROW_BYTES,
        read_bytes=(M + N) * K * ROW_BYTES,
        written_bytes=np.where(split_k > 1, 4.0, 2.0) * M * N * split_k,
    )


def estimate_hip_quantize_work(c: Mapping[str, Any], shape: GemmShape) -> CallWork:
    """Work of ``kernels/hip/quantize.hip``."""
    threads, groups, vector = (np.asarray(c[f"QUANT_{name}"]) for name in ("THREADS", "GROUPS", "VECTOR"))
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


def staged_hip(c: Mapping[str, Any], shape: GemmShape, machine: Machine) -> tuple[CallWork, ...]:
    """Quantise, multiply, reduce where K is split."""
    reduce = estimate_reduce_work(c["REDUCE_BLOCK_M"], c["REDUCE_BLOCK_N"], shape.M, shape.N, slices=c["split_k"])
    launched = np.where(np.asarray(c["split_k"]) > 1, reduce.workgroups, 0)
    gemm = estimate_hip_gemm_work(c, shape, machine)
    return (estimate_hip_quantize_work(c, shape), gemm, replace(reduce, workgroups=launched))


def staged_ck(c: Mapping[str, Any], shape: GemmShape, machine: Machine) -> tuple[CallWork, ...]:
    """Quantise, clear C where K is split, multiply."""
    split = np.asarray(c["log2_k_split"])
    gemm = estimate_code_object_work(np.asarray(c["BLOCK_M"]), c["BLOCK_N"], shape.M, shape.N, shape.K)
    slice_k = cdiv(shape.K / 2.0**split, K_STEP) * K_STEP
    slices = np.where(split > 0, cdiv(shape.K, slice_k), 1)
    share = np.where(split > 0, slice_k / shape.K, 1.0)
    written = 2.0 * shape.M * shape.N
    parts = replace(
        gemm, workgroups=gemm.workgroups * slices, mfma=gemm.mfma * share, mfma_clks=gemm.mfma_clks * share,
        steps=gemm.steps * share, feed_bytes=gemm.feed_bytes * share,
        written_bytes=np.where(split > 0, 0.0, written), atomic_bytes=np.where(split > 0, written * slices, 0.0),
    )  # fmt: skip
    zero = estimate_zero_work(shape.M, shape.N)
    cleared = replace(zero, written_bytes=written, workgroups=np.where(split > 0, zero.workgroups, 0))
    by_triton = estimate_quantize_work(c["QUANT_BLOCK_M"], c["QUANT_BLOCK_K"], shape.M, shape.K, quantizer="hardware")
    by_hip = estimate_hip_quantize_work(c, shape)
    return (_either(np.asarray(c["quantize_kernel"]) == "hip", by_hip, by_triton), cleared, parts)


def _either(condition: Any, yes: CallWork, no: CallWork) -> CallWork:
    """``yes`` where ``condition`` holds, else ``no``."""
    numbers = [field.name for field in fields(CallWork) if field.name != "from_hbm"]
    return replace(yes, **{name: np.where(condition, getattr(yes, name), getattr(no, name)) for name in numbers})
