"""The K loops of the GEMMs: a tile of a product from A as it comes, A packed before, and A rounded before."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.decoded import (
    columns_of_step,
    decode_weight_tile,
    in_product_order,
    load_step_scales,
    round_tile,
)
from kernels.triton.quantize import quantize_tile
from kernels.triton.tiles import (
    in_words,
    load_scale_tile,
    load_value_tile,
    load_weight_runs,
    steps_of_split,
    unshuffled,
)


@triton.jit
def fused_product(
    a_ptr, b_ptr, b_scale_ptr, pid_m, pid_n, split,
    M, stride_am,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    QUANTIZER: tl.constexpr, A_OPERAND: tl.constexpr, CACHE: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """Tile [BLOCK_M, BLOCK_N] of Q(A[M, K]) @ B[N, K].T over a split's share of K, for bf16 A and shuffled MXFP4 B.

    A_OPERAND ``bf16`` multiplies the values of both operands as bf16, where no FP4 unit exists.
    """
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    row = (offs_m.to(tl.int64) if WIDE_OFFSETS else offs_m)[:, None]
    offs_k = tl.arange(0, BLOCK_K)
    first, last = steps_of_split(split, (K + BLOCK_K - 1) // BLOCK_K, SPLIT_K)
    if A_OPERAND == "bf16":
        acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(first * BLOCK_K, last * BLOCK_K, BLOCK_K):
        inside = tl.broadcast_to((offs_m < M)[:, None], (BLOCK_M, BLOCK_K))
        if K % BLOCK_K != 0:
            inside = inside & (offs_k < K - k)[None, :]
        if A_OPERAND == "bf16":
            columns = columns_of_step(k, K, BLOCK_K)
            a = tl.load(a_ptr + row * stride_am + columns[None, :], mask=inside, other=0.0)
            runs = load_weight_runs(in_words(b_ptr), pid_n, k, N, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
            b_scale = load_step_scales(b_scale_ptr, pid_n, k, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
            values = in_product_order(round_tile(a, BLOCK_M, BLOCK_K), BLOCK_M, BLOCK_K)
            acc = tl.dot(decode_weight_tile(runs, b_scale, BLOCK_N, BLOCK_K), tl.trans(values), acc)
        else:
            a = tl.load(a_ptr + row * stride_am + (k + offs_k)[None, :], mask=inside, other=0.0)
            runs = load_weight_runs(b_ptr, pid_n, k, N, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
            b_scale = load_scale_tile(b_scale_ptr, pid_n, k, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
            codes, scale = quantize_tile(a, BLOCK_M, BLOCK_K, QUANTIZER)
            b = unshuffled(runs, BLOCK_N, BLOCK_K)
            acc = tl.dot_scaled(codes, scale, "e2m1", b, b_scale, "e2m1", acc)
    if A_OPERAND == "bf16":
        acc = tl.trans(acc)
    return acc


@triton.jit
def packed_product(
    codes_ptr, a_scale_ptr, b_ptr, b_scale_ptr, pid_m, pid_n, split,
    M,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    CACHE: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """The same for packed row-major A [M, K//2] and its shuffled scales."""
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    row = (offs_m.to(tl.int64) if WIDE_OFFSETS else offs_m)[:, None]
    offs_kb = tl.arange(0, BLOCK_K // 2)
    first, last = steps_of_split(split, (K + BLOCK_K - 1) // BLOCK_K, SPLIT_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(first * BLOCK_K, last * BLOCK_K, BLOCK_K):
        inside = tl.broadcast_to((offs_m < M)[:, None], (BLOCK_M, BLOCK_K // 2))
        if K % BLOCK_K != 0:
            inside = inside & (offs_kb < (K - k) // 2)[None, :]
        codes = tl.load(codes_ptr + row * (K // 2) + (k // 2 + offs_kb)[None, :], mask=inside, other=0)
        scale = load_scale_tile(a_scale_ptr, pid_m, k, K, BLOCK_M, BLOCK_K, "", WIDE_OFFSETS)
        runs = load_weight_runs(b_ptr, pid_n, k, N, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
        b_scale = load_scale_tile(b_scale_ptr, pid_n, k, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
        acc = tl.dot_scaled(codes, scale, "e2m1", unshuffled(runs, BLOCK_N, BLOCK_K), b_scale, "e2m1", acc)
    return acc


@triton.jit
def decoded_product(
    values_ptr, b_ptr, b_scale_ptr, pid_m, pid_n, split,
    M,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    CACHE: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """The same for the values of A that ``round_kernel`` stored."""
    first, last = steps_of_split(split, (K + BLOCK_K - 1) // BLOCK_K, SPLIT_K)
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for step in tl.range(first, last):
        k = step * BLOCK_K
        values = load_value_tile(values_ptr, pid_m, step, M, BLOCK_M, BLOCK_K, WIDE_OFFSETS)
        runs = load_weight_runs(in_words(b_ptr), pid_n, k, N, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
        b_scale = load_step_scales(b_scale_ptr, pid_n, k, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
        acc = tl.dot(decode_weight_tile(runs, b_scale, BLOCK_N, BLOCK_K), tl.trans(values), acc)
    return tl.trans(acc)
