"""Split-K in one launch for A that an earlier launch quantised or rounded: see ``kernels.triton.ticket``."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.products import decoded_product, packed_product
from kernels.triton.ticket import hand_over
from kernels.triton.tiles import tile_of_program, wait_for_previous


@triton.jit(do_not_specialize=["M"])
def staged_ticket_kernel(
    codes_ptr, a_scale_ptr, b_ptr, b_scale_ptr, slices_ptr, tickets_ptr, out_ptr,
    M, stride_om,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, SPLIT_K: tl.constexpr,
    CACHE: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """C[M, N] = A @ B.T for packed row-major A [M, K//2], its shuffled scales and shuffled B; scratch as there."""
    wait_for_previous()
    pid_m, pid_n, split = tile_of_program(M, N, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS)
    acc = packed_product(
        codes_ptr, a_scale_ptr, b_ptr, b_scale_ptr, pid_m, pid_n, split, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_K,
        CACHE, WIDE_OFFSETS,
    )  # fmt: skip
    hand_over(
        acc, slices_ptr, tickets_ptr, out_ptr, stride_om, pid_m, pid_n, split, M, N, BLOCK_M, BLOCK_N, SPLIT_K,
        WIDE_OFFSETS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["M"])
def decoded_ticket_kernel(
    values_ptr, b_ptr, b_scale_ptr, slices_ptr, tickets_ptr, out_ptr,
    M, stride_om,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, SPLIT_K: tl.constexpr,
    CACHE: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """C[M, N] = A @ B.T for the values of ``round_kernel`` and shuffled MXFP4 B; scratch as there."""
    wait_for_previous()
    pid_m, pid_n, split = tile_of_program(M, N, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS)
    acc = decoded_product(
        values_ptr, b_ptr, b_scale_ptr, pid_m, pid_n, split, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_K, CACHE,
        WIDE_OFFSETS,
    )  # fmt: skip
    hand_over(
        acc, slices_ptr, tickets_ptr, out_ptr, stride_om, pid_m, pid_n, split, M, N, BLOCK_M, BLOCK_N, SPLIT_K,
        WIDE_OFFSETS,
    )  # fmt: skip
