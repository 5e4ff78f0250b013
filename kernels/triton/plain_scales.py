"""Device code: quantise A to packed codes and scales in the order of rows, as AITER's GEMM reads them for few rows."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.quantize import quantize_tile


@triton.jit(do_not_specialize=["M"])
def quantize_plain_kernel(
    a_ptr, codes_ptr, scale_ptr,
    M, stride_am,
    K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, QUANTIZER: tl.constexpr,
):  # fmt: skip
    """Quantise a [BLOCK_M, BLOCK_K] tile of A [M, K]: codes [M, K//2], scales [M, K//32]."""
    pid = tl.program_id(0)
    num_k: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    row = (pid // num_k) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = (pid % num_k) * BLOCK_K
    offs_k = k + tl.arange(0, BLOCK_K)
    inside = (row < M)[:, None]
    a = tl.load(a_ptr + row[:, None] * stride_am + offs_k[None, :], mask=inside & (offs_k < K)[None, :], other=0.0)
    packed, byte = quantize_tile(a, BLOCK_M, BLOCK_K, QUANTIZER)
    offs_kb = k // 2 + tl.arange(0, BLOCK_K // 2)
    tl.store(codes_ptr + row[:, None] * (K // 2) + offs_kb[None, :], packed, mask=inside & (offs_kb < K // 2)[None, :])
    group = k // 32 + tl.arange(0, BLOCK_K // 32)
    tl.store(scale_ptr + row[:, None] * (K // 32) + group[None, :], byte, mask=inside & (group < K // 32)[None, :])
