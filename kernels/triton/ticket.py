"""Split-K in one launch: the workgroups of a tile store slices of its sum, and the last one to arrive adds them up.

What a workgroup stored must be in what another one reads, wherever the two run. The order that this takes:

1.  Every wave waits for its own stores, and the workgroup meets (``wait_for_stores``, a barrier).
2.  One lane draws the tile's ticket by an atomic addition that releases and acquires at the scope of the GPU.
3.  A barrier hands the ticket to all waves. Whoever drew the last one reads the slices, in the order of K, so that the
    result has the same bits whoever was last.

On CDNA 3 and 4 a GPU has several L2 caches, one a die, that do not see each other's dirty lines. LLVM makes of the
release a ``buffer_wbl2 sc1``, which writes the L2 back, and of the acquire a ``buffer_inv sc1``, which drops the L1 and
what the L2 holds of others (LLVM, User Guide for AMDGPU Backend, memory model of gfx942). The L1 writes through, and
all waves of a workgroup share both, so that one wave can do it for all, but for one thing: the write-back is sure to
cover the stores of its own wave only (LLVM, SIMemoryLegalizer), those of the others once they have reached the L2. A
barrier of Triton does not wait for that (``s_barrier`` alone), so each wave does. Reads and writes of the slices need
no cache modifier of their own then.

On NVIDIA, barriers and the atomic are enough: causality order is transitive (PTX ISA, memory consistency model).
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.products import fused_product
from kernels.triton.tiles import store_tile, tile_of_program, wait_for_previous


def wait_for_stores(value, _semantic=None):
    """``value``, once the global stores of this wave have reached the L2; at once where a barrier orders them.

    It asks what the code is compiled for: the GPU of this machine may be another one, or none. Interpreted, programs
    run one after the other.
    """
    if _semantic is None or _semantic.builder.options.backend_name != "hip":
        return value
    done = "s_waitcnt vmcnt(0)"  # the counter of vector memory of gfx9, which counts stores as well
    return tl.inline_asm_elementwise(done, "=v,0", [value], dtype=tl.int32, is_pure=False, pack=1, _semantic=_semantic)


wait_for_stores.__triton_builtin__ = True


@triton.jit
def draw_ticket(tickets_ptr, tile):
    """How many workgroups drew a ticket of ``tile`` before this one, which hands over all that it stored."""
    ticket_ptr = tickets_ptr + wait_for_stores(tile)
    tl.debug_barrier()
    return tl.atomic_add(ticket_ptr, 1, sem="acq_rel", scope="gpu")


@triton.jit
def sum_slices(
    slices_ptr, pid_m, pid_n, M,
    N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT_K: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """Sum [BLOCK_M, BLOCK_N] of a tile's slices of slices [SPLIT_K, M, N] of fp32, in order."""
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    row = (offs_m.to(tl.int64) if WIDE_OFFSETS else offs_m)[:, None]
    rows = tl.cast(M, tl.int64) if WIDE_OFFSETS else M
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for s in tl.static_range(SPLIT_K):
        acc += tl.load(slices_ptr + (s * rows + row) * N + offs_n[None, :], mask=mask, other=0.0)
    return acc


@triton.jit
def hand_over(
    acc, slices_ptr, tickets_ptr, out_ptr, stride_om, pid_m, pid_n, split, M,
    N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT_K: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """Store the slice acc [BLOCK_M, BLOCK_N] of a tile; the last of its workgroups writes their sum."""
    store_tile(acc, slices_ptr, N, pid_m, pid_n, split, M, N, BLOCK_M, BLOCK_N, "workspace", WIDE_OFFSETS)
    num_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    tile = pid_m * num_n + pid_n
    if draw_ticket(tickets_ptr, tile) == SPLIT_K - 1:
        total = sum_slices(slices_ptr, pid_m, pid_n, M, N, BLOCK_M, BLOCK_N, SPLIT_K, WIDE_OFFSETS)
        store_tile(total, out_ptr, stride_om, pid_m, pid_n, split, M, N, BLOCK_M, BLOCK_N, "out", WIDE_OFFSETS)
        tl.atomic_xchg(tickets_ptr + tile, 0, sem="relaxed", scope="gpu")  # as the additions, where they meet


@triton.jit(do_not_specialize=["M"])
def fused_ticket_kernel(
    a_ptr, b_ptr, b_scale_ptr, slices_ptr, tickets_ptr, out_ptr,
    M, stride_am, stride_om,
    N: tl.constexpr, K: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr, SPLIT_K: tl.constexpr,
    QUANTIZER: tl.constexpr, A_OPERAND: tl.constexpr, CACHE: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """C[M, N] = Q(A[M, K]) @ B[N, K].T for bf16 A and shuffled MXFP4 B, each tile by SPLIT_K workgroups.

    ``slices`` [SPLIT_K, M, N] of fp32 is scratch. ``tickets`` of int32, one a tile, are zero before the launch and
    after it. No other launch may use them meanwhile.
    """
    wait_for_previous()
    pid_m, pid_n, split = tile_of_program(M, N, BLOCK_M, BLOCK_N, GROUP_M, NUM_XCDS)
    acc = fused_product(
        a_ptr, b_ptr, b_scale_ptr, pid_m, pid_n, split, M, stride_am, N, K, BLOCK_M, BLOCK_N, BLOCK_K, SPLIT_K,
        QUANTIZER, A_OPERAND, CACHE, WIDE_OFFSETS,
    )  # fmt: skip
    hand_over(
        acc, slices_ptr, tickets_ptr, out_ptr, stride_om, pid_m, pid_n, split, M, N, BLOCK_M, BLOCK_N, SPLIT_K,
        WIDE_OFFSETS,
    )  # fmt: skip
