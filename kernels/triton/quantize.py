"""MXFP4 quantisation in Triton: the device functions of every family, and the standalone kernel.

The arithmetic is the EVEN rule of ``kernels.mxfp4.numerics``: per 32 values of K one E8M0 scale byte, E2M1 codes with
ties to even, the even k in the low nibble, and byte 255 for a block that holds a NaN.
"""

from __future__ import annotations

import triton
import triton.language as tl

# v_cvt_scalef32_pk_fp4_bf16 rounds the two bf16 of a register to one byte of its destination and keeps the other bytes.
# It reads the exponent field of the scale only, so byte << 23 is the scale for every byte (AMD CDNA 4 ISA manual).
# LLVM puts no wait states around inline assembly, so a register of its own might be one that a matrix instruction still
# reads or writes. The destination is that of the pair, whose last writer LLVM knows.
CVT_PK_FP4 = tl.constexpr("v_cvt_scalef32_pk_fp4_bf16 $0, $0, $2")
CVT_PK_FP4_CONSTRAINTS = tl.constexpr("=v,0,v")


@triton.jit
def scale_byte(amax_bits):
    """E8M0 byte of a block from the bits of its largest magnitude as fp32 (int32 in, int32 out)."""
    exponent = ((amax_bits + 0x200000) >> 23) & 0xFF  # rounds up from mantissa 1.75
    byte = tl.where(exponent == 255, 254, tl.maximum(exponent, 2) - 2)  # Inf has no exponent: the largest scale
    return tl.where(amax_bits > 0x7F800000, 255, byte)


@triton.jit
def e2m1_codes(magnitude, sign):
    """E2M1 codes (int32, 0 to 15) of scaled magnitudes (fp32, not negative) and sign bits (int32, 0 or 1).

    Below 1 the grid is uniform: adding 2**22 leaves round-to-even(2 * magnitude) in the mantissa. From 1 on the
    top mantissa bit is kept, rounded to even on the bits.
    """
    clipped = tl.minimum(magnitude, 6.0)
    small = (clipped + 4194304.0).to(tl.int32, bitcast=True) & 7
    bits = clipped.to(tl.int32, bitcast=True)
    large = (bits + 0x1FFFFF + ((bits >> 22) & 1) - (126 << 23)) >> 22
    return tl.where(clipped < 1.0, small, large) | (sign << 3)


@triton.jit
def quantize_tile(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr, QUANTIZER: tl.constexpr):
    """Quantise x [ROWS, COLUMNS] of bf16 to packed codes [ROWS, COLUMNS//2] and scales [ROWS, COLUMNS//32], uint8."""
    bits = x.to(tl.int16, bitcast=True)
    magnitudes = tl.reshape(bits & 0x7FFF, (ROWS, COLUMNS // 32, 32))
    byte = scale_byte(tl.max(magnitudes, axis=2).to(tl.int32) << 16)  # integers: a NaN is the largest of all
    even, odd = tl.split(tl.reshape(bits, (ROWS, COLUMNS // 2, 2)))
    if QUANTIZER == "hardware":
        pair = (even.to(tl.int32) & 0xFFFF) | (odd.to(tl.int32) << 16)
        scale = for_each_pair((byte << 23).to(tl.float32, bitcast=True), ROWS, COLUMNS)
        word = tl.inline_asm_elementwise(
            CVT_PK_FP4, CVT_PK_FP4_CONSTRAINTS, [pair, scale], dtype=tl.int32, is_pure=True, pack=1
        )
        packed = word.to(tl.uint8)
    else:
        # 2**-(byte - 127); its exponent field is 0 for byte 254, where the value is the subnormal 2**-127.
        inverse = tl.where(byte == 254, 0x00400000, (254 - byte) << 23).to(tl.float32, bitcast=True)
        inverse = for_each_pair(inverse, ROWS, COLUMNS)
        low = e2m1_codes(magnitude_of(even) * inverse, (even.to(tl.int32) >> 31) & 1)
        high = e2m1_codes(magnitude_of(odd) * inverse, (odd.to(tl.int32) >> 31) & 1)
        packed = (low | (high << 4)).to(tl.uint8)
    return packed, byte.to(tl.uint8)


@triton.jit
def for_each_pair(values, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Repeat the values [ROWS, COLUMNS//32] of the blocks for each pair of k: [ROWS, COLUMNS//2]."""
    repeated = tl.broadcast_to(tl.expand_dims(values, 2), (ROWS, COLUMNS // 32, 16))
    return tl.reshape(repeated, (ROWS, COLUMNS // 2))


@triton.jit
def magnitude_of(bits):
    """Absolute value, in fp32, of bf16 given by its bits (int16)."""
    return ((bits.to(tl.int32) & 0x7FFF) << 16).to(tl.float32, bitcast=True)


@triton.jit
def fake_quantize_tile(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Round x [ROWS, COLUMNS] of bf16 to its MXFP4 values, as bf16 [ROWS, COLUMNS]; a block with a NaN is NaN.

    An E2M1 value times 2**u has two significant bits, so bf16 holds it exactly and the conversions are shifts of
    the bits. Of an Inf, 6 * 2**127, fp32 and bf16 make Inf.
    """
    bits = x.to(tl.int16, bitcast=True).to(tl.int32) << 16
    magnitudes = tl.reshape(bits & 0x7FFFFFFF, (ROWS, COLUMNS // 32, 32))
    byte = tl.expand_dims(scale_byte(tl.max(magnitudes, axis=2)), 2)
    # 2**-(byte - 127) and 2**(byte - 127); the exponent field of the subnormal 2**-127 is 0.
    inverse = tl.where(byte == 254, 0x00400000, (254 - byte) << 23).to(tl.float32, bitcast=True)
    scale = tl.where(byte == 0, 0x00400000, byte << 23).to(tl.float32, bitcast=True)
    clipped = tl.minimum(magnitudes.to(tl.float32, bitcast=True) * inverse, 6.0)
    small = (clipped + 4194304.0) - 4194304.0  # to the nearest multiple of 0.5, ties to even
    large = clipped.to(tl.int32, bitcast=True)
    large = (large + 0x1FFFFF + ((large >> 22) & 1)) & -0x400000  # to one fraction bit, ties to even
    value = tl.where(clipped < 1.0, small, large.to(tl.float32, bitcast=True)) * scale
    value = tl.where(byte == 255, 0x7FC00000, value.to(tl.int32, bitcast=True))
    value = tl.reshape(value, (ROWS, COLUMNS)) | (bits & -0x80000000)
    return (value >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def shuffled_scale_offset(row, group, PADDED_GROUPS: tl.constexpr):
    """Byte offset of scale (row, group) in the shuffled layout of ``kernels.mxfp4.layouts``."""
    return (
        (row // 32) * (32 * PADDED_GROUPS)
        + (group // 8) * 256
        + (group % 4) * 64
        + (row % 16) * 4
        + ((group // 4) % 2) * 2
        + (row // 16) % 2
    )


@triton.jit(do_not_specialize=["M"])
def quantize_kernel(
    a_ptr, codes_ptr, scale_ptr,
    M, stride_am,
    K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    QUANTIZER: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """Quantise a [BLOCK_M, BLOCK_K] tile of A to packed row-major codes and shuffled scales.

    Pad bytes of the scales are left as they are: no kernel of the project reads them unmasked.
    """
    pid = tl.program_id(0)
    num_k: tl.constexpr = (K + BLOCK_K - 1) // BLOCK_K
    offs_m = (pid // num_k) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = (pid % num_k) * BLOCK_K
    row = offs_m.to(tl.int64) if WIDE_OFFSETS else offs_m
    offs_k = k + tl.arange(0, BLOCK_K)
    inside = (offs_m < M)[:, None]
    a = tl.load(a_ptr + row[:, None] * stride_am + offs_k[None, :], mask=inside & (offs_k < K)[None, :], other=0.0)
    packed, byte = quantize_tile(a, BLOCK_M, BLOCK_K, QUANTIZER)
    offs_kb = k // 2 + tl.arange(0, BLOCK_K // 2)
    codes = codes_ptr + row[:, None] * (K // 2) + offs_kb[None, :]
    tl.store(codes, packed, mask=inside & (offs_kb < K // 2)[None, :])
    group = k // 32 + tl.arange(0, BLOCK_K // 32)
    offsets = shuffled_scale_offset(row[:, None], group[None, :], (K // 32 + 7) // 8 * 8)
    tl.store(scale_ptr + offsets, byte, mask=inside & (group < K // 32)[None, :])
