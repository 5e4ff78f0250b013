"""Work of the kernel families from tile sizes alone, for whole columns of configurations, before anything is compiled.

The counts follow what Triton 3.9 generates for the families' kernels: fits to compiled code, good for ranking.
``search.gfx950.timing_model.with_code`` puts the counts of a compiled kernel in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.families import CAST_BLOCK, ZERO_BLOCK
from kernels.problem import GemmShape
from search.gfx950.machine import Machine, Number
from search.gfx950.timing_model import CallWork

ROW_BYTES = 17 / 32  # of MXFP4: half a byte a value and one scale byte a block of 32
LANES = 64
# Vector instructions for each value of A that a lane quantises, and for everything else in a step.
HARDWARE_VALU = 7.3
SOFTWARE_VALU = 20.5
STEP_VALU = 30.0
PROLOGUE_VALU = 130.0
VALU_CLKS = 4.0
BASE_VGPRS = 40.0
SCALE_LDS_CLKS = 60.0  # of a step: scales cross the LDS as single bytes
HAND_WRITTEN_STAGES = 4  # loads far enough ahead that only the fitted step floor remains


def _cdiv(value: Number, divisor: Number) -> Number:
    """Quotient rounded up."""
    quotient: Number = np.ceil(np.asarray(value) / divisor)
    return quotient


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
    quantizer: Any = None,
    atomic: bool = False,
    machine: Machine,
) -> CallWork:
    """Work of a Triton GEMM kernel.

    Args:
        BLOCK_M: Rows of a tile.
        BLOCK_N: Columns of a tile.
        BLOCK_K: Values of K a step.
        M: Rows of the problem.
        N: Columns.
        K: Depth.
        split_k: Workgroups that share a tile.
        num_warps: Waves of a workgroup.
        num_stages: Pipelining depth.
        quantizer: ``hardware`` or ``software`` (or a column of these) where A is bf16 and quantised in the loop;
            None where A is packed.
        atomic: The splits add to one fp32 output; else each stores a slice.
        machine: Decides how many workgroups fit.
    """
    steps = _cdiv(_cdiv(K, BLOCK_K), split_k)
    rows = np.minimum(BLOCK_M, M)
    a_bytes = rows * BLOCK_K * (ROW_BYTES if quantizer is None else 2)
    out_bytes = np.where(np.asarray(split_k) > 1, 4.0, 2.0) * M * N * split_k
    wave = _wave_work(BLOCK_M, BLOCK_N, BLOCK_K, num_warps, num_stages, quantizer)
    return CallWork(
        workgroups=_cdiv(M, BLOCK_M) * _cdiv(N, BLOCK_N) * split_k,
        waves=num_warps,
        resident=np.maximum(1, machine.resident_workgroups(wave["vgprs"], wave["lds_bytes"], num_warps)),
        mfma=steps * wave["mfma"],
        mfma_clks=steps * wave["mfma"] * 16,
        valu_clks=VALU_CLKS * (PROLOGUE_VALU + steps * wave["valu"]),
        lds_clks=steps * wave["lds_clks"],
        barriers=steps * (2 if quantizer is None else 4),
        steps=steps,
        stages=num_stages,
        feed_bytes=steps * (a_bytes + BLOCK_N * BLOCK_K * ROW_BYTES),
        read_bytes=M * K * (ROW_BYTES if quantizer is None else 2) + N * K * ROW_BYTES,
        written_bytes=0.0 if atomic else out_bytes,
        atomic_bytes=4.0 * M * N * split_k if atomic else 0.0,
    )


def _wave_work(
    BLOCK_M: Number, BLOCK_N: Number, BLOCK_K: Number, num_warps: Number, num_stages: Number, quantizer: Any
) -> dict[str, Number]:
    """Registers and LDS of a workgroup, and what one wave does in one step.

    A wave's part of the tile is at least 32 columns and 32 rows (16 if there are no more); where that leaves fewer
    parts than waves, waves repeat each other's work.
    """
    m_part = np.clip(BLOCK_M, 16, 32)
    parts = np.maximum(1, BLOCK_M / m_part) * np.maximum(1, BLOCK_N / 32)
    per_wave = _cdiv(parts, num_warps)
    values = np.asarray(BLOCK_M) * BLOCK_K / (LANES * num_warps)  # of A, a lane
    side_m = m_part * np.maximum(1, np.sqrt(per_wave))
    side_n = 32 * per_wave * m_part / side_m
    operand_bytes = (side_m + side_n) * BLOCK_K / 2  # read from LDS by a wave
    buffered = (BLOCK_N + (BLOCK_M if quantizer is None else 0)) * BLOCK_K * ROW_BYTES
    held = np.maximum(BLOCK_M, 16) * BLOCK_N / (LANES * num_warps) + operand_bytes / (4 * LANES)
    return {
        "mfma": per_wave * (m_part / 16) * 2 * BLOCK_K / 128,
        "valu": STEP_VALU + _quantize_valu(quantizer) * values,
        "lds_clks": (operand_bytes + buffered / num_warps) / LANES + SCALE_LDS_CLKS,
        "vgprs": BASE_VGPRS + held + (0.0 if quantizer is None else 1.5 * values),
        "lds_bytes": np.where(np.asarray(num_stages) > 1, num_stages * buffered, buffered / 2),
    }


def _quantize_valu(quantizer: Any) -> Number:
    """Vector instructions for each value that a lane quantises; 0 where it quantises none."""
    if quantizer is None:
        return 0.0
    return np.where(np.asarray(quantizer) == "hardware", HARDWARE_VALU, SOFTWARE_VALU)


def estimate_code_object_work(tile_m: Number, tile_n: Number, M: Number, N: Number, K: Number) -> CallWork:
    """Work of AITER's hand-written GEMM with packed operands: one workgroup of 4 waves a compute unit.

    Everything that such a kernel overlaps by hand is inside the fitted efficiency, so only the matrix cores, the
    operands and memory count.
    """
    steps = _cdiv(K, 256)
    mfma = steps * tile_m * tile_n / 512  # of a wave: 16x16x128 in each of 4 waves
    return CallWork(
        workgroups=_cdiv(M, tile_m) * _cdiv(N, tile_n),
        waves=4,
        mfma=mfma,
        mfma_clks=16 * mfma,
        steps=steps,
        stages=HAND_WRITTEN_STAGES,
        feed_bytes=steps * (np.asarray(tile_m) + tile_n) * 256 * ROW_BYTES,
        read_bytes=(np.asarray(M) + N) * K * ROW_BYTES,
        written_bytes=2.0 * np.asarray(M) * N,
    )


def estimate_quantize_work(
    BLOCK_M: Number, BLOCK_K: Number, M: int, K: int, *, quantizer: Any, num_warps: Number = 4
) -> CallWork:
    """Work of the kernel that quantises A [M, K] of bf16 to packed codes and scales."""
    values = np.asarray(BLOCK_M) * BLOCK_K / (LANES * num_warps)  # a lane
    workgroups = _cdiv(M, BLOCK_M) * _cdiv(K, BLOCK_K)
    return CallWork(
        workgroups=workgroups,
        waves=num_warps,
        resident=4,
        valu_clks=VALU_CLKS * (PROLOGUE_VALU + _quantize_valu(quantizer) * values),
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
    workgroups = _cdiv(M, BLOCK_M) * _cdiv(N, BLOCK_N)
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
    return CallWork(workgroups=_cdiv(M * N, block), waves=4, resident=8, steps=0, written_bytes=4.0 * M * N)


def _fused(c: Mapping[str, Any], shape: GemmShape, machine: Machine) -> tuple[CallWork, ...]:
    return (_gemm(c, shape, machine, quantizer=c["quantizer"]),)


def _fused_splitk_atomic(c: Mapping[str, Any], shape: GemmShape, machine: Machine) -> tuple[CallWork, ...]:
    gemm = _gemm(c, shape, machine, split_k=c["split_k"], quantizer=c["quantizer"], atomic=True)
    cast = estimate_reduce_work(*CAST_BLOCK, shape.M, shape.N, slices=1)
    return (estimate_zero_work(shape.M, shape.N, block=ZERO_BLOCK), gemm, cast)


def _fused_splitk_workspace(c: Mapping[str, Any], shape: GemmShape, machine: Machine) -> tuple[CallWork, ...]:
    gemm = _gemm(c, shape, machine, split_k=c["split_k"], quantizer=c["quantizer"])
    return (gemm, _reduce(c, shape))


def _staged_triton(c: Mapping[str, Any], shape: GemmShape, machine: Machine) -> tuple[CallWork, ...]:
    blocks = c["QUANT_BLOCK_M"], c["QUANT_BLOCK_K"]
    quantize = estimate_quantize_work(*blocks, shape.M, shape.K, quantizer=c["quantizer"])
    gemm = _gemm(c, shape, machine, split_k=c["split_k"])
    reduce = _reduce(c, shape)
    launched = np.where(np.asarray(c["split_k"]) > 1, reduce.workgroups, 0)
    return (quantize, gemm, replace(reduce, workgroups=launched))


def _gemm(c: Mapping[str, Any], shape: GemmShape, machine: Machine, **changes: Any) -> CallWork:
    return estimate_gemm_work(
        BLOCK_M=c["BLOCK_M"],
        BLOCK_N=c["BLOCK_N"],
        BLOCK_K=c["BLOCK_K"],
        M=shape.M,
        N=shape.N,
        K=shape.K,
        num_warps=c["num_warps"],
        num_stages=c["num_stages"],
        machine=machine,
        **changes,
    )


def _reduce(c: Mapping[str, Any], shape: GemmShape) -> CallWork:
    return estimate_reduce_work(c["REDUCE_BLOCK_M"], c["REDUCE_BLOCK_N"], shape.M, shape.N, slices=c["split_k"])


FAMILY_WORK: Mapping[str, Callable[[Mapping[str, Any], GemmShape, Machine], tuple[CallWork, ...]]] = {
    "fused": _fused,
    "fused_splitk_atomic": _fused_splitk_atomic,
    "fused_splitk_workspace": _fused_splitk_workspace,
    "staged_triton": _staged_triton,
}


def estimate_calls(family: str, columns: Mapping[str, Any], shape: GemmShape, machine: Machine) -> tuple[CallWork, ...]:
    """Work of each launch of a family's program, in the program's order.

    A launch that some configurations lack has 0 workgroups there. For one configuration, such launches are left out,
    so that the result pairs with the calls of its :class:`~kernels.program.Program`.

    Args:
        family: A key of ``FAMILY_WORK``.
        columns: The configuration's fields: single values, or one array [configurations] for each.
        shape: Problem.
        machine: Decides how many workgroups fit.

    Raises:
        KeyError: The family is not modelled, or a field is missing.
    """
    calls = FAMILY_WORK[family](columns, shape, machine)
    return tuple(call for call in calls if np.any(np.asarray(call.workgroups) > 0))
