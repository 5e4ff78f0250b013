"""MXFP4 as bf16 in registers, for devices without an FP4 matrix unit: both operands decoded, one plain ``tl.dot``.

bf16 holds an E2M1 value times 2**u exactly, so that the product is exact up to the order of its fp32 sum; 6 * 2**127 is
Inf. The weight is the left operand of ``tl.dot``: on Hopper its decoded values go from registers into ``wgmma`` and
never through shared memory. That asks each lane for two neighbours of K at a time, while the shuffled layout gives it
16 bytes in a row; so the product runs over K in an order of its own, and the values of A follow it.

Order of the product: K = 32 q + 4 t + 2 e + h, where chunk q = 4 C + c holds 16 bytes, byte 2 t + e two values h,
comes as (C, t, h, c, e).
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.target_info import cuda_capability_geq

from kernels.triton.quantize import fake_quantize_tile

# Two bytes to two registers of packed bf16: the low and the high code of each. Sign and magnitude move to where bf16
# has sign, the last exponent bits and the first of the fraction, 2**126 too small (subnormal codes included).
DECODE = tl.constexpr("""
{
.reg .b32 two, x, power;
mov.b32 power, 0x7E807E80;
cvt.u32.u16 two, $2;
prmt.b32 two, two, 0, 0x4140;
and.b32 x, two, 0x000F000F;
mul.lo.u32 x, x, 0x1040;
and.b32 x, x, 0x81C081C0;
mul.rn.bf16x2 $0, x, power;
and.b32 x, two, 0x00F000F0;
mul.lo.u32 x, x, 0x104;
and.b32 x, x, 0x81C081C0;
mul.rn.bf16x2 $1, x, power;
}
""")
MULTIPLY = tl.constexpr("mul.rn.bf16x2 $0, $1, $2;")
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
    CHUNKS: tl.constexpr = COLUMNS // 32
    INNER: tl.constexpr = CHUNKS if CHUNKS < 4 else 4
    parts = tl.reshape(values, (ROWS, CHUNKS // INNER, INNER, 8, 2, 2))
    return tl.reshape(tl.permute(parts, (0, 1, 3, 5, 2, 4)), (ROWS, COLUMNS))


@triton.jit
def e2m1_values(packed):
    """The low and the high code of each byte as bf16, both in the shape of ``packed``."""
    if cuda_capability_geq(9, 0):
        return tl.inline_asm_elementwise(
            DECODE, "=r,=r,h", [packed], dtype=(tl.bfloat16, tl.bfloat16), is_pure=True, pack=2
        )
    else:
        return e2m1_value(packed & 15), e2m1_value(packed >> 4)


@triton.jit
def e2m1_value(code):
    """Codes (uint8, 0 to 15) as bf16."""
    magnitude = (code & 7).to(tl.int32)
    fraction = 2 + (magnitude & 1)
    halves = tl.where(magnitude < 2, magnitude, fraction << tl.maximum((magnitude >> 1) - 1, 0))  # twice the value
    sign = tl.where(code < 8, 0.5, -0.5)  # also of a zero
    return (halves.to(tl.float32) * sign).to(tl.bfloat16)


@triton.jit
def power_of_byte(byte):
    """2**(byte - 127) of E8M0 bytes, as bf16; of 255 a NaN."""
    bits = tl.where(byte == 0, 0x0040, byte.to(tl.int16) << 7)
    return tl.where(byte == 255, 0x7FC0, bits).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def times(values, powers):
    """Product of bf16 with powers of two, rounded to bf16."""
    if cuda_capability_geq(9, 0):
        return tl.inline_asm_elementwise(MULTIPLY, "=r,r,r", [values, powers], dtype=tl.bfloat16, is_pure=True, pack=2)
    else:
        # By their bits: conversions may flush what is subnormal. bf16 holds the product, so no bit is lost.
        product = bf16_as_fp32(values) * bf16_as_fp32(powers)
        return (product.to(tl.int32, bitcast=True) >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def bf16_as_fp32(values):
    """The same values as fp32."""
    return (values.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def decode_weight_tile(runs, byte, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Weight tile [BLOCK_N, BLOCK_K] of bf16 in the order of the product.

    Made of its bytes as they lie in memory, uint8 [BLOCK_N//16, BLOCK_K//2*16], and its E8M0 scales, uint8
    [BLOCK_N, BLOCK_K//32].
    """
    CHUNKS: tl.constexpr = BLOCK_K // 32
    INNER: tl.constexpr = CHUNKS if CHUNKS < 4 else 4
    OUTER: tl.constexpr = CHUNKS // INNER
    tile = tl.reshape(runs, (BLOCK_N // 16, OUTER, INNER, 16, 8, 2))  # row group, C, c, row, t, e
    tile = tl.reshape(tl.permute(tile, (0, 3, 1, 4, 2, 5)), (BLOCK_N, OUTER, 8, INNER, 2))
    low, high = e2m1_values(tile)
    power = tl.reshape(power_of_byte(byte), (BLOCK_N, OUTER, 1, INNER, 1))
    power = tl.broadcast_to(power, (BLOCK_N, OUTER, 8, INNER, 2))
    both = tl.join(times(low, power), times(high, power))
    return tl.reshape(tl.permute(both, (0, 1, 2, 5, 3, 4)), (BLOCK_N, BLOCK_K))


@triton.jit
def round_tile(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Round x [ROWS, COLUMNS] of bf16 to its MXFP4 values, as bf16 [ROWS, COLUMNS]; a block with a NaN is NaN."""
    if cuda_capability_geq(9, 0):
        bits = tl.reshape(x.to(tl.int16, bitcast=True) & 0x7FFF, (ROWS, COLUMNS // 32, 32))
        amax = tl.max(bits, axis=2).to(tl.int32)
        exponent = ((amax + 0x20) >> 7) & 0xFF  # rounds up from mantissa 1.75
        byte = tl.where(exponent == 255, 254, tl.maximum(exponent, 2) - 2)  # Inf has no exponent: the largest scale
        byte = tl.where(amax > 0x7F80, 255, byte)
        inverse = tl.where(byte == 254, 0x0040, (254 - byte) << 7).to(tl.int16).to(tl.bfloat16, bitcast=True)
        inverse = tl.broadcast_to(tl.expand_dims(inverse, 2), (ROWS, COLUMNS // 32, 32))
        power = tl.broadcast_to(tl.expand_dims(power_of_byte(byte), 2), (ROWS, COLUMNS // 32, 32))
        values = tl.inline_asm_elementwise(
            ROUND, "=r,r,r,r", [tl.reshape(x, (ROWS, COLUMNS // 32, 32)), inverse, power],
            dtype=tl.bfloat16, is_pure=True, pack=2,
        )  # fmt: skip
        return tl.reshape(values, (ROWS, COLUMNS))
    else:
        return fake_quantize_tile(x, ROWS, COLUMNS)
