"""The staged MXFP4 GEMM in Triton: multiply operands that ``quantize_kernel`` has already packed."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton_tiles import load_scale_tile, load_weight_tile, store_tile, tile_of_program


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
    pid_m, pid_n, split = tile_of_program(M, N, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    row = (offs_m.to(tl.int64) if WIDE_OFFSETS else offs_m)[:, None]
    offs_kb = tl.arange(0, BLOCK_K // 2)
    SHARE: tl.constexpr = ((K + BLOCK_K - 1) // BLOCK_K + SPLIT_K - 1) // SPLIT_K * BLOCK_K
    start = split * SHARE
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(start, tl.minimum(start + SHARE, K), BLOCK_K):
        inside = tl.broadcast_to((offs_m < M)[:, None], (BLOCK_M, BLOCK_K // 2))
        if K % BLOCK_K != 0:
            inside = inside & (offs_kb < (K - k) // 2)[None, :]
        codes = tl.load(codes_ptr + row * (K // 2) + (k // 2 + offs_kb)[None, :], mask=inside, other=0)
        scale = load_scale_tile(a_scale_ptr, pid_m, k, K, BLOCK_M, BLOCK_K, "", WIDE_OFFSETS)
        b = load_weight_tile(b_ptr, pid_n, k, N, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
        b_scale = load_scale_tile(b_scale_ptr, pid_n, k, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
        acc = tl.dot_scaled(codes, scale, "e2m1", b, b_scale, "e2m1", acc)
    store_tile(acc, out_ptr, stride_om, pid_m, pid_n, split, M, N, BLOCK_M, BLOCK_N, STORE, WIDE_OFFSETS)
