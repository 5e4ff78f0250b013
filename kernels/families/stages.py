"""What the families share: a program's buffers, and its launches around the GEMM: quantise, clear, sum."""

from __future__ import annotations

from typing import Final

from kernels.config import one_of
from kernels.launches.coverage import FlatCoverage, QuantizeCoverage, RowCoverage, TileCoverage
from kernels.launches.kernels import HipKernel
from kernels.launches.program import Buffer, KernelCall, Program, Role
from kernels.mxfp4.layouts import padded_scale_shape
from kernels.problem import BLOCK, GemmShape
from kernels.triton.gemm import reduce_kernel, round_kernel, zero_kernel
from kernels.triton.quantize import quantize_kernel

ZERO_BLOCK = 2048  # elements that one program clears
INT32_SPAN = 1 << 31
VALUES_K = 128  # rows of rounded values are padded to a multiple: the order of the product mixes so many


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


def values_buffer(shape: GemmShape) -> Buffer:
    """A once it is rounded to MXFP4 values, in the order of ``kernels.triton.decoded``."""
    return Buffer("a_values", "bf16", (shape.M, round_up(shape.K, VALUES_K)), "workspace")


def round_call(shape: GemmShape, block_m: int, block_k: int, stride_am: int) -> KernelCall:
    """Round A to the buffer of values, a tile [block_m, block_k] a program."""
    return KernelCall(
        round_kernel,
        (cdiv(shape.M, block_m) * cdiv(shape.K, block_k), 1, 1),
        {"a_ptr": "a", "values_ptr": "a_values", "M": shape.M, "stride_am": stride_am},
        {"K": shape.K, "BLOCK_M": block_m, "BLOCK_K": block_k,
         "WIDE_OFFSETS": is_wide(round_up(shape.M, 256) * max(stride_am, round_up(shape.K, VALUES_K)))},
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


SOURCE: Final = "quantize.hip"
SYMBOL: Final = "mxfp4_quantize"
THREADS: Final = (64, 128, 256, 512, 1024)  # of a workgroup
GROUPS: Final = (1, 2, 4)  # blocks that a team of lanes quantises
VECTORS: Final = (4, 8, 16, 32)  # values of a block that one lane holds


def hip_quantize_kernel(threads: int, groups: int, vector: int) -> HipKernel:
    """The kernel for one set of its parameters.

    Args:
        threads: One of ``THREADS``.
        groups: One of ``GROUPS``.
        vector: One of ``VECTORS``.

    Raises:
        ValueError: A parameter has no such value.
    """
    for name, value, legal in (("threads", threads, THREADS), ("groups", groups, GROUPS), ("vector", vector, VECTORS)):
        if value not in legal:
            raise ValueError(f"{name}={value} is none of {', '.join(map(str, legal))}")
    return HipKernel(
        name=SYMBOL,
        arg_names=("a_ptr", "codes_ptr", "scale_ptr", "M", "K", "stride_am"),
        threads=threads,
        source=SOURCE,
        defines={"QUANT_THREADS": threads, "QUANT_GROUPS": groups, "QUANT_VECTOR": vector},
        arg_types=("ptr", "ptr", "ptr", "i32", "i32", "i32"),
    )


def hip_quantize_call(
    M: int, K: int, kernel: HipKernel, *,
    a: str = "a", codes: str = "codes", scale: str = "a_scale", stride_am: int | None = None,
) -> KernelCall:  # fmt: skip
    """The launch of ``kernel`` on A [M, K].

    Args:
        M: Rows, at least 1.
        K: Columns, a positive multiple of 64.
        kernel: From :func:`quantize_kernel`.
        a: Buffer of A, its values at multiples of 2 bytes.
        codes: Buffer [M, K//2].
        scale: Buffer of :func:`kernels.mxfp4.layouts.padded_scale_shape` (M, K//32).
        stride_am: Elements from one row of A to the next; default K.

    Raises:
        ValueError: M or K is not legal.
    """
    if M < 1 or K < 1 or K % (2 * BLOCK):
        raise ValueError(f"cannot quantise [{M}, {K}]: M must be at least 1, K a positive multiple of {2 * BLOCK}")
    defines = kernel.defines
    coverage = QuantizeCoverage(M, K, kernel.threads, defines["QUANT_GROUPS"], defines["QUANT_VECTOR"])
    pointers: dict[str, str | int] = {"a_ptr": a, "codes_ptr": codes, "scale_ptr": scale}
    extents = {"M": M, "K": K, "stride_am": K if stride_am is None else stride_am}
    return KernelCall(kernel, coverage.grid, {**pointers, **extents}, {}, coverage)


HIP_QUANTIZE_RULES = (
    one_of("QUANT_THREADS", THREADS),
    one_of("QUANT_GROUPS", GROUPS),
    one_of("QUANT_VECTOR", VECTORS),
)


def quantize_hip_call(shape: GemmShape, threads: int, groups: int, vector: int, stride_am: int) -> KernelCall:
    """The launch that quantises A [M, K] with the HIP kernel, into the buffers of a staged program.

    Args as :func:`hip_quantize_kernel` and :func:`hip_quantize_call`.
    """
    kernel = hip_quantize_kernel(threads, groups, vector)
    return hip_quantize_call(shape.M, shape.K, kernel, codes="a_codes", stride_am=stride_am)
