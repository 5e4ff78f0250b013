"""Buffers of a program, and the launches of the small Triton kernels around a GEMM: quantise, clear, sum."""

from __future__ import annotations

from kernels.layouts import padded_scale_shape
from kernels.problem import BLOCK, GemmShape
from kernels.program import Buffer, KernelCall, Program, Role
from kernels.tiling import FlatCoverage, RowCoverage, TileCoverage
from kernels.triton_quantize import quantize_kernel
from kernels.triton_reduce import reduce_kernel, zero_kernel

ZERO_BLOCK = 2048  # elements that one program clears
INT32_SPAN = 1 << 31


def round_up(value: int, multiple: int) -> int:
    """The next multiple."""
    return -(-value // multiple) * multiple


def cdiv(value: int, divisor: int) -> int:
    """Quotient rounded up."""
    return -(-value // divisor)


def is_wide(*extents: int) -> bool:
    """Whether an index into a tensor of this many elements or bytes can exceed 32 bits."""
    return max(extents) >= INT32_SPAN


def io_buffers(shape: GemmShape) -> tuple[Buffer, ...]:
    """The caller's tensors."""
    return (
        Buffer("a", "bf16", (shape.M, shape.K), "input"),
        Buffer("b", "u8", (shape.N, shape.K // 2), "input"),
        _scale_buffer("b_scale", shape.N, shape.K, "input"),
        Buffer("out", "bf16", (shape.M, shape.N), "output"),
    )


def packed_buffers(shape: GemmShape) -> tuple[Buffer, Buffer]:
    """A once it is quantised: codes [M, K // 2] row-major, and shuffled scales."""
    codes = Buffer("a_codes", "u8", (shape.M, shape.K // 2), "workspace")
    return codes, _scale_buffer("a_scale", shape.M, shape.K, "workspace")


def _scale_buffer(name: str, rows: int, K: int, role: Role) -> Buffer:
    return Buffer(name, "u8", padded_scale_shape(rows, K // BLOCK), role)


def summed(
    shape: GemmShape,
    buffers: tuple[Buffer, ...],
    calls: tuple[KernelCall, ...],
    split_k: int,
    block_m: int,
    block_n: int,
) -> Program:
    """The program of ``calls``, which leave ``split_k`` partial sums in the buffer ``slices``, and of their sum."""
    slices = Buffer("slices", "fp32", (split_k, shape.M, shape.N), "workspace")
    return Program((*buffers, slices), (*calls, reduce_call(shape, "slices", split_k, block_m, block_n)))


def quantize_call(shape: GemmShape, block_m: int, block_k: int, quantizer: str, stride_am: int) -> KernelCall:
    """Quantise A to the packed buffers, a tile [block_m, block_k] a program; pads of the scales stay as they are."""
    tiles = cdiv(shape.M, block_m) * cdiv(shape.K, block_k)
    return KernelCall(
        quantize_kernel,
        (tiles, 1, 1),
        {"a_ptr": "a", "codes_ptr": "a_codes", "scale_ptr": "a_scale", "M": shape.M, "stride_am": stride_am},
        {"K": shape.K, "BLOCK_M": block_m, "BLOCK_K": block_k,
         "QUANTIZER": quantizer, "WIDE_OFFSETS": is_wide(round_up(shape.M, 256) * stride_am)},
        RowCoverage(shape.K, block_m, block_k),
        {"num_warps": 4},
    )  # fmt: skip


def zero_call(shape: GemmShape, buffer: str) -> KernelCall:
    """Clear the fp32 or bf16 buffer [M, N] of this name."""
    elements = shape.M * shape.N
    return KernelCall(
        zero_kernel,
        (cdiv(elements, ZERO_BLOCK), 1, 1),
        {"x_ptr": buffer, "elements": elements},
        {"BLOCK": ZERO_BLOCK, "WIDE_OFFSETS": is_wide(elements)},
        FlatCoverage(shape.N, ZERO_BLOCK),
        {"num_warps": 4},
    )


def reduce_call(shape: GemmShape, slices: str, split_k: int, block_m: int, block_n: int) -> KernelCall:
    """Sum the slices in the buffer of this name and round to bf16, a tile [block_m, block_n] a program."""
    return KernelCall(
        reduce_kernel,
        (cdiv(shape.M, block_m) * cdiv(shape.N, block_n), 1, 1),
        {"slices_ptr": slices, "out_ptr": "out", "M": shape.M, "stride_om": shape.N},
        {"N": shape.N, "SPLIT_K": split_k, "BLOCK_M": block_m, "BLOCK_N": block_n,
         "WIDE_OFFSETS": is_wide(split_k * round_up(shape.M, 256) * shape.N)},
        TileCoverage(shape.M, shape.N, block_m, block_n),
        {"num_warps": 4},
    )  # fmt: skip
