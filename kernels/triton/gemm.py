"""The Triton GEMM kernels, fused and staged, and the small ones around them: clear, sum."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.decoded import columns_of_places, in_product_order, round_tile
from kernels.triton.products import decoded_product, fused_product, packed_product
from kernels.triton.tiles import begin, store_tile, tile_of_program, wait_for_previous


@triton.jit(do_not_specialize=["M"])
def fused_gemm_kernel(
    a_ptr, b_ptr, b_scale_ptr, out_ptr,
    M, stride_am, stride_om,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, SPLIT_K: tl.constexpr,
    QUANTIZER: tl.constexpr, A_OPERAND: tl.constexpr,
    CACHE: tl.constexpr, STORE: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """C[M, N] (or one K slice of it) = Q(A[M, K]) @ B[N, K].T for bf16 A and shuffled MXFP4 B.

    Each program multiplies a [BLOCK_M, BLOCK_N] tile over its share of K. A split with no share stores zeros.
    A_OPERAND ``bf16`` multiplies the values of both operands as bf16, where no FP4 unit exists.
    """
    begin(STORE)
    pid_m, pid_n, split = tile_of_program(M, N, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS)
    acc = fused_product(
        a_ptr, b_ptr, b_scale_ptr, pid_m, pid_n, split, M, stride_am, N, K, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_K,
        QUANTIZER, A_OPERAND, CACHE, WIDE_OFFSETS,
    )  # fmt: skip
    store_tile(acc, out_ptr, stride_om, pid_m, pid_n, split, M, N, BLOCK_M, BLOCK_N, STORE, WIDE_OFFSETS)


@triton.jit(do_not_specialize=["M"])
def staged_gemm_kernel(
    codes_ptr, a_scale_ptr, b_ptr, b_scale_ptr, out_ptr,
    M, stride_om,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, SPLIT_K: tl.constexpr,
    CACHE: tl.constexpr, STORE: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """C[M, N] (or one K slice of it) = A @ B.T for packed row-major A [M, K//2], its shuffled scales, shuffled B."""
    begin(STORE)
    pid_m, pid_n, split = tile_of_program(M, N, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS)
    acc = packed_product(
        codes_ptr, a_scale_ptr, b_ptr, b_scale_ptr, pid_m, pid_n, split, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_K,
        CACHE, WIDE_OFFSETS,
    )  # fmt: skip
    store_tile(acc, out_ptr, stride_om, pid_m, pid_n, split, M, N, BLOCK_M, BLOCK_N, STORE, WIDE_OFFSETS)


@triton.jit(do_not_specialize=["M"])
def round_kernel(
    a_ptr, values_ptr,
    M, stride_am,
    K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, TILE_M: tl.constexpr, TILE_K: tl.constexpr,
    WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """Round a [BLOCK_M, BLOCK_K] tile of A to its MXFP4 values in the order of the product and its steps.

    ``values`` of bf16 [K//TILE_K, M, TILE_K], both extents rounded up, has the GEMM's tiles [TILE_M, TILE_K] as runs.
    Beyond K it gets zeros; rows beyond M stay as they are. BLOCK_K and TILE_K are multiples of 128.
    """
    begin("")
    PADDED_K: tl.constexpr = (K + TILE_K - 1) // TILE_K * TILE_K
    pid = tl.program_id(0)
    num_k: tl.constexpr = (PADDED_K + BLOCK_K - 1) // BLOCK_K
    offs_m = (pid // num_k) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = (pid % num_k) * BLOCK_K + tl.arange(0, BLOCK_K)
    row = (offs_m.to(tl.int64) if WIDE_OFFSETS else offs_m)[:, None]
    inside = (offs_m < M)[:, None]
    columns = columns_of_places(offs_k, K, TILE_K)
    a = tl.load(a_ptr + row * stride_am + columns[None, :], mask=inside & (columns < K)[None, :], other=0.0)
    values = in_product_order(round_tile(a, BLOCK_M, BLOCK_K), BLOCK_M, BLOCK_K)
    panel = (offs_k // TILE_K)[None, :] * (tl.cdiv(M, TILE_M) * TILE_M)
    offsets = (panel + row) * TILE_K + (offs_k % TILE_K)[None, :]
    tl.store(values_ptr + offsets, values, mask=inside & (offs_k < PADDED_K)[None, :])


@triton.jit(do_not_specialize=["M"])
def decoded_gemm_kernel(
    values_ptr, b_ptr, b_scale_ptr, out_ptr,
    M, stride_om,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, SPLIT_K: tl.constexpr,
    CACHE: tl.constexpr, STORE: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """C[M, N] (or one K slice of it) = A @ B.T for the values of ``round_kernel`` and shuffled MXFP4 B."""
    begin(STORE)
    pid_m, pid_n, split = tile_of_program(M, N, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS)
    acc = decoded_product(
        values_ptr, b_ptr, b_scale_ptr, pid_m, pid_n, split, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_K, CACHE,
        WIDE_OFFSETS,
    )  # fmt: skip
    store_tile(acc, out_ptr, stride_om, pid_m, pid_n, split, M, N, BLOCK_M, BLOCK_N, STORE, WIDE_OFFSETS)


@triton.jit(do_not_specialize=["elements"])
def zero_kernel(x_ptr, elements, BLOCK: tl.constexpr, WIDE_OFFSETS: tl.constexpr):
    """Set x [elements] of fp32 to zero."""
    begin("")
    pid = tl.program_id(0)
    offsets = (pid.to(tl.int64) if WIDE_OFFSETS else pid) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.zeros((BLOCK,), dtype=tl.float32), mask=offsets < elements)


@triton.jit(do_not_specialize=["M"])
def reduce_kernel(
    slices_ptr, out_ptr,
    M, stride_om,
    N: tl.constexpr, SPLIT_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """Out [M, N] of bf16 = sum over the first SPLIT_K slices of slices [SPLIT_K, M, N] of fp32, in order."""
    wait_for_previous()
    pid = tl.program_id(0)
    num_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    offs_m = (pid // num_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = (pid % num_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    row = (offs_m.to(tl.int64) if WIDE_OFFSETS else offs_m)[:, None]
    rows = tl.cast(M, tl.int64) if WIDE_OFFSETS else M
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for s in tl.static_range(SPLIT_K):
        acc += tl.load(slices_ptr + (s * rows + row) * N + offs_n[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + row * stride_om + offs_n[None, :], acc.to(tl.bfloat16), mask=mask)
