"""The programs of the Triton families: buffers and launches of a configuration at a shape."""

from __future__ import annotations

from kernels.config import SplitKAtomicConfig, SplitKWorkspaceConfig, StagedConfig, TileConfig
from kernels.problem import GemmShape
from kernels.program import Buffer, KernelCall, Program
from kernels.tiling import TileCoverage
from kernels.triton_calls import (
    cdiv,
    io_buffers,
    is_wide,
    packed_buffers,
    quantize_call,
    reduce_call,
    round_up,
    summed,
    zero_call,
)
from kernels.triton_fused import fused_gemm_kernel
from kernels.triton_staged import staged_gemm_kernel

CAST_BLOCK = (16, 64)  # tile of the kernel that rounds the accumulator to bf16


def fused(shape: GemmShape, config: TileConfig, stride_am: int) -> Program:
    """Quantise and multiply in one kernel."""
    return Program(io_buffers(shape), (_fused_call(shape, config, stride_am, 1, "out", "out"),))


def fused_splitk_atomic(shape: GemmShape, config: SplitKAtomicConfig, stride_am: int) -> Program:
    """The same for each slice of K, added to a cleared fp32 accumulator, which is then rounded."""
    sums = Buffer("sums", "fp32", (1, shape.M, shape.N), "workspace")
    gemm = _fused_call(shape, config, stride_am, config.split_k, "atomic", "sums")
    cast = reduce_call(shape, "sums", 1, *CAST_BLOCK)
    return Program((*io_buffers(shape), sums), (zero_call(shape, "sums"), gemm, cast))


def fused_splitk_workspace(shape: GemmShape, config: SplitKWorkspaceConfig, stride_am: int) -> Program:
    """The same for each slice of K, each stored, then summed."""
    gemm = _fused_call(shape, config, stride_am, config.split_k, "workspace", "slices")
    return summed(shape, io_buffers(shape), (gemm,), config.split_k, config.REDUCE_BLOCK_M, config.REDUCE_BLOCK_N)


def staged_triton(shape: GemmShape, config: StagedConfig, stride_am: int) -> Program:
    """Quantise, multiply packed operands, and sum where K is split."""
    split = config.split_k > 1
    gemm = KernelCall(
        staged_gemm_kernel,
        _gemm_grid(shape, config, config.split_k),
        {"codes_ptr": "a_codes", "a_scale_ptr": "a_scale", "b_ptr": "b", "b_scale_ptr": "b_scale",
         "out_ptr": "slices" if split else "out", "M": shape.M, "stride_om": shape.N},
        _gemm_constexprs(shape, config, config.split_k, "workspace" if split else "out")
        | {"WIDE_OFFSETS": _gemm_wide(shape, shape.K, config.split_k)},
        _coverage(shape, config, config.split_k),
        config.launch_options(),
    )  # fmt: skip
    quantize = quantize_call(shape, config.QUANT_BLOCK_M, config.QUANT_BLOCK_K, config.quantizer, stride_am)
    buffers = (*io_buffers(shape), *packed_buffers(shape))
    if not split:
        return Program(buffers, (quantize, gemm))
    return summed(shape, buffers, (quantize, gemm), config.split_k, config.REDUCE_BLOCK_M, config.REDUCE_BLOCK_N)


def _fused_call(
    shape: GemmShape, config: TileConfig, stride_am: int, split_k: int, store: str, out: str
) -> KernelCall:
    constexprs = _gemm_constexprs(shape, config, split_k, store)
    constexprs |= {
        "QUANTIZER": config.quantizer, "A_OPERAND": config.a_operand,
        "WIDE_OFFSETS": _gemm_wide(shape, stride_am, split_k),
    }  # fmt: skip
    return KernelCall(
        fused_gemm_kernel,
        _gemm_grid(shape, config, split_k),
        {"a_ptr": "a", "b_ptr": "b", "b_scale_ptr": "b_scale", "out_ptr": out,
         "M": shape.M, "stride_am": stride_am, "stride_om": shape.N},
        constexprs,
        _coverage(shape, config, split_k),
        config.launch_options(),
    )  # fmt: skip


def _gemm_wide(shape: GemmShape, stride_am: int, split_k: int) -> bool:
    rows = round_up(shape.M, 256)
    return is_wide(rows * stride_am, shape.N * shape.K // 2, split_k * rows * shape.N)


def _gemm_constexprs(shape: GemmShape, config: TileConfig, split_k: int, store: str) -> dict[str, int | str | bool]:
    return {
        "N": shape.N, "K": shape.K,
        "BLOCK_M": config.BLOCK_M, "BLOCK_N": config.BLOCK_N, "BLOCK_K": config.BLOCK_K,
        "GROUP_M": config.GROUP_M, "NUM_XCDS": config.num_xcds, "SPLIT_K": split_k,
        "CACHE": config.cache_modifier, "STORE": store,
    }  # fmt: skip


def _gemm_grid(shape: GemmShape, config: TileConfig, split_k: int) -> tuple[int, int, int]:
    return (cdiv(shape.M, config.BLOCK_M) * cdiv(shape.N, config.BLOCK_N), split_k, 1)


def _coverage(shape: GemmShape, config: TileConfig, split_k: int) -> TileCoverage:
    return TileCoverage(
        shape.M, shape.N, config.BLOCK_M, config.BLOCK_N, config.GROUP_M, config.num_xcds, split_k
    )
