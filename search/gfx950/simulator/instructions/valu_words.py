"""Vector ALU: 16-bit VOP3 instructions of three operands, products of 16 bits, sums of absolute differences, packing.

MI300 ISA guide, section "Vector ALU instructions". VOP3 instructions that gfx9 brought with op_sel (the three-operand
minimum, maximum and median of 16 bits) write one half of their destination and keep the other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.op import Op, Semantics, table
from search.gfx950.simulator.instructions.valu import vector_op as _op
from search.gfx950.simulator.instructions.valu_float import half, half_bits, larger, smaller
from search.gfx950.simulator.state import shadow as rules
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.state import LANES, WaveGroup

_WORD = np.uint32(0xFFFF)
_16 = np.uint32(16)
_U64 = np.uint64
_LANE = np.arange(LANES, dtype=np.uint64)
_BELOW = (np.uint64(1) << _LANE) - np.uint64(1)  # of each lane: the lanes before it


def _kept(operation: Callable[..., Array], read: Callable[[WaveGroup, int], Array]) -> Semantics:
    """D[15:0] = operation on low halves; D[31:16] stays."""

    def run(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
        bits = operation(read(g, a), read(g, b), read(g, c))
        np.bitwise_or(g.u[d] & ~_WORD, bits, out=g.u[d])

    return run


def _unsigned(g: WaveGroup, index: int) -> Array:
    return np.asarray((g.u[index] & _WORD).astype(np.int32))


def _signed(g: WaveGroup, index: int) -> Array:
    return np.asarray(g.u[index].astype(np.int16).astype(np.int32))


def _word_bits(value: Array) -> Array:
    return np.asarray(value.astype(np.uint32) & _WORD)


def _extreme(first: Callable[[Array, Array], Array], bits: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda x, y, z: bits(first(first(x, y), z))


def _median(low: Callable[..., Any], high: Callable[..., Any], bits: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda x, y, z: bits(high(low(x, y), low(high(x, y), z)))


def _half_median(x: Array, y: Array, z: Array) -> Array:
    """Median of f16 as the guide has it: the smallest of the three where one is a NaN."""
    middle = larger(smaller(x, y), smaller(larger(x, y), z))
    unordered = np.isnan(x) | np.isnan(y) | np.isnan(z)
    return half_bits(np.where(unordered, smaller(smaller(x, y), z), middle))


def v_mad_u32_u16(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D.u32 = S0.u16 * S1.u16 + S2.u32."""
    np.add((g.u[a] & _WORD) * (g.u[b] & _WORD), g.u[c], out=g.u[d])


def v_mad_i32_i16(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D.i32 = S0.i16 * S1.i16 + S2.i32."""
    np.add(_signed(g, a) * _signed(g, b), g.i[c], out=g.i[d])


def v_mul_hi_u32_u24(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = bits 47:32 of the product of the low 24 bits."""
    low = np.uint32(0xFFFFFF)
    np.copyto(g.u[d], ((g.u[a] & low).astype(_U64) * (g.u[b] & low)) >> _U64(32), casting="unsafe")


def v_mul_hi_i32_i24(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = the product of the sign-extended low 24 bits, shifted right by 32."""
    x, y = (((g.i[s] << np.int32(8)) >> np.int32(8)).astype(np.int64) for s in (a, b))
    np.copyto(g.i[d], (x * y) >> np.int64(32), casting="unsafe")


def v_mbcnt_lo_u32_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S1 + number of ones of S0 that belong to lanes 0 to 31 before this one."""
    np.add(_ones(g.u[a] & (_BELOW & _U64(0xFFFFFFFF)).astype(np.uint32)), g.u[b], out=g.u[d])


def v_mbcnt_hi_u32_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S1 + number of ones of S0 that belong to lanes 32 to 63 before this one."""
    np.add(_ones(g.u[a] & (_BELOW >> _U64(32)).astype(np.uint32)), g.u[b], out=g.u[d])


def _ones(value: Array) -> Array:
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(*value.shape, 4)
    return np.asarray(np.unpackbits(raw, axis=-1).sum(axis=-1, dtype=np.uint32))


def v_sad_u32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = |S0 - S1| + S2, unsigned."""
    x, y = g.u[a], g.u[b]
    np.add(np.maximum(x, y) - np.minimum(x, y), g.u[c], out=g.u[d])


def _difference(width: int, shift: int = 0, masked: bool = False) -> Semantics:
    """D = sum of |S0 - S1| over fields of ``width`` bits, shifted, plus S2; masked: where the field of S1 is not 0."""

    def run(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
        total: Array = np.zeros((1, 1), np.uint32)
        mask = np.uint32((1 << width) - 1)
        for place in range(0, 32, width):
            x, y = ((g.u[s] >> np.uint32(place)) & mask for s in (a, b))
            distance = np.maximum(x, y) - np.minimum(x, y)
            total = total + (np.where(y != 0, distance, np.uint32(0)) if masked else distance)
        np.add(total << np.uint32(shift), g.u[c], out=g.u[d])

    return run


def v_lerp_u8(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """Each byte of D = (S0 + S1 + bit 0 of S2) >> 1."""
    result: Array = np.zeros((1, 1), np.uint32)
    for place in (np.uint32(shift) for shift in range(0, 32, 8)):
        x, y = ((g.u[s] >> place) & np.uint32(0xFF) for s in (a, b))
        result = result | ((x + y + ((g.u[c] >> place) & np.uint32(1))) >> np.uint32(1)) << place
    g.u[d][...] = result


def v_ffbh_i32(g: WaveGroup, d: int, a: int) -> None:
    """D = number of bits from the top that equal the sign, -1 where all do."""
    value = g.i[a]
    different = np.where(value < 0, ~value, value)
    g.i[d][...] = np.where(different == 0, -1, 32 - np.frexp(different.astype(np.float64))[1])


def _packed_words(low: int, high: int, signed: bool) -> Semantics:
    """D = S1 << 16 | S0, each clamped to 16 bits."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        rows = g.i if signed else g.u
        x, y = (np.clip(rows[s].astype(np.int64), low, high).astype(np.uint32) & _WORD for s in (a, b))
        g.u[d][...] = x | (y << _16)

    return run


def v_cvt_pk_f16_f32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = f16(S1) << 16 | f16(S0), rounded to nearest even."""
    g.u[d][...] = half_bits(g.f[a]) | (half_bits(g.f[b]) << _16)


def v_pack_b32_f16(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S1[15:0] << 16 | S0[15:0]; op_sel chooses the halves."""
    g.u[d][...] = (g.u[a] & _WORD) | (g.u[b] << _16)


def v_cvt_pk_u8_f32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = S2 with byte S1[1:0] replaced by S0 as an integer, rounded to nearest even and clamped to 0 … 255."""
    value = np.clip(np.rint(np.nan_to_num(g.f[a], nan=0.0)), 0, 255).astype(np.uint32)
    place = (g.u[b] & np.uint32(3)) << np.uint32(3)
    g.u[d][...] = (g.u[c] & ~(np.uint32(0xFF) << place)) | (value << place)


def _kept_table() -> list[Op]:
    kinds: dict[str, tuple[Any, Any, Any, Any]] = {
        "u16": (_unsigned, np.minimum, np.maximum, _word_bits), "i16": (_signed, np.minimum, np.maximum, _word_bits),
        "f16": (half, smaller, larger, half_bits),
    }  # fmt: skip
    ops = []
    for kind, (read, low, high, bits) in kinds.items():
        median = _half_median if kind == "f16" else _median(low, high, bits)
        for name, operation in (("min3", _extreme(low, bits)), ("max3", _extreme(high, bits)), ("med3", median)):
            source = f"{kind} {kind} {kind}"
            ops.append(_op(f"v_{name}_{kind}", _kept(operation, read), kind, source, preserve=0xFFFF0000,
                           shadow=rules.low_half(lambda values, shadows: rules.any_bit(shadows))))  # fmt: skip
    return ops


OPS = table(
    [
        *_kept_table(),
        _op("v_mad_u32_u16", v_mad_u32_u16, "u32", "u16 u16 u32"),
        _op("v_mad_i32_i16", v_mad_i32_i16, "i32", "i16 i16 i32"),
        _op("v_mul_hi_u32_u24", v_mul_hi_u32_u24, "u32", "u32 u32"),
        _op("v_mul_hi_i32_i24", v_mul_hi_i32_i24, "i32", "i32 i32"),
        _op("v_mbcnt_lo_u32_b32", v_mbcnt_lo_u32_b32, "u32", "u32 u32"),
        _op("v_mbcnt_hi_u32_b32", v_mbcnt_hi_u32_b32, "u32", "u32 u32"),
        _op("v_sad_u32", v_sad_u32, "u32", "u32 u32 u32"),
        _op("v_sad_u16", _difference(16), "u32", "u32 u32 u32"),
        _op("v_sad_u8", _difference(8), "u32", "u32 u32 u32"),
        _op("v_sad_hi_u8", _difference(8, 16), "u32", "u32 u32 u32"),
        _op("v_msad_u8", _difference(8, masked=True), "u32", "u32 u32 u32"),
        _op("v_lerp_u8", v_lerp_u8, "u32", "u32 u32 u32"),
        _op("v_ffbh_i32", v_ffbh_i32, "i32", "u32"),
        _op("v_cvt_pk_i16_i32", _packed_words(-0x8000, 0x7FFF, True), "u32", "i32 i32"),
        _op("v_cvt_pk_u16_u32", _packed_words(0, 0xFFFF, False), "u32", "u32 u32"),
        _op("v_cvt_pk_f16_f32", v_cvt_pk_f16_f32, "u32", "f32 f32"),
        _op("v_cvt_pk_u8_f32", v_cvt_pk_u8_f32, "u32", "f32 u32 u32"),
        _op("v_pack_b32_f16", v_pack_b32_f16, "u32", "f16 f16"),
    ]
)
