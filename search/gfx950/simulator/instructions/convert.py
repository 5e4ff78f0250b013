"""Conversions: integers, f16, bf16, f64, FP8 and the scaled FP4 instructions of gfx950.

MI300 ISA guide, section "VOP1 instructions"; OCP Microscaling Formats v1.0 for E2M1 and E8M0; LLVM for
gfx950's scaled conversions (``V_CVT_SCALEF32_*``): only the exponent field of the scale counts, it is an E8M0 byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from search.gfx950.simulator.decode.modifiers import Modifiers
from search.gfx950.simulator.decode.op import Op, Semantics, table
from search.gfx950.simulator.instructions.valu_float import double, half, half_bits
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.shadow import pack_halves
from search.gfx950.simulator.state.state import WaveGroup

_WORD = np.uint32(0xFFFF)
_16 = np.uint32(16)
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float64)
E2M1_SIGNED = np.concatenate([E2M1, -E2M1])


def _e2m1_codes() -> Array:
    """E2M1 code by (sign, exponent, two mantissa bits, sticky): all that round-to-nearest-even needs."""
    key = np.arange(4096, dtype=np.uint32)
    leading = (key >> np.uint32(1)) << np.uint32(21)
    with np.errstate(invalid="ignore"):
        magnitude = np.abs((leading | (key & np.uint32(1))).view(np.float32).astype(np.float64))
    middles = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    below = np.searchsorted(middles, magnitude, "left")
    tie = below != np.searchsorted(middles, magnitude, "right")
    code = below + (tie & (below % 2 == 1))
    code = np.where(np.isnan(magnitude), 7, code)  # E2M1 has no NaN; the sign is kept
    return np.asarray((code + 8 * (key >> np.uint32(11))).astype(np.uint32))


_E2M1_CODES = _e2m1_codes()
_E8M0 = 2.0 ** (np.arange(256) - 127.0)
_E8M0_F32 = np.where(np.arange(256) == 255, np.nan, _E8M0).astype(np.float32)
_E8M0_INVERSE = (1.0 / _E8M0).astype(np.float32)


def e2m1_codes(value: Array, scale_bits: Array) -> Array:
    """E2M1 codes of float32 ``value`` / 2^(scale exponent - 127): round to nearest even, saturate to 6."""
    exponent = (scale_bits >> np.uint32(23)) & np.uint32(0xFF)
    bits = (value * _E8M0_INVERSE.take(exponent)).view(np.uint32)
    sticky = (bits & np.uint32(0x1FFFFF)) != 0
    return np.asarray(_E2M1_CODES.take(((bits >> np.uint32(21)) << np.uint32(1)) | sticky))


def bf16_bits(value: Array) -> Array:
    """float32 values rounded to nearest even bf16, as uint32 with a zero high half; NaN stays a quiet NaN."""
    bits = value.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> _16) & np.uint32(1))) >> _16
    nan = np.isnan(value)
    if nan.any():
        rounded = np.where(nan, (bits >> _16) | np.uint32(0x40), rounded)
    return np.asarray(rounded)


def bf16_value(word: Array) -> Array:
    """float32 of the bf16 in the low half of uint32 ``word``."""
    return np.asarray((word << _16).view(np.float32))


def _to_float(source: str) -> Semantics:
    """D.f32 = S0 as an integer, rounded to nearest even."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        g.f[d][...] = (g.i[a] if source == "i32" else g.u[a]).astype(np.float32)

    return run


def _ubyte(number: int) -> Semantics:
    """D.f32 = byte ``number`` of S0."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        g.f[d][...] = ((g.u[a] >> np.uint32(8 * number)) & np.uint32(0xFF)).astype(np.float32)

    return run


def _truncated(value: Array, low: float, high: float) -> Array:
    return np.asarray(np.clip(np.where(np.isnan(value), 0.0, np.trunc(value.astype(np.float64))), low, high))


def v_cvt_u32_f32(g: WaveGroup, d: int, a: int) -> None:
    """D.u32 = S0 toward zero; out of range saturates, NaN gives 0."""
    np.copyto(g.u[d], _truncated(g.f[a], 0.0, 4294967295.0), casting="unsafe")


def v_cvt_i32_f32(g: WaveGroup, d: int, a: int) -> None:
    """D.i32 = S0 toward zero; out of range saturates, NaN gives 0."""
    np.copyto(g.i[d], _truncated(g.f[a], -2147483648.0, 2147483647.0), casting="unsafe")


def v_cvt_rpi_i32_f32(g: WaveGroup, d: int, a: int) -> None:
    """D.i32 = floor(S0 + 0.5)."""
    value = np.floor(g.f[a].astype(np.float64) + 0.5)
    np.copyto(g.i[d], _truncated(value, -2147483648.0, 2147483647.0), casting="unsafe")


def v_cvt_flr_i32_f32(g: WaveGroup, d: int, a: int) -> None:
    """D.i32 = floor(S0)."""
    np.copyto(g.i[d], _truncated(np.floor(g.f[a]), -2147483648.0, 2147483647.0), casting="unsafe")


def v_cvt_f16_f32(g: WaveGroup, d: int, a: int) -> None:
    """D.f16 = S0, round to nearest even; the high half becomes 0."""
    g.u[d][...] = half_bits(g.f[a])


def v_cvt_f32_f16(g: WaveGroup, d: int, a: int) -> None:
    """D.f32 = S0.f16."""
    g.f[d][...] = half(g, a)


def v_cvt_f32_bf16(g: WaveGroup, d: int, a: int) -> None:
    """D.f32 = S0.bf16."""
    g.f[d][...] = bf16_value(g.u[a])


def v_cvt_f16_u16(g: WaveGroup, d: int, a: int) -> None:
    """D.f16 = S0.u16."""
    g.u[d][...] = half_bits((g.u[a] & _WORD).astype(np.float64))


def v_cvt_f16_i16(g: WaveGroup, d: int, a: int) -> None:
    """D.f16 = S0.i16."""
    g.u[d][...] = half_bits(g.u[a].astype(np.int16).astype(np.float64))


def v_cvt_u16_f16(g: WaveGroup, d: int, a: int) -> None:
    """D.u16 = S0.f16 toward zero, saturated."""
    np.copyto(g.u[d], _truncated(half(g, a), 0.0, 65535.0), casting="unsafe")


def v_cvt_i16_f16(g: WaveGroup, d: int, a: int) -> None:
    """D.i16 = S0.f16 toward zero, saturated; the high half becomes 0."""
    g.u[d][...] = _truncated(half(g, a), -32768.0, 32767.0).astype(np.int16).view(np.uint16)


def v_cvt_pkrtz_f16_f32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = {f16(S1), f16(S0)} rounded toward zero."""
    np.bitwise_or(_toward_zero(g.f[a]), _toward_zero(g.f[b]) << _16, out=g.u[d])


def _toward_zero(value: Array) -> Array:
    nearest = value.astype(np.float16)
    too_far = np.abs(nearest.astype(np.float32)) > np.abs(value)
    bits = nearest.view(np.uint16)
    infinite = np.isinf(value)
    return np.where(too_far & ~infinite, bits - np.uint16(1), bits).astype(np.uint32)


def v_cvt_pk_bf16_f32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = {bf16(S1), bf16(S0)}, round to nearest even."""
    np.bitwise_or(bf16_bits(g.f[a]), bf16_bits(g.f[b]) << _16, out=g.u[d])


def v_cvt_f32_f64(g: WaveGroup, d: int, a: int) -> None:
    """D.f32 = S0.f64."""
    g.f[d][...] = double(g, a)


def _to_double(source: str) -> Semantics:
    """D.f64 = S0."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        rows = {"f32": g.f, "i32": g.i, "u32": g.u}[source]
        g.write64(d, rows[a].astype(np.float64).view(np.uint64))

    return run


def v_cvt_i32_f64(g: WaveGroup, d: int, a: int) -> None:
    """D.i32 = S0.f64 toward zero, saturated."""
    np.copyto(g.i[d], _truncated(double(g, a), -2147483648.0, 2147483647.0), casting="unsafe")


def v_cvt_u32_f64(g: WaveGroup, d: int, a: int) -> None:
    """D.u32 = S0.f64 toward zero, saturated."""
    np.copyto(g.u[d], _truncated(double(g, a), 0.0, 4294967295.0), casting="unsafe")


def _insert(g: WaveGroup, d: int, value: Array, shift: int, mask: int) -> None:
    keep = np.uint32(~(mask << shift) & 0xFFFFFFFF)
    np.bitwise_or(g.u[d] & keep, value << np.uint32(shift), out=g.u[d])


def v_cvt_scalef32_pk_fp4_f32(g: WaveGroup, d: int, a: int, b: int, scale: int, *, mods: Modifiers) -> None:
    """Byte op_sel[2] + 2*op_sel[3] of D = E2M1 of S0 (low nibble) and S1, divided by the scale; other bytes stay."""
    scale_bits = g.u[scale]
    pair = e2m1_codes(g.f[a], scale_bits) | (e2m1_codes(g.f[b], scale_bits) << np.uint32(4))
    _insert(g, d, pair, 8 * (mods.op_sel[2] + 2 * mods.op_sel[3]), 0xFF)


def _fp4_from_packed(source: str) -> Semantics:
    """As V_CVT_SCALEF32_PK_FP4_F32 with both values in one register, as f16 or bf16."""

    def run(g: WaveGroup, d: int, a: int, scale: int, *, mods: Modifiers) -> None:
        word, scale_bits = g.u[a], g.u[scale]
        if source == "bf16":
            low, high = bf16_value(word), (word & np.uint32(0xFFFF0000)).view(np.float32)
        else:
            halves = [(word >> np.uint32(shift)).astype(np.uint16).view(np.float16) for shift in (0, 16)]
            low, high = (half.astype(np.float32) for half in halves)
        pair = e2m1_codes(low, scale_bits) | (e2m1_codes(high, scale_bits) << np.uint32(4))
        _insert(g, d, pair, 8 * (mods.op_sel[2] + 2 * mods.op_sel[3]), 0xFF)

    return run


def _fp4_values(g: WaveGroup, a: int, scale: int, mods: Modifiers) -> tuple[Array, Array]:
    byte = (g.u[a] >> np.uint32(8 * (mods.op_sel[0] + 2 * mods.op_sel[1]))) & np.uint32(0xFF)
    factor = _E8M0_F32.take((g.u[scale] >> np.uint32(23)) & np.uint32(0xFF)).astype(np.float64)
    low, high = E2M1_SIGNED.take(byte & np.uint32(15)) * factor, E2M1_SIGNED.take(byte >> np.uint32(4)) * factor
    return low.astype(np.float32), high.astype(np.float32)


def _from_fp4(target: str) -> Semantics:
    """D = both E2M1 values of byte op_sel[0] + 2*op_sel[1] of S0, times the scale."""

    def run(g: WaveGroup, d: int, a: int, scale: int, *, mods: Modifiers) -> None:
        low, high = _fp4_values(g, a, scale, mods)
        if target == "f32":
            g.f[d][...] = low
            g.f[d + 1][...] = high
        else:
            bits = bf16_bits if target == "bf16" else half_bits
            np.bitwise_or(bits(low), bits(high) << _16, out=g.u[d])

    return run


def _op(name: str, semantics: Semantics, dst: str, src: str, **more: Any) -> Op:
    return Op(name, semantics, tuple(dst.split()), tuple(src.split()), **more)


OPS = table(
    [
        _op("v_cvt_f32_u32", _to_float("u32"), "f32", "u32"),
        _op("v_cvt_f32_i32", _to_float("i32"), "f32", "i32"),
        *(_op(f"v_cvt_f32_ubyte{n}", _ubyte(n), "f32", "u32") for n in range(4)),
        _op("v_cvt_u32_f32", v_cvt_u32_f32, "u32", "f32"),
        _op("v_cvt_i32_f32", v_cvt_i32_f32, "i32", "f32"),
        _op("v_cvt_rpi_i32_f32", v_cvt_rpi_i32_f32, "i32", "f32"),
        _op("v_cvt_flr_i32_f32", v_cvt_flr_i32_f32, "i32", "f32"),
        _op("v_cvt_f16_f32", v_cvt_f16_f32, "f16", "f32"),
        _op("v_cvt_f32_f16", v_cvt_f32_f16, "f32", "f16"),
        _op("v_cvt_f32_bf16", v_cvt_f32_bf16, "f32", "bf16"),
        _op("v_cvt_f16_u16", v_cvt_f16_u16, "f16", "u16"),
        _op("v_cvt_f16_i16", v_cvt_f16_i16, "f16", "i16"),
        _op("v_cvt_u16_f16", v_cvt_u16_f16, "u16", "f16"),
        _op("v_cvt_i16_f16", v_cvt_i16_f16, "u16", "f16"),
        _op("v_cvt_pkrtz_f16_f32", v_cvt_pkrtz_f16_f32, "u32", "f32 f32", shadow=pack_halves),
        _op("v_cvt_pk_bf16_f32", v_cvt_pk_bf16_f32, "u32", "f32 f32", shadow=pack_halves),
        _op("v_cvt_f32_f64", v_cvt_f32_f64, "f32", "f64"),
        _op("v_cvt_f64_f32", _to_double("f32"), "f64", "f32"),
        _op("v_cvt_f64_i32", _to_double("i32"), "f64", "i32"),
        _op("v_cvt_f64_u32", _to_double("u32"), "f64", "u32"),
        _op("v_cvt_i32_f64", v_cvt_i32_f64, "i32", "f64"),
        _op("v_cvt_u32_f64", v_cvt_u32_f64, "u32", "f64"),
        _op("v_cvt_scalef32_pk_fp4_f32", v_cvt_scalef32_pk_fp4_f32, "u32", "f32 f32 u32", byte_destination=True),
        _op("v_cvt_scalef32_pk_fp4_f16", _fp4_from_packed("f16"), "u32", "u32 u32", byte_destination=True),
        _op("v_cvt_scalef32_pk_fp4_bf16", _fp4_from_packed("bf16"), "u32", "u32 u32", byte_destination=True),
        _op("v_cvt_scalef32_pk_f32_fp4", _from_fp4("f32"), "pkf32", "u32 u32", takes_modifiers=True),
        _op("v_cvt_scalef32_pk_f16_fp4", _from_fp4("f16"), "u32", "u32 u32", takes_modifiers=True),
        _op("v_cvt_scalef32_pk_bf16_fp4", _from_fp4("bf16"), "u32", "u32 u32", takes_modifiers=True),
    ]
)
