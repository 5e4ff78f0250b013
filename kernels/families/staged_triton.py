"""``staged_triton``: knobs, rules, launches. A quantise kernel, a GEMM on what it stored, a sum where K is split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kernels.config import Rule, multiple
from kernels.families.fused import SplitKWorkspaceConfig, _coverage, _gemm_constexprs, _gemm_grid, _gemm_wide
from kernels.families.stages import io_buffers, packed_buffers, quantize_call, round_call, summed, values_buffer
from kernels.launches.program import KernelCall, Program
from kernels.problem import GemmShape
from kernels.triton.gemm import decoded_gemm_kernel, staged_gemm_kernel


@dataclass(frozen=True)
class StagedConfig(SplitKWorkspaceConfig):
    """Knobs of ``staged_triton``: a quantise kernel with its own tile, a GEMM, a reduction if ``split_k`` > 1."""

    split_k: int = 1
    QUANT_BLOCK_M: int = 32
    QUANT_BLOCK_K: int = 256

    RULES: ClassVar[tuple[Rule, ...]] = (
        *SplitKWorkspaceConfig.RULES,
        multiple("QUANT_BLOCK_M", 1),
        multiple("QUANT_BLOCK_K", 32),
        Rule(lambda c, s, d: c.BLOCK_M <= 256, "BLOCK_M={BLOCK_M} exceeds 256, the row padding of the shuffled scales"),
        Rule(
            lambda c, s, d: (c.a_operand == "e2m1") | ((c.QUANT_BLOCK_K % 128 == 0) & (c.BLOCK_K % 128 == 0)),
            "a_operand={a_operand}: BLOCK_K={BLOCK_K} and QUANT_BLOCK_K={QUANT_BLOCK_K} must be multiples of 128",
        ),
    )


def staged_triton(shape: GemmShape, config: StagedConfig, stride_am: int) -> Program:
    """Quantise, multiply packed operands, and sum where K is split."""
    split, decoded = config.split_k > 1, config.a_operand == "bf16"
    a = {"values_ptr": "a_values"} if decoded else {"codes_ptr": "a_codes", "a_scale_ptr": "a_scale"}
    gemm = KernelCall(
        decoded_gemm_kernel if decoded else staged_gemm_kernel,
        _gemm_grid(shape, config, config.split_k),
        {**a, "b_ptr": "b", "b_scale_ptr": "b_scale",
         "out_ptr": "slices" if split else "out", "M": shape.M, "stride_om": shape.N},
        _gemm_constexprs(shape, config, config.split_k, "workspace" if split else "out")
        | {"WIDE_OFFSETS": _gemm_wide(shape, shape.K, config.split_k)},
        _coverage(shape, config, config.split_k),
        config.launch_options(),
    )  # fmt: skip
    tile = config.QUANT_BLOCK_M, config.QUANT_BLOCK_K
    if decoded:
        quantize = round_call(shape, *tile, stride_am)
        buffers = (*io_buffers(shape), values_buffer(shape))
    else:
        quantize = quantize_call(shape, *tile, config.quantizer, stride_am)
        buffers = (*io_buffers(shape), *packed_buffers(shape))
    if not split:
        return Program(buffers, (quantize, gemm))
    return summed(shape, buffers, (quantize, gemm), config.split_k, config.REDUCE_BLOCK_M, config.REDUCE_BLOCK_N)
