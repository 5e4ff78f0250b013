"""The HIP kernel that quantises A: its parameters, and its launch as data.

A [M, K] of bf16 becomes packed E2M1 codes [M, K//2] and E8M0 scales in the order of ``kernels.layouts``, by the rule
``even`` of ``kernels.formats``.
"""

from __future__ import annotations

from typing import Final

from kernels.native import HipKernel
from kernels.problem import BLOCK
from kernels.program import KernelCall
from kernels.tiling import QuantizeCoverage

SOURCE: Final = "quantize.hip"
SYMBOL: Final = "mxfp4_quantize"
THREADS: Final = (64, 128, 256, 512, 1024)  # of a workgroup
GROUPS: Final = (1, 2, 4)  # blocks that a team of lanes quantises
VECTORS: Final = (4, 8, 16, 32)  # values of a block that one lane holds


def quantize_kernel(threads: int, groups: int, vector: int) -> HipKernel:
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
        scale: Buffer of :func:`kernels.layouts.padded_scale_shape` (M, K//32).
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
