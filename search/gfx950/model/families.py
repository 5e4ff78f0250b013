"""Work of each family's launches, estimated from the knobs of its configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.families.fused import CAST_BLOCK
from kernels.families.stages import ZERO_BLOCK
from kernels.problem import GemmShape
from search.gfx950.machine import Machine
from search.gfx950.model.native_work import staged_ck, staged_hip
from search.gfx950.model.timing_model import CallWork
from search.gfx950.model.work import (
    estimate_gemm_work,
    estimate_quantize_work,
    estimate_reduce_work,
    estimate_zero_work,
)


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
    "staged_hip": staged_hip,
    "staged_ck": staged_ck,
}


def estimate_calls(family: str, columns: Mapping[str, Any], shape: GemmShape, machine: Machine) -> tuple[CallWork, ...]:
    """Work of each launch of a family's program, in the program's order.

    A launch that some configurations lack has 0 workgroups there. For one configuration, such launches are left out,
    so that the result pairs with the calls of its :class:`~kernels.launches.program.Program`.

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
