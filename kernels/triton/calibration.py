"""Triton kernels of which one part of a GPU takes nearly all the time. Each result is an exact, known number."""

from __future__ import annotations

import triton
import triton.language as tl

UNROLLED: tl.constexpr = tl.constexpr(16)  # dependent operations of a trip


@triton.jit
def mark_kernel(out_ptr, LANES: tl.constexpr):
    """Store ones: a kernel that is little but its launch."""
    offs = tl.arange(0, LANES)
    tl.store(out_ptr + offs, offs * 0.0 + 1.0)


@triton.jit(do_not_specialize=["hops"])
def chase_kernel(ring_ptr, out_ptr, hops, LANES: tl.constexpr):
    """Follow ``hops`` links from where the launch before stopped; a link is as wide as LANES, so no scalar load has it.

    Both buffers hold int32: ring[place, lane] and out[lane] are the index of that lane at the next place.
    """
    ring = ring_ptr.to(tl.pointer_type(tl.int32), bitcast=True)
    here = out_ptr.to(tl.pointer_type(tl.int32), bitcast=True) + tl.arange(0, LANES)
    at = tl.load(here)
    for _ in range(hops):
        at = tl.load(ring + at)
    tl.store(here, at)


@triton.jit(do_not_specialize=["trips"])
def vector_kernel(ones_ptr, out_ptr, trips, LANES: tl.constexpr):
    """A chain of dependent multiply-adds, 16 a trip: each adds one."""
    offs = tl.arange(0, LANES)
    one = tl.load(ones_ptr + offs)
    value = one - one
    for _ in range(trips):
        for _ in tl.static_range(UNROLLED):
            value = value * one + one
    tl.store(out_ptr + tl.program_id(0) * LANES + offs, value)


@triton.jit(do_not_specialize=["trips"])
def matrix_kernel(
    a_ptr, b_ptr, scale_ptr, out_ptr, trips,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Products of the same two MXFP4 tiles of ones, added up: each trip adds BLOCK_K."""
    offs_m, offs_n = tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
    bytes_k, groups = tl.arange(0, BLOCK_K // 2), tl.arange(0, BLOCK_K // 32)
    a = tl.load(a_ptr + offs_m[:, None] * (BLOCK_K // 2) + bytes_k[None, :])
    b = tl.load(b_ptr + offs_n[None, :] * (BLOCK_K // 2) + bytes_k[:, None])
    a_scale = tl.load(scale_ptr + offs_m[:, None] * (BLOCK_K // 32) + groups[None, :])
    b_scale = tl.load(scale_ptr + offs_n[:, None] * (BLOCK_K // 32) + groups[None, :])
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(trips):
        acc = tl.dot_scaled(a, a_scale, "e2m1", b, b_scale, "e2m1", acc)
    tile = out_ptr + tl.program_id(0) * BLOCK_M * BLOCK_N
    tl.store(tile + offs_m[:, None] * BLOCK_N + offs_n[None, :], acc)


@triton.jit(do_not_specialize=["trips"])
def exchange_kernel(ones_ptr, out_ptr, trips, LANES: tl.constexpr):
    """Waves of a workgroup add up what all of them hold, through the LDS: each trip adds one to their mean."""
    offs = tl.arange(0, LANES)
    one = tl.load(ones_ptr + offs)
    value = one - one
    for _ in range(trips):
        value = tl.sum(value, 0) * (1.0 / LANES) + one
    tl.store(out_ptr + tl.program_id(0) * LANES + offs, value)


@triton.jit(do_not_specialize=["pieces"])
def read_kernel(ones_ptr, out_ptr, pieces, STRIDE: tl.constexpr, PIECE: tl.constexpr):
    """Add up ``pieces`` pieces of ones, STRIDE elements apart, that no other workgroup reads."""
    offs = tl.arange(0, PIECE)
    source = ones_ptr + tl.program_id(0).to(tl.int64) * PIECE
    total = tl.zeros((PIECE,), dtype=tl.float32)
    for _ in range(pieces):
        total += tl.load(source + offs)
        source += STRIDE
    tl.store(out_ptr + tl.program_id(0) * PIECE + offs, total)


@triton.jit(do_not_specialize=["pieces"])
def write_kernel(ones_ptr, out_ptr, pieces, STRIDE: tl.constexpr, PIECE: tl.constexpr):
    """Fill ``pieces`` pieces, STRIDE elements apart, with ones."""
    offs = tl.arange(0, PIECE)
    ones = tl.load(ones_ptr + offs)
    out = out_ptr + tl.program_id(0).to(tl.int64) * PIECE
    for _ in range(pieces):
        tl.store(out + offs, ones)
        out += STRIDE
