"""The small kernels around a split-K GEMM: clear the accumulator, sum the slices, round to bf16."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["elements"])
def zero_kernel(x_ptr, elements, BLOCK: tl.constexpr, WIDE_OFFSETS: tl.constexpr):
    """Set x [elements] of fp32 to zero."""
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
