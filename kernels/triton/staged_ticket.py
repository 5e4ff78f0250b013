"""Split-K in one launch for A that an earlier launch quantised or rounded: see ``kernels.triton.ticket``."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.decoded import decode_weight_tile
from kernels.triton.ticket import hand_over
from kernels.triton.tiles import (
    in_words,
    load_scale_tile,
    load_value_tile,
    load_weight_runs,
    steps_of_split,
    tile_of_program,
    unshuffled,
    wait_for_previous,
)


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
    pid_m, pid_n, split = tile_of_program(M, N, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS)
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
    first, last = steps_of_split(split, (K + BLOCK_K - 1) // BLOCK_K, SPLIT_K)
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for step in tl.range(first, last):
        k = step * BLOCK_K
        values = load_value_tile(values_ptr, pid_m, step, M, BLOCK_M, BLOCK_K, WIDE_OFFSETS)
        runs = load_weight_runs(in_words(b_ptr), pid_n, k, N, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
        b_scale = load_scale_tile(b_scale_ptr, pid_n, k, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
        acc = tl.dot(decode_weight_tile(runs, b_scale, BLOCK_N, BLOCK_K), tl.trans(values), acc)
    hand_over(
        tl.trans(acc), slices_ptr, tickets_ptr, out_ptr, stride_om, pid_m, pid_n, split, M, N, BLOCK_M, BLOCK_N,
        SPLIT_K, WIDE_OFFSETS,
    )  # fmt: skip
