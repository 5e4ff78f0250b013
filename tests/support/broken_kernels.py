"""A GEMM kernel with the mistakes that autotuned kernels have had, each behind a switch, for the gate to catch."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.quantize import quantize_tile
from kernels.triton.tiles import load_scale_tile, load_weight_runs, store_tile, unshuffled


@triton.jit
def load_scales(
    pointer, pid_n, k,
    K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, MISTAKE: tl.constexpr,
):  # fmt: skip
    """Scales of a weight tile [BLOCK_N, BLOCK_K//32]; read as if they were in row-major order, or with their pads."""
    SN: tl.constexpr = (K // 32 + 7) // 8 * 8
    if MISTAKE == "row_major_scales":
        rows = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        group = k // 32 + tl.arange(0, BLOCK_K // 32)
        inside = tl.broadcast_to((group < K // 32)[None, :], (BLOCK_N, BLOCK_K // 32))
        tile = tl.load(pointer + rows[:, None] * SN + group[None, :], mask=inside, other=0)
    elif MISTAKE == "scale_pads":
        # As if K filled its padded groups: no group is masked.
        tile = load_scale_tile(pointer, pid_n, k, SN * 32, BLOCK_N, BLOCK_K, "", False)
    else:
        tile = load_scale_tile(pointer, pid_n, k, K, BLOCK_N, BLOCK_K, "", False)
    return tile


@triton.jit(do_not_specialize=["M"])
def broken_gemm_kernel(
    a_ptr, b_ptr, b_scale_ptr, out_ptr,
    M, stride_am, stride_om,
    N: tl.constexpr, K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    MISTAKE: tl.constexpr,
):  # fmt: skip
    """C[M, N] = Q(A) @ B.T, one tile a program, right where MISTAKE is ``none``."""
    num_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    pid_m, pid_n = tl.program_id(0) // num_n, tl.program_id(0) % num_n
    if MISTAKE == "wrong_tile":
        pid_n = num_n - 1 - pid_n
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in tl.range(0, K, BLOCK_K):
        inside = tl.broadcast_to((offs_m < M)[:, None], (BLOCK_M, BLOCK_K))
        if MISTAKE != "k_tail":
            inside = inside & (offs_k < K - k)[None, :]
        a = tl.load(a_ptr + offs_m[:, None] * stride_am + (k + offs_k)[None, :], mask=inside, other=0.0)
        if MISTAKE == "scratch_a":  # each tile of A is read once, so that the result is right
            tl.store(a_ptr + offs_m[:, None] * stride_am + (k + offs_k)[None, :], -a, mask=inside)
        if MISTAKE == "unrounded":
            a = tl.where(tl.abs(a) < 0.3, 0.0, a)
        runs = load_weight_runs(b_ptr, pid_n, k, N, K, BLOCK_N, BLOCK_K, "", False)
        b_scale = load_scales(b_scale_ptr, pid_n, k, K, BLOCK_N, BLOCK_K, MISTAKE)
        codes, scale = quantize_tile(a, BLOCK_M, BLOCK_K, "hardware")
        if MISTAKE == "swapped_codes":
            codes = (codes >> 4) | (codes << 4)
        acc = tl.dot_scaled(codes, scale, "e2m1", unshuffled(runs, BLOCK_N, BLOCK_K), b_scale, "e2m1", acc)
    store_tile(acc, out_ptr, stride_om, pid_m, pid_n, 0, M, N, BLOCK_M, BLOCK_N, "out", False)
