"""Vector ALU on floats: f32, f16, f64 arithmetic, rounding and transcendental instructions.

MI300 ISA guide, section "Vector ALU instructions". Sums and products are IEEE round-to-nearest-even with denormals (the
mode that the compiler sets, ``.amdhsa_float_denorm_mode_32 3``). Transcendental instructions are specified to 1 ulp and
flush denormals; here they are correctly rounded, so the last bit may differ from the hardware's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.op import InstructionClass, Op, Semantics, table
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.state import WaveGroup

_SMALLEST_NORMAL = np.float32(2.0**-126)


def half(g: WaveGroup, index: int) -> Array:
    """Low 16 bits of a row as float32 values of the f16 there."""
    return np.asarray((g.u[index] & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16).astype(np.float32))


def half_bits(value: Array) -> Array:
    """Float values rounded to f16, as uint32 with a zero high half."""
    return value.astype(np.float16).view(np.uint16).astype(np.uint32)


def double(g: WaveGroup, index: int) -> Array:
    """Two registers as float64."""
    return np.ascontiguousarray(g.read64(index)).view(np.float64)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """float32 a * b + c with one rounding.

    The float64 product is exact; the sum is rounded to odd (its lost part goes into the last bit), after which
    rounding to float32 is correct. Source: Boldo and Melquiond, "Emulation of FMA", 2008.
    """
    product = a.astype(np.float64) * b
    addend = np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    inexact = (lost != 0) & np.isfinite(total)
    if inexact.any():
        bits = total.view(np.int64)
        step = np.where((lost > 0) == (total > 0), 1, -1)
        total = np.where(inexact & ((bits & 1) == 0), bits + step, bits).view(np.float64)
    return total.astype(np.float32)


def larger(x: Array, y: Array) -> Array:
    """IEEE maxNum of floats; +0 is larger than -0."""
    result = np.fmax(x, y)
    if not result.all():
        result = np.where((x == 0) & (y == 0), x + y, result)
    return np.asarray(result)


def smaller(x: Array, y: Array) -> Array:
    """IEEE minNum of floats; -0 is smaller than +0."""
    result = np.fmin(x, y)
    if not result.all():
        result = np.where((x == 0) & (y == 0), -(-x - y), result)
    return np.asarray(result)


def flush(value: Array) -> Array:
    """float32 denormals to zero of the same sign."""
    return np.asarray(np.where(np.abs(value) < _SMALLEST_NORMAL, np.copysign(np.float32(0), value), value))


def _binary(operation: Callable[..., Any]) -> Semantics:
    """D = operation(S0, S1), f32."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        operation(g.f[a], g.f[b], out=g.f[d])

    return run


def _assigned(operation: Callable[[Array, Array], Array]) -> Semantics:
    """As ``_binary`` for an operation of several steps."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        g.f[d][...] = operation(g.f[a], g.f[b])

    return run


def v_subrev_f32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S1 - S0."""
    np.subtract(g.f[b], g.f[a], out=g.f[d])


def v_mul_legacy_f32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S0 * S1, with 0 * anything = 0."""
    x, y = g.f[a], g.f[b]
    g.f[d][...] = np.where((x == 0) | (y == 0), np.float32(0), x * y)


def v_fma_f32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = S0 * S1 + S2 with one rounding (V_FMA, V_FMAC, V_FMAMK, V_FMAAK)."""
    g.f[d][...] = fma32(g.f[a], g.f[b], g.f[c])


def v_max3_f32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = largest of three."""
    g.f[d][...] = larger(larger(g.f[a], g.f[b]), g.f[c])


def v_min3_f32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = smallest of three."""
    g.f[d][...] = smaller(smaller(g.f[a], g.f[b]), g.f[c])


def v_med3_f32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = median of three; the smallest if one is NaN."""
    x, y, z = g.f[a], g.f[b], g.f[c]
    median = larger(smaller(x, y), smaller(larger(x, y), z))
    some_nan = np.isnan(x) | np.isnan(y) | np.isnan(z)
    g.f[d][...] = np.where(some_nan, smaller(smaller(x, y), z), median)


def v_maximum3_f32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = largest of three; NaN if one is NaN (IEEE 754-2019 maximum, new in gfx950)."""
    np.maximum(np.maximum(g.f[a], g.f[b]), g.f[c], out=g.f[d])


def v_minimum3_f32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = smallest of three; NaN if one is NaN (IEEE 754-2019 minimum, new in gfx950)."""
    np.minimum(np.minimum(g.f[a], g.f[b]), g.f[c], out=g.f[d])


def _unary(operation: Callable[[Array], Any]) -> Semantics:
    """D = operation(S0), f32."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        g.f[d][...] = operation(g.f[a])

    return run


def _transcendental(operation: Callable[[Array], Any]) -> Semantics:
    """D = operation(S0) computed in float64 and rounded, denormals flushed on both sides."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        exact = np.asarray(operation(flush(g.f[a]).astype(np.float64)))
        g.f[d][...] = flush(exact.astype(np.float32))

    return run


def _turns(operation: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """V_SIN and V_COS take their argument in turns."""
    return lambda value: operation(np.remainder(value, 1.0) * (2.0 * np.pi))


def _fract(value: Array) -> Array:
    below_one = np.float32(np.nextafter(np.float32(1), np.float32(0)))
    return np.asarray(np.minimum(value - np.floor(value), below_one))


def v_ldexp_f32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S0 * 2^S1.i32."""
    exponent = np.clip(g.i[b], -400, 400)
    g.f[d][...] = np.ldexp(g.f[a].astype(np.float64), exponent).astype(np.float32)


def v_frexp_exp_i32_f32(g: WaveGroup, d: int, a: int) -> None:
    """D = exponent of S0 with a mantissa in [0.5, 1); 0 for 0, infinity and NaN."""
    value = g.f[a]
    g.i[d][...] = np.where(np.isfinite(value), np.frexp(value)[1], 0)


def v_frexp_mant_f32(g: WaveGroup, d: int, a: int) -> None:
    """D = mantissa of S0 in [0.5, 1); infinity and NaN stay."""
    value = g.f[a]
    g.f[d][...] = np.where(np.isfinite(value), np.frexp(value)[0], value)


def v_div_fixup_f32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = quotient S0 of S2 / S1 with the special cases of IEEE division."""
    quotient, low, high = g.f[a], g.f[b], g.f[c]
    sign = np.where(np.signbit(low) ^ np.signbit(high), np.float32(-1), np.float32(1))
    special = ~np.isfinite(low) | ~np.isfinite(high) | (low == 0) | (high == 0)
    g.f[d][...] = np.where(special, high / low, np.abs(quotient) * sign)


def v_div_fmas_f32(g: WaveGroup, d: int, a: int, b: int, c: int, scaled: int) -> None:
    """D = S0 * S1 + S2; where VCC is set times 2^64 if |S2| >= 2, else 2^-64 (undoes V_DIV_SCALE)."""
    result = fma32(g.f[a], g.f[b], g.f[c])
    factor = np.where(np.abs(g.f[c]) >= 2.0, np.float32(2.0**64), np.float32(2.0**-64))
    g.f[d][...] = np.where(g.read_mask(scaled), result * factor, result)


def v_div_scale_f32(g: WaveGroup, d: int, mask: int, a: int, b: int, c: int) -> None:
    """D = S0 scaled so that S2 / S1 does not under- or overflow on the way; mask = scaling must be undone.

    S0 is the denominator S1 or the numerator S2. Exponent ranges: MI300 ISA guide, V_DIV_SCALE_F32.
    """
    value, low, high = g.f[a], g.f[b], g.f[c]
    gap = _exponent(high) - _exponent(low)
    denormal_low = (np.abs(low) < _SMALLEST_NORMAL) & (low != 0)
    up, down = np.float32(2.0**64), np.float32(2.0**-64)
    is_low = value.view(np.uint32) == low.view(np.uint32)
    is_high = value.view(np.uint32) == high.view(np.uint32)
    invalid = (low == 0) | (high == 0)
    tiny_reciprocal = np.abs(low) > np.float32(2.0**126)
    tiny_quotient = np.abs(high / low) < _SMALLEST_NORMAL
    far = gap >= 96
    result = np.where(far & is_low, value * up, value)
    result = np.where(~far & denormal_low, value * up, result)
    result = np.where(~far & ~denormal_low & tiny_reciprocal & tiny_quotient & is_low, value * down, result)
    result = np.where(~far & ~denormal_low & ~tiny_reciprocal & tiny_quotient & is_high, value * up, result)
    result = np.where(invalid, np.float32(np.nan), result)
    g.f[d][...] = result
    g.write_mask(mask, ~invalid & (far | (~denormal_low & tiny_quotient)))


def _exponent(value: Array) -> Array:
    return np.asarray((value.view(np.int32) >> np.int32(23)) & np.int32(0xFF))


def _half_binary(operation: Callable[[Array, Array], Array]) -> Semantics:
    """D = operation(S0, S1) on f16; the high half becomes 0 (gfx9 VOP2)."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        g.u[d][...] = half_bits(operation(half(g, a), half(g, b)))

    return run


def v_fma_f16(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D[15:0] = S0 * S1 + S2, f16 with one rounding."""
    exact = half(g, a).astype(np.float64) * half(g, b) + half(g, c)
    g.u[d][...] = half_bits(exact)


def _half_unary(operation: Callable[[Array], Array]) -> Semantics:
    """D = operation(S0) on f16."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        g.u[d][...] = half_bits(operation(half(g, a)))

    return run


def _double_binary(operation: Callable[[Array, Array], Array]) -> Semantics:
    """D = operation(S0, S1), f64."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        result = np.ascontiguousarray(operation(double(g, a), double(g, b)))
        g.write64(d, result.view(np.uint64))

    return run


def _reciprocal(value: Array) -> Array:
    return np.asarray(1.0 / value)


def _reciprocal_root(value: Array) -> Array:
    return np.asarray(1.0 / np.sqrt(value))


def _op(name: str, semantics: Semantics, dst: str, src: str, **more: Any) -> Op:
    return Op(name, semantics, tuple(dst.split()), tuple(src.split()), **more)


def _slow(name: str, operation: Callable[[Array], Any]) -> Op:
    return _op(name, _transcendental(operation), "f32", "f32", kind=InstructionClass.TRANSCENDENTAL)


OPS = table(
    [
        _op("v_add_f32", _binary(np.add), "f32", "f32 f32"),
        _op("v_sub_f32", _binary(np.subtract), "f32", "f32 f32"),
        _op("v_subrev_f32", v_subrev_f32, "f32", "f32 f32"),
        _op("v_mul_f32", _binary(np.multiply), "f32", "f32 f32"),
        _op("v_mul_legacy_f32", v_mul_legacy_f32, "f32", "f32 f32"),
        _op("v_max_f32", _assigned(larger), "f32", "f32 f32"),
        _op("v_min_f32", _assigned(smaller), "f32", "f32 f32"),
        _op("v_fma_f32", v_fma_f32, "f32", "f32 f32 f32"),
        _op("v_fmac_f32", v_fma_f32, "f32", "f32 f32", implicit=("dst",)),
        _op("v_fmamk_f32", lambda g, d, a, k, c: v_fma_f32(g, d, a, k, c), "f32", "f32 f32 f32"),
        _op("v_fmaak_f32", v_fma_f32, "f32", "f32 f32 f32"),
        _op("v_max3_f32", v_max3_f32, "f32", "f32 f32 f32"),
        _op("v_min3_f32", v_min3_f32, "f32", "f32 f32 f32"),
        _op("v_med3_f32", v_med3_f32, "f32", "f32 f32 f32"),
        _op("v_maximum3_f32", v_maximum3_f32, "f32", "f32 f32 f32"),
        _op("v_minimum3_f32", v_minimum3_f32, "f32", "f32 f32 f32"),
        _op("v_floor_f32", _unary(np.floor), "f32", "f32"),
        _op("v_ceil_f32", _unary(np.ceil), "f32", "f32"),
        _op("v_trunc_f32", _unary(np.trunc), "f32", "f32"),
        _op("v_rndne_f32", _unary(np.rint), "f32", "f32"),
        _op("v_fract_f32", _unary(_fract), "f32", "f32"),
        _op("v_ldexp_f32", v_ldexp_f32, "f32", "f32 i32"),
        _op("v_frexp_exp_i32_f32", v_frexp_exp_i32_f32, "i32", "f32"),
        _op("v_frexp_mant_f32", v_frexp_mant_f32, "f32", "f32"),
        _op("v_div_fixup_f32", v_div_fixup_f32, "f32", "f32 f32 f32"),
        _op("v_div_fmas_f32", v_div_fmas_f32, "f32", "f32 f32 f32", implicit=("vcc",)),
        _op("v_div_scale_f32", v_div_scale_f32, "f32 mask", "f32 f32 f32"),
        _slow("v_exp_f32", np.exp2),
        _slow("v_log_f32", np.log2),
        _slow("v_rcp_f32", _reciprocal),
        _slow("v_rcp_iflag_f32", _reciprocal),
        _slow("v_rsq_f32", _reciprocal_root),
        _slow("v_sqrt_f32", np.sqrt),
        _slow("v_sin_f32", _turns(np.sin)),
        _slow("v_cos_f32", _turns(np.cos)),
        _op("v_add_f16", _half_binary(np.add), "f16", "f16 f16"),
        _op("v_sub_f16", _half_binary(np.subtract), "f16", "f16 f16"),
        _op("v_mul_f16", _half_binary(np.multiply), "f16", "f16 f16"),
        _op("v_max_f16", _half_binary(larger), "f16", "f16 f16"),
        _op("v_min_f16", _half_binary(smaller), "f16", "f16 f16"),
        _op("v_fma_f16", v_fma_f16, "f16", "f16 f16 f16"),
        _op("v_rcp_f16", _half_unary(_reciprocal), "f16", "f16", kind=InstructionClass.TRANSCENDENTAL),
        _op("v_sqrt_f16", _half_unary(np.sqrt), "f16", "f16", kind=InstructionClass.TRANSCENDENTAL),
        _op("v_exp_f16", _half_unary(np.exp2), "f16", "f16", kind=InstructionClass.TRANSCENDENTAL),
        _op("v_add_f64", _double_binary(np.add), "f64", "f64 f64"),
        _op("v_mul_f64", _double_binary(np.multiply), "f64", "f64 f64"),
        _op("v_max_f64", _double_binary(larger), "f64", "f64 f64"),
        _op("v_min_f64", _double_binary(smaller), "f64", "f64 f64"),
    ]
)
