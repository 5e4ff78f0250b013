"""Work of the kernel families from tile sizes alone, for whole columns of configurations, before anything is compiled.

The counts follow what Triton 3.9 generates for the families' kernels: fits to compiled code, good for ranking.
``search.gfx950.timing_model.with_code`` puts the counts of a compiled kernel in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.problem import GemmShape
from kernels.triton_calls import ZERO_BLOCK
from kernels.triton_programs import CAST_BLOCK
from search.gfx950.instruction_mix import VALU_CLKS
from search.gfx950.machine import Machine, Number
from search.gfx950.tile_work import (
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
from search.gfx950.timing_model import CallWork

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
        BLOCK_M: Rows of a tile.
        BLOCK_N: Columns of a tile.
        BLOCK_K: Values of K a step.
        M: Rows of the problem.
        N: Columns.
        K: Depth.
        split_k: Workgroups that share a tile.
        num_warps: Waves of a workgroup.
        num_stages: Pipelining depth.
        matrix_instr_nonkdim: Rows of the MFMA instruction: 16 or 32; 0 counts as 16.
        quantizer: ``hardware`` or ``software`` (or a column of these) where A is bf16 and quantised in the loop;
            None where A is packed.
        atomic: The splits add to one fp32 output; else each stores a slice.
        machine: Decides how many workgroups fit.
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
        feed_bytes=steps * (np.asarray(tile_m) + tile_n) * 256 * ROW_BYTES,
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
        matrix_instr_nonkdim=c["matrix_instr_nonkdim"],
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
