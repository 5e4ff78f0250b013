"""The fused MXFP4 GEMM in Triton: quantise the A tile in registers, multiply, all in one kernel."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton_quantize import fake_quantize_tile, quantize_tile
from kernels.triton_tiles import load_scale_tile, load_weight_tile, store_tile, tile_of_program


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
    A_OPERAND ``bf16`` multiplies the values of Q(A) as bf16, which holds them exactly, where no FP4 unit exists.
    """
    pid_m, pid_n, split = tile_of_program(M, N, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    row = (offs_m.to(tl.int64) if WIDE_OFFSETS else offs_m)[:, None]
    offs_k = tl.arange(0, BLOCK_K)
    SHARE: tl.constexpr = ((K + BLOCK_K - 1) // BLOCK_K + SPLIT_K - 1) // SPLIT_K * BLOCK_K
    start = split * SHARE
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(start, tl.minimum(start + SHARE, K), BLOCK_K):
        inside = tl.broadcast_to((offs_m < M)[:, None], (BLOCK_M, BLOCK_K))
        if K % BLOCK_K != 0:
            inside = inside & (offs_k < K - k)[None, :]
        a = tl.load(a_ptr + row * stride_am + (k + offs_k)[None, :], mask=inside, other=0.0)
        b = load_weight_tile(b_ptr, pid_n, k, N, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
        b_scale = load_scale_tile(b_scale_ptr, pid_n, k, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
        if A_OPERAND == "bf16":
            values = fake_quantize_tile(a, BLOCK_M, BLOCK_K)
            acc = tl.dot_scaled(values, None, "bf16", b, b_scale, "e2m1", acc)
        else:
            codes, scale = quantize_tile(a, BLOCK_M, BLOCK_K, QUANTIZER)
            acc = tl.dot_scaled(codes, scale, "e2m1", b, b_scale, "e2m1", acc)
    store_tile(acc, out_ptr, stride_om, pid_m, pid_n, split, M, N, BLOCK_M, BLOCK_N, STORE, WIDE_OFFSETS)
