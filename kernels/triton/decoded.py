"""MXFP4 as bf16 in registers, for devices without an FP4 matrix unit: both operands decoded, one plain ``tl.dot``.

bf16 holds an E2M1 value times 2**u exactly, so that the product is exact up to the order of its fp32 sum; 6 * 2**127 is
Inf. The weight is the left operand of ``tl.dot``: on Hopper its decoded values go from registers into ``wgmma`` and
never through shared memory. That asks each lane for two neighbours of K at a time. The cheapest two to decode lie 16
bits apart in a word, where one operation reaches both; so the product runs over K in an order of its own, and the
values of A follow it.

Order of the product: K = 32 q + 8 v + 4 e + j of chunk q, whose 16 bytes are four words v of two halves e of four codes
j, comes as (q, j, v, e). The four lanes that share rows of ``wgmma`` take a word of a chunk each: what they read lies
side by side, which a matrix load from shared memory (``ldmatrix``) does without bank conflicts.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq

from kernels.triton.quantize import fake_quantize_tile, shuffled_scale_offset
from kernels.triton.tiles import is_paired, load_scale_tile

# A word of eight codes to four registers of two bf16, times a power of two, given in both halves of a register. Sign
# and magnitude move to where bf16 has sign, the last exponent bits and the first of the fraction, 2**126 too small
# (subnormal codes included).
DECODE = tl.constexpr("""
{
.reg .b32 word, x0, x1, x2, x3, power;
mov.b32 power, 0x7E807E80;
shr.u32 word, $8, 8;
and.b32 x0, $8, 0x000F000F;
and.b32 x1, $8, 0x00F000F0;
and.b32 x2, word, 0x000F000F;
and.b32 x3, word, 0x00F000F0;
mul.lo.u32 x0, x0, 0x1040;
mul.lo.u32 x1, x1, 0x104;
mul.lo.u32 x2, x2, 0x1040;
mul.lo.u32 x3, x3, 0x104;
and.b32 x0, x0, 0x81C081C0;
and.b32 x1, x1, 0x81C081C0;
and.b32 x2, x2, 0x81C081C0;
and.b32 x3, x3, 0x81C081C0;
mul.rn.bf16x2 x0, x0, power;
mul.rn.bf16x2 x1, x1, power;
mul.rn.bf16x2 x2, x2, power;
mul.rn.bf16x2 x3, x3, power;
mul.rn.bf16x2 x0, x0, $9;
mul.rn.bf16x2 x1, x1, $9;
mul.rn.bf16x2 x2, x2, $9;
mul.rn.bf16x2 x3, x3, $9;
mov.b32 {$0, $1}, x0;
mov.b32 {$2, $3}, x1;
mov.b32 {$4, $5}, x2;
mov.b32 {$6, $7}, x3;
}
""")
# Round two values to MXFP4: scale, clip to 6, and add 1.5 * 2**6 times the power of two of the grid's spacing, which
# leaves no bits below it; then back. Operands: the values, 2**-u and 2**u of their block.
ROUND = tl.constexpr("""
{
.reg .b32 x, magic, six, one;
mov.b32 six, 0x40C040C0;
mov.b32 one, 0x3F803F80;
and.b32 x, $1, 0x7FFF7FFF;
mul.rn.bf16x2 x, x, $2;
min.bf16x2 x, x, six;
max.bf16x2 magic, x, one;
and.b32 magic, magic, 0x7F807F80;
add.u32 magic, magic, 0x03400340;
add.rn.bf16x2 x, x, magic;
sub.rn.bf16x2 x, x, magic;
mul.rn.bf16x2 x, x, $3;
and.b32 magic, $1, 0x80008000;
or.b32 $0, x, magic;
}
""")


@triton.jit
def in_product_order(values, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Values [ROWS, COLUMNS] by K, rearranged to the order of the product."""
    parts = tl.reshape(values, (ROWS, COLUMNS // 32, 4, 2, 4))
    return tl.reshape(tl.permute(parts, (0, 1, 4, 2, 3)), (ROWS, COLUMNS))


@triton.jit
def columns_of_step(k, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """The columns [BLOCK_K] of K that the step at ``k`` takes, chunk by chunk."""
    place = tl.arange(0, BLOCK_K)
    if is_paired(K, BLOCK_K):
        return k // 256 * 256 + tl.multiple_of(k % 256 // 2, 64) + (place // 64 * 128 + place % 64)
    else:
        return k + place


@triton.jit
def columns_of_places(place, K: tl.constexpr, BLOCK_K: tl.constexpr):
    """The columns of K at places of the steps' order, each BLOCK_K of which are a step's."""
    if is_paired(K, BLOCK_K):
        return place // 256 * 256 + place % 128 // 64 * 128 + place % 256 // 128 * 64 + place % 64
    else:
        return place


@triton.jit
def power_bits(byte):
    """2**(byte - 127) of E8M0 bytes as the bits of bf16 (int32); of 255 a NaN."""
    return tl.where(byte == 255, 0x7FC0, tl.maximum(byte.to(tl.int32) << 7, 0x0040))


@triton.jit
def as_bf16(bits):
    """The bf16 of these bits (int32)."""
    return bits.to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def e2m1_value(code):
    """Codes (int32, 0 to 15) as fp32."""
    magnitude = code & 7
    fraction = 2 + (magnitude & 1)
    halves = tl.where(magnitude < 2, magnitude, fraction << tl.maximum((magnitude >> 1) - 1, 0))  # twice the value
    return halves.to(tl.float32) * tl.where(code < 8, 0.5, -0.5)  # a zero too has a sign


@triton.jit
def decode_words(words, power):
    """The eight codes of words (int32) times powers of two, given as bits of bf16: bf16 [..., 8], or [..., 2, 2, 2]."""
    if cuda_capability_geq(9, 0):
        a0, b0, a1, b1, a2, b2, a3, b3 = tl.inline_asm_elementwise(
            DECODE, "=h,=h,=h,=h,=h,=h,=h,=h,r,r", [words, power * 0x10001],
            dtype=(tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16,
                   tl.bfloat16, tl.bfloat16, tl.bfloat16, tl.bfloat16),
            is_pure=True, pack=1,
        )  # fmt: skip
        even, odd = tl.join(tl.join(a0, b0), tl.join(a2, b2)), tl.join(tl.join(a1, b1), tl.join(a3, b3))
        return tl.join(even, odd)  # half, upper two of its codes, odd one
    else:
        # By their bits: conversions may flush what is subnormal. bf16 holds the product, so no bit is lost.
        codes = (tl.expand_dims(words, -1) >> (4 * tl.arange(0, 8))) & 15
        product = e2m1_value(codes) * (tl.expand_dims(power, -1) << 16).to(tl.float32, bitcast=True)
        return as_bf16(product.to(tl.int32, bitcast=True) >> 16)


@triton.jit
def load_step_scales(
    scale_ptr, pid_n, k,
    K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, CACHE: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """E8M0 bytes [BLOCK_N, BLOCK_K//32] of the columns that the step at ``k`` takes.

    A paired step's of 32 rows are one run, loaded as several equal ones: a copy to shared memory that does not wait
    is of 4 bytes a lane at least.
    """
    SN: tl.constexpr = (K // 32 + 7) // 8 * 8
    if not is_paired(K, BLOCK_K):
        return load_scale_tile(scale_ptr, pid_n, k, K, BLOCK_N, BLOCK_K, CACHE, WIDE_OFFSETS)
    elif BLOCK_N % 32 == 0:
        BYTES: tl.constexpr = BLOCK_N * BLOCK_K // 32
        COPIES: tl.constexpr = 1024 // BYTES if BYTES < 1024 else 1
        groups = pid_n * (BLOCK_N // 32) + tl.arange(0, BLOCK_N // 32 * COPIES) // COPIES
        row = groups.to(tl.int64) if WIDE_OFFSETS else groups
        pointers = scale_ptr + row[:, None] * (32 * SN) + (k + tl.arange(0, BLOCK_K))[None, :]
        tile = tl.reshape(tl.load(pointers, cache_modifier=CACHE), (BLOCK_N // 32, COPIES, 2, 16, 2, 2))
        tile = tl.reshape(tl.permute(tile, (0, 5, 3, 4, 2, 1)), (BLOCK_N, BLOCK_K // 32, COPIES))
        for halved in tl.static_range(3):
            if COPIES >> halved > 1:
                tile, _ = tl.split(tl.reshape(tile, (BLOCK_N, BLOCK_K // 32, COPIES >> halved + 1, 2)))
        return tl.reshape(tile, (BLOCK_N, BLOCK_K // 32))
    else:
        rows = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        row = rows.to(tl.int64) if WIDE_OFFSETS else rows
        place = tl.arange(0, BLOCK_K // 32)
        group = k // 256 * 8 + k % 256 // 64 + (place // 2 * 4 + place % 2)
        return tl.load(scale_ptr + shuffled_scale_offset(row[:, None], group[None, :], SN), cache_modifier=CACHE)


@triton.jit
def decode_weight_tile(runs, byte, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Weight tile [BLOCK_N, BLOCK_K] of bf16 in the order of the product.

    Made of its words as they lie in memory, int32 [BLOCK_N//16, BLOCK_K*2], and its E8M0 scales, uint8
    [BLOCK_N, BLOCK_K//32].
    """
    CHUNKS: tl.constexpr = BLOCK_K // 32
    words = tl.reshape(runs, (BLOCK_N // 16, CHUNKS, 16, 4))  # row group, q, row, v
    words = tl.reshape(tl.permute(words, (0, 2, 1, 3)), (BLOCK_N, CHUNKS, 4))
    power = tl.reshape(power_bits(byte), (BLOCK_N, CHUNKS, 1))
    values = decode_words(words, tl.broadcast_to(power, (BLOCK_N, CHUNKS, 4)))
    values = tl.reshape(values, (BLOCK_N, CHUNKS, 4, 2, 4))
    return tl.reshape(tl.permute(values, (0, 1, 4, 2, 3)), (BLOCK_N, BLOCK_K))


@triton.jit
def round_tile(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Round x [ROWS, COLUMNS] of bf16 to its MXFP4 values, as bf16 [ROWS, COLUMNS]; a block with a NaN is NaN."""
    if cuda_capability_geq(9, 0):
        bits = tl.reshape(x.to(tl.int16, bitcast=True) & 0x7FFF, (ROWS, COLUMNS // 32, 32))
        amax = tl.max(bits, axis=2).to(tl.int32)
        exponent = ((amax + 0x20) >> 7) & 0xFF  # rounds up from mantissa 1.75
        byte = tl.where(exponent == 255, 254, tl.maximum(exponent, 2) - 2)  # Inf has no exponent: the largest scale
        byte = tl.where(amax > 0x7F80, 255, byte)
        inverse = as_bf16(tl.where(byte == 254, 0x0040, (254 - byte) << 7))
        inverse = tl.broadcast_to(tl.expand_dims(inverse, 2), (ROWS, COLUMNS // 32, 32))
        power = tl.broadcast_to(tl.expand_dims(as_bf16(power_bits(byte)), 2), (ROWS, COLUMNS // 32, 32))
        values = tl.inline_asm_elementwise(
            ROUND, "=r,r,r,r", [tl.reshape(x, (ROWS, COLUMNS // 32, 32)), inverse, power],
            dtype=tl.bfloat16, is_pure=True, pack=2,
        )  # fmt: skip
        return tl.reshape(values, (ROWS, COLUMNS))
    else:
        return fake_quantize_tile(x, ROWS, COLUMNS)
