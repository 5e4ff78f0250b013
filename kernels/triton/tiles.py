"""Device functions that the GEMM kernels share: program ids, split ranges, operand tiles, the store of C."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.language.target_info import cuda_capability_geq
from triton.runtime.jit import constexpr_function

from kernels.triton.quantize import shuffled_scale_offset


@triton.jit
def start_next():
    """Let the next kernel of the stream start once all workgroups have come here, if its launch asks for that."""
    if cuda_capability_geq(9, 0):
        gdc_launch_dependents()


@triton.jit
def wait_for_previous():
    """Wait until the kernels before have ended and what they stored can be read; every kernel does before it reads."""
    if cuda_capability_geq(9, 0):
        gdc_wait()


@triton.jit
def begin(STORE: tl.constexpr):
    """What a kernel does first; STORE as of :func:`store_tile`, empty for one that stores no product.

    After ``out`` comes another product. Its workgroups would crowd together where this one has left room, so that it
    starts only once all of this one's are about to store.
    """
    wait_for_previous()
    if STORE != "out":
        start_next()


@triton.jit
def tile_of_program(
    M,
    N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr, NUM_XCDS: tl.constexpr,
):  # fmt: skip
    """(pid_m, pid_n, split) of this program; the grid is (tiles, split_k).

    The hardware deals workgroups to the XCDs in turn, so consecutive ones share no L2. With NUM_XCDS > 1 each XCD
    gets one contiguous range of tiles instead. GROUP_M tile rows are visited together.
    """
    num_m = tl.cdiv(M, BLOCK_M)
    num_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    tiles = num_m * num_n
    pid = tl.program_id(0)
    split = tl.program_id(1)
    if NUM_XCDS > 1:
        total = tiles * tl.num_programs(1)
        linear = split * tiles + pid
        xcd = linear % NUM_XCDS
        linear = xcd * (total // NUM_XCDS) + tl.minimum(xcd, total % NUM_XCDS) + linear // NUM_XCDS
        pid = linear % tiles
        split = linear // tiles
    if GROUP_M > 1:
        first = (pid // (GROUP_M * num_n)) * GROUP_M
        rows = tl.minimum(num_m - first, GROUP_M)
        pid_m = first + (pid % (GROUP_M * num_n)) % rows
        pid_n = (pid % (GROUP_M * num_n)) // rows
    else:
        pid_m = pid // num_n
        pid_n = pid % num_n
    return pid_m, pid_n, split


@triton.jit
def steps_of_split(split, STEPS: tl.constexpr, SPLIT_K: tl.constexpr):
    """First and last (exclusive) of the STEPS along K that this split takes; shares differ by one step at most."""
    return split * STEPS // SPLIT_K, (split + 1) * STEPS // SPLIT_K


@constexpr_function
def is_paired(K, BLOCK_K):
    """Whether steps of a product of decoded values take two runs of 64 columns, 128 apart, instead of one.

    Of 256 columns the scales of those lie together in the shuffled layout, so that they load as one run.
    """
    return BLOCK_K == 128 and K % 256 == 0


@triton.jit
def load_weight_runs(
    b_ptr, pid_n, k,
    N: tl.constexpr, K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    CACHE: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """Packed weight tile as it lies in memory, [BLOCK_N//16, BLOCK_K//2*16] bytes, or words; 0 outside of N and K.

    A group of 16 rows is contiguous in the shuffled layout, so the tile is a few long runs. Words are for a product of
    decoded values: see :func:`is_paired`.
    """
    PER_K: tl.constexpr = 64 // b_ptr.dtype.element_ty.primitive_bitwidth  # elements of 16 rows
    GROUPS: tl.constexpr = BLOCK_N // 16
    offs_g = pid_n * GROUPS + tl.arange(0, GROUPS)
    inner = tl.arange(0, BLOCK_K * PER_K)  # byte k // 2 of each of 16 rows
    if PER_K == 2 and is_paired(K, BLOCK_K):
        offs_b = k // 256 * 512 + tl.multiple_of(k % 256, 128) + (inner // 128 * 256 + inner % 128)
    else:
        offs_b = k * PER_K + inner
    row = offs_g.to(tl.int64) if WIDE_OFFSETS else offs_g
    pointers = b_ptr + row[:, None] * (K * PER_K) + offs_b[None, :]
    if N % BLOCK_N == 0 and K % BLOCK_K == 0:
        return tl.load(pointers, cache_modifier=CACHE)
    else:
        mask = (offs_g < N // 16)[:, None] & (offs_b < K * PER_K)[None, :]
        return tl.load(pointers, mask=mask, other=0, cache_modifier=CACHE)


@triton.jit
def in_words(b_ptr):
    """A pointer to bytes, as one to words of four."""
    return b_ptr.to(tl.pointer_type(tl.int32))


@triton.jit
def load_value_tile(
    values_ptr, pid_m, step, M, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """Tile [BLOCK_M, BLOCK_K] of the values that ``round_kernel`` stored; its rows beyond M hold anything."""
    row = step * (tl.cdiv(M, BLOCK_M) * BLOCK_M) + pid_m * BLOCK_M
    first = (tl.cast(row, tl.int64) if WIDE_OFFSETS else row) * BLOCK_K
    inner = tl.arange(0, BLOCK_M)[:, None] * BLOCK_K + tl.arange(0, BLOCK_K)[None, :]
    return tl.load(values_ptr + first + inner)


@triton.jit
def unshuffled(runs, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Packed weight tile [BLOCK_K//2, BLOCK_N] from its runs; the shuffle is undone in registers."""
    tile = tl.reshape(runs, (BLOCK_N // 16, BLOCK_K // 64, 2, 16, 16))
    return tl.reshape(tl.permute(tile, (1, 2, 4, 0, 3)), (BLOCK_K // 2, BLOCK_N))


@triton.jit
def load_scale_tile(
    scale_ptr, row_tile, k,
    K: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_K: tl.constexpr, CACHE: tl.constexpr,
    WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """E8M0 tile [BLOCK_ROWS, BLOCK_K//32] from the shuffled layout; groups beyond K are 0 (2**-127), never pads.

    Rows beyond the operand's own read pad bytes, which reach rows of C that are never stored. BLOCK_ROWS divides
    256 and the rows are padded to 256, so no row is outside of the buffer.
    """
    SN: tl.constexpr = (K // 32 + 7) // 8 * 8
    if BLOCK_K % 256 == 0 and BLOCK_ROWS % 32 == 0:
        offs_r = row_tile * (BLOCK_ROWS // 32) + tl.arange(0, BLOCK_ROWS // 32)
        column = tl.arange(0, BLOCK_K)
        offs_c = k + column  # 32 rows of one group take 32 bytes
        row = offs_r.to(tl.int64) if WIDE_OFFSETS else offs_r
        pointers = scale_ptr + row[:, None] * (32 * SN) + offs_c[None, :]
        if K % BLOCK_K == 0:
            tile = tl.load(pointers, cache_modifier=CACHE)
        else:
            group = k // 32 + (column // 256) * 8 + (column % 256) // 64 + ((column // 2) % 2) * 4
            inside = tl.broadcast_to((group < K // 32)[None, :], (BLOCK_ROWS // 32, BLOCK_K))
            tile = tl.load(pointers, mask=inside, other=0, cache_modifier=CACHE)
        tile = tl.reshape(tile, (BLOCK_ROWS // 32, BLOCK_K // 256, 4, 16, 2, 2, 1))
        tile = tl.permute(tile, (0, 5, 3, 1, 4, 2, 6))
        tile = tl.reshape(tile, (BLOCK_ROWS, BLOCK_K // 32))
    else:
        rows = row_tile * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
        row = rows.to(tl.int64) if WIDE_OFFSETS else rows
        group = k // 32 + tl.arange(0, BLOCK_K // 32)
        pointers = scale_ptr + shuffled_scale_offset(row[:, None], group[None, :], SN)
        if K % BLOCK_K == 0:
            tile = tl.load(pointers, cache_modifier=CACHE)
        else:
            inside = tl.broadcast_to((group < K // 32)[None, :], (BLOCK_ROWS, BLOCK_K // 32))
            tile = tl.load(pointers, mask=inside, other=0, cache_modifier=CACHE)
    return tile


@triton.jit
def store_tile(
    acc, out_ptr, stride_om, pid_m, pid_n, split, M,
    N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STORE: tl.constexpr,
    WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """Write acc [BLOCK_M, BLOCK_N] of fp32: STORE is ``out`` (bf16), ``atomic`` (fp32 add) or ``workspace`` (slice)."""
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    row = offs_m.to(tl.int64) if WIDE_OFFSETS else offs_m
    mask = (offs_m < M)[:, None] & (offs_n < N)[None, :]
    if STORE == "out":
        start_next()
        pointers = out_ptr + row[:, None] * stride_om + offs_n[None, :]
        tl.store(pointers, acc.to(tl.bfloat16), mask=mask)
    else:
        if STORE == "atomic":
            pointers = out_ptr + row[:, None] * N + offs_n[None, :]
            tl.atomic_add(pointers, acc, mask=mask, sem="relaxed")
        else:
            slice_row = (split.to(tl.int64) if WIDE_OFFSETS else split) * M + row
            tl.store(out_ptr + slice_row[:, None] * N + offs_n[None, :], acc, mask=mask)
