"""The kernel families: name, configuration type, and the program that a configuration becomes at a shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernels.config import SplitKAtomicConfig, SplitKWorkspaceConfig, StagedConfig, TileConfig
from kernels.problem import BLOCK, GemmShape
from kernels.program import Buffer, KernelCall, Program
from kernels.tiling import FlatCoverage, RowCoverage, TileCoverage
from kernels.triton_fused import fused_gemm_kernel
from kernels.triton_quantize import quantize_kernel
from kernels.triton_reduce import reduce_kernel, zero_kernel
from kernels.triton_staged import staged_gemm_kernel

ZERO_BLOCK = 2048  # elements of the accumulator that one program clears
CAST_BLOCK = (16, 64)  # tile of the kernel that rounds the accumulator to bf16
INT32_SPAN = 1 << 31


@dataclass(frozen=True)
class Family:
    """One way to compute the product.

    Args:
        name: Word used in tables, spaces, studies and results.
        config_type: Its knobs.
        build: Program of (shape, configuration, row stride of A in elements).
        deterministic: False where the order of the sum may differ between runs.
        summary: One line for the user.
    """

    name: str
    config_type: type[TileConfig]
    build: Callable[[GemmShape, Any, int], Program]
    deterministic: bool
    summary: str

    def config(self, values: Mapping[str, Any]) -> TileConfig:
        """Configuration from field values.

        Raises:
            TypeError: A field is missing a default and not given, or is unknown.
        """
        return self.config_type(**values)

    def program(self, shape: GemmShape, config: TileConfig, stride_am: int | None = None) -> Program:
        """Buffers and launches of ``config`` at ``shape``.

        Args:
            shape: Problem.
            config: Knobs of this family's ``config_type``.
            stride_am: Elements between rows of A; default ``shape.K``.
        """
        return self.build(shape, config, shape.K if stride_am is None else stride_am)


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _cdiv(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _scale_buffer(name: str, rows: int, K: int, role: Any) -> Buffer:
    return Buffer(name, "u8", (_round_up(rows, 256), _round_up(K // BLOCK, 8)), role)


def _io_buffers(shape: GemmShape) -> tuple[Buffer, ...]:
    return (
        Buffer("a", "bf16", (shape.M, shape.K), "input"),
        Buffer("b", "u8", (shape.N, shape.K // 2), "input"),
        _scale_buffer("b_scale", shape.N, shape.K, "input"),
        Buffer("out", "bf16", (shape.M, shape.N), "output"),
    )


def _wide(*extents: int) -> bool:
    """Whether an index into a tensor of this many elements or bytes can exceed 32 bits."""
    return max(extents) >= INT32_SPAN


def _gemm_wide(shape: GemmShape, stride_am: int, split_k: int) -> bool:
    rows = _round_up(shape.M, 256)
    return _wide(rows * stride_am, shape.N * shape.K // 2, split_k * rows * shape.N)


def _gemm_constexprs(shape: GemmShape, config: TileConfig, split_k: int, store: str) -> dict[str, int | str | bool]:
    return {
        "N": shape.N, "K": shape.K,
        "BLOCK_M": config.BLOCK_M, "BLOCK_N": config.BLOCK_N, "BLOCK_K": config.BLOCK_K,
        "GROUP_M": config.GROUP_M, "NUM_XCDS": config.num_xcds, "SPLIT_K": split_k,
        "CACHE": config.cache_modifier, "STORE": store,
    }  # fmt: skip


def _gemm_grid(shape: GemmShape, config: TileConfig, split_k: int) -> tuple[int, int, int]:
    return (_cdiv(shape.M, config.BLOCK_M) * _cdiv(shape.N, config.BLOCK_N), split_k, 1)


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


def _coverage(shape: GemmShape, config: TileConfig, split_k: int) -> TileCoverage:
    return TileCoverage(
        shape.M, shape.N, config.BLOCK_M, config.BLOCK_N, config.GROUP_M, config.num_xcds, split_k
    )


def _reduce_call(shape: GemmShape, slices: str, split_k: int, block_m: int, block_n: int) -> KernelCall:
    return KernelCall(
        reduce_kernel,
        (_cdiv(shape.M, block_m) * _cdiv(shape.N, block_n), 1, 1),
        {"slices_ptr": slices, "out_ptr": "out", "M": shape.M, "stride_om": shape.N},
        {"N": shape.N, "SPLIT_K": split_k, "BLOCK_M": block_m, "BLOCK_N": block_n,
         "WIDE_OFFSETS": _wide(split_k * _round_up(shape.M, 256) * shape.N)},
        TileCoverage(shape.M, shape.N, block_m, block_n),
        {"num_warps": 4},
    )  # fmt: skip


def _fused(shape: GemmShape, config: TileConfig, stride_am: int) -> Program:
    return Program(_io_buffers(shape), (_fused_call(shape, config, stride_am, 1, "out", "out"),))


def _fused_splitk_atomic(shape: GemmShape, config: SplitKAtomicConfig, stride_am: int) -> Program:
    sums = Buffer("sums", "fp32", (1, shape.M, shape.N), "workspace")
    elements = shape.M * shape.N
    zero = KernelCall(
        zero_kernel,
        (_cdiv(elements, ZERO_BLOCK), 1, 1),
        {"x_ptr": "sums", "elements": elements},
        {"BLOCK": ZERO_BLOCK, "WIDE_OFFSETS": _wide(elements)},
        FlatCoverage(shape.N, ZERO_BLOCK),
        {"num_warps": 4},
    )
    gemm = _fused_call(shape, config, stride_am, config.split_k, "atomic", "sums")
    cast = _reduce_call(shape, "sums", 1, *CAST_BLOCK)
    return Program((*_io_buffers(shape), sums), (zero, gemm, cast))


def _slices(shape: GemmShape, split_k: int) -> Buffer:
    return Buffer("slices", "fp32", (split_k, shape.M, shape.N), "workspace")


def _fused_splitk_workspace(shape: GemmShape, config: SplitKWorkspaceConfig, stride_am: int) -> Program:
    gemm = _fused_call(shape, config, stride_am, config.split_k, "workspace", "slices")
    reduce = _reduce_call(shape, "slices", config.split_k, config.REDUCE_BLOCK_M, config.REDUCE_BLOCK_N)
    return Program((*_io_buffers(shape), _slices(shape, config.split_k)), (gemm, reduce))


def _quantize_call(shape: GemmShape, config: StagedConfig, stride_am: int) -> KernelCall:
    tiles = _cdiv(shape.M, config.QUANT_BLOCK_M) * _cdiv(shape.K, config.QUANT_BLOCK_K)
    return KernelCall(
        quantize_kernel,
        (tiles, 1, 1),
        {"a_ptr": "a", "codes_ptr": "a_codes", "scale_ptr": "a_scale", "M": shape.M, "stride_am": stride_am},
        {"K": shape.K, "BLOCK_M": config.QUANT_BLOCK_M, "BLOCK_K": config.QUANT_BLOCK_K,
         "QUANTIZER": config.quantizer, "WIDE_OFFSETS": _wide(_round_up(shape.M, 256) * stride_am)},
        RowCoverage(shape.K, config.QUANT_BLOCK_M, config.QUANT_BLOCK_K),
        {"num_warps": 4},
    )  # fmt: skip


def _staged_triton(shape: GemmShape, config: StagedConfig, stride_am: int) -> Program:
    packed = (
        Buffer("a_codes", "u8", (shape.M, shape.K // 2), "workspace"),
        _scale_buffer("a_scale", shape.M, shape.K, "workspace"),
    )
    split = config.split_k > 1
    out = "slices" if split else "out"
    gemm = KernelCall(
        staged_gemm_kernel,
        _gemm_grid(shape, config, config.split_k),
        {"codes_ptr": "a_codes", "a_scale_ptr": "a_scale", "b_ptr": "b", "b_scale_ptr": "b_scale", "out_ptr": out,
         "M": shape.M, "stride_om": shape.N},
        _gemm_constexprs(shape, config, config.split_k, "workspace" if split else "out")
        | {"WIDE_OFFSETS": _gemm_wide(shape, shape.K, config.split_k)},
        _coverage(shape, config, config.split_k),
        config.launch_options(),
    )  # fmt: skip
    calls = (_quantize_call(shape, config, stride_am), gemm)
    buffers = (*_io_buffers(shape), *packed)
    if not split:
        return Program(buffers, calls)
    reduce = _reduce_call(shape, "slices", config.split_k, config.REDUCE_BLOCK_M, config.REDUCE_BLOCK_N)
    return Program((*buffers, _slices(shape, config.split_k)), (*calls, reduce))


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("fused", TileConfig, _fused, True, "quantise and multiply in one kernel"),
        Family("fused_splitk_atomic", SplitKAtomicConfig, _fused_splitk_atomic, False, "fused, K split, fp32 atomics"),
        Family("fused_splitk_workspace", SplitKWorkspaceConfig, _fused_splitk_workspace, True,
               "fused, K split into slices, then a reduction"),
        Family("staged_triton", StagedConfig, _staged_triton, True, "quantise kernel, then a packed GEMM"),
    )
}  # fmt: skip
