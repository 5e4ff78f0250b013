"""Vector ALU on floats: f32, f16, f64 arithmetic, rounding and transcendental instructions.

MI300 ISA guide, section "Vector ALU instructions". Sums and products are IEEE round-to-nearest-even with denormals (the
mode that the compiler sets, ``.amdhsa_float_denorm_mode_32 3``). Transcendental instructions are specified to 1 ulp and
flush denormals; here they are correctly rounded, so the last bit may differ from the hardware's. Results of f16 have a
high half of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.op import InstructionClass, Op, table
from search.gfx950.simulator.decode.values import mask_op, rows_op, value_op
from search.gfx950.simulator.state.arrays import Array

_SMALLEST_NORMAL = np.float32(2.0**-126)


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


def largest(x: Array, y: Array, z: Array) -> Array:
    """``larger`` of three."""
    return larger(larger(x, y), z)


def smallest(x: Array, y: Array, z: Array) -> Array:
    """``smaller`` of three."""
    return smaller(smaller(x, y), z)


def median(x: Array, y: Array, z: Array) -> Array:
    """The middle one of three floats; the smallest if one is NaN."""
    middle = larger(smaller(x, y), smaller(larger(x, y), z))
    some_nan = np.isnan(x) | np.isnan(y) | np.isnan(z)
    return np.where(some_nan, smallest(x, y, z), middle)


def _flushed(value: Array) -> Array:
    """float32 denormals as zero of the same sign."""
    return np.asarray(np.where(np.abs(value) < _SMALLEST_NORMAL, np.copysign(np.float32(0), value), value))


def _legacy_product(x: Array, y: Array) -> Array:
    """S0 * S1, with 0 * anything = 0."""
    return np.where((x == 0) | (y == 0), np.float32(0), x * y)


def _fraction(value: Array) -> Array:
    below_one = np.float32(np.nextafter(np.float32(1), np.float32(0)))
    return np.asarray(np.minimum(value - np.floor(value), below_one))


def _scaled(value: Array, exponent: Array) -> Array:
    """S0 * 2^S1."""
    return np.asarray(np.ldexp(value.astype(np.float64), np.clip(exponent, -400, 400)))


def _fma16(x: Array, y: Array, z: Array) -> Array:
    return x.astype(np.float64) * y + z


def _quotient(quotient: Array, low: Array, high: Array) -> Array:
    """V_DIV_FIXUP: quotient S0 of S2 / S1 with the special cases of IEEE division."""
    sign = np.where(np.signbit(low) ^ np.signbit(high), np.float32(-1), np.float32(1))
    special = ~np.isfinite(low) | ~np.isfinite(high) | (low == 0) | (high == 0)
    return np.where(special, high / low, np.abs(quotient) * sign)


def _unscaled_fma(x: Array, y: Array, z: Array, scaled: Array) -> Array:
    """V_DIV_FMAS: S0 * S1 + S2; where VCC is set times 2^64 if |S2| >= 2, else 2^-64 (undoes V_DIV_SCALE)."""
    result = fma32(x, y, z)
    factor = np.where(np.abs(z) >= 2.0, np.float32(2.0**64), np.float32(2.0**-64))
    return np.where(scaled, result * factor, result)


def _division_scale(value: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """V_DIV_SCALE: S0 scaled so that S2 / S1 does not under- or overflow on the way; whether that must be undone.

    S0 is the denominator S1 or the numerator S2. Exponent ranges: MI300 ISA guide, V_DIV_SCALE_F32.
    """
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
    return result, ~invalid & (far | (~denormal_low & tiny_quotient))


def _exponent(value: Array) -> Array:
    return np.asarray((value.view(np.int32) >> np.int32(23)) & np.int32(0xFF))


def _reciprocal(value: Array) -> Array:
    return np.asarray(1.0 / value)


def _turns(operation: Callable[[Array], Any]) -> Callable[[Array], Any]:
    """V_SIN and V_COS take their argument in turns."""
    return lambda value: operation(np.remainder(value, 1.0) * (2.0 * np.pi))


_TRANSCENDENTAL: dict[str, Callable[[Array], Any]] = {
    "exp": np.exp2, "log": np.log2, "rcp": _reciprocal, "rcp_iflag": _reciprocal, "sqrt": np.sqrt,
    "rsq": lambda value: 1.0 / np.sqrt(value), "sin": _turns(np.sin), "cos": _turns(np.cos),
}  # fmt: skip


def _rounded(operation: Callable[[Array], Any]) -> Callable[[Array], Array]:
    """``operation`` computed in float64 and rounded to float32, denormals flushed on both sides."""
    return lambda x: _flushed(np.asarray(operation(_flushed(x).astype(np.float64))).astype(np.float32))


def _transcendentals() -> Iterator[Op]:
    kind = InstructionClass.TRANSCENDENTAL
    for name, operation in _TRANSCENDENTAL.items():
        yield value_op(f"v_{name}_f32", _rounded(operation), "f32", "f32", kind=kind)
    for name in ("rcp", "sqrt", "exp"):
        yield value_op(f"v_{name}_f16", _TRANSCENDENTAL[name], "f16", "f16", kind=kind)


OPS = table(
    [
        rows_op("v_add_f32", np.add, "f32 f32"),
        rows_op("v_sub_f32", np.subtract, "f32 f32"),
        rows_op("v_subrev_f32", lambda x, y, out: np.subtract(y, x, out=out), "f32 f32"),
        rows_op("v_mul_f32", np.multiply, "f32 f32"),
        value_op("v_mul_legacy_f32", _legacy_product, "f32", "f32 f32"),
        value_op("v_max_f32", larger, "f32", "f32 f32"),
        value_op("v_min_f32", smaller, "f32", "f32 f32"),
        value_op("v_fma_f32", fma32, "f32", "f32 f32 f32"),
        value_op("v_fmac_f32", fma32, "f32", "f32 f32", implicit="dst"),
        value_op("v_fmamk_f32", fma32, "f32", "f32 f32 f32"),
        value_op("v_fmaak_f32", fma32, "f32", "f32 f32 f32"),
        value_op("v_max3_f32", largest, "f32", "f32 f32 f32"),
        value_op("v_min3_f32", smallest, "f32", "f32 f32 f32"),
        value_op("v_med3_f32", median, "f32", "f32 f32 f32"),
        # NaN if one is NaN (IEEE 754-2019 maximum and minimum, new in gfx950).
        rows_op("v_maximum3_f32", lambda x, y, z, out: np.maximum(np.maximum(x, y), z, out=out), "f32 f32 f32"),
        rows_op("v_minimum3_f32", lambda x, y, z, out: np.minimum(np.minimum(x, y), z, out=out), "f32 f32 f32"),
        rows_op("v_floor_f32", np.floor, "f32"),
        rows_op("v_ceil_f32", np.ceil, "f32"),
        rows_op("v_trunc_f32", np.trunc, "f32"),
        rows_op("v_rndne_f32", np.rint, "f32"),
        value_op("v_fract_f32", _fraction, "f32", "f32"),
        value_op("v_ldexp_f32", _scaled, "f32", "f32 i32"),
        value_op("v_frexp_exp_i32_f32", lambda x: np.where(np.isfinite(x), np.frexp(x)[1], 0), "i32", "f32"),
        value_op("v_frexp_mant_f32", lambda x: np.where(np.isfinite(x), np.frexp(x)[0], x), "f32", "f32"),
        value_op("v_div_fixup_f32", _quotient, "f32", "f32 f32 f32"),
        value_op("v_div_fmas_f32", _unscaled_fma, "f32", "f32 f32 f32", implicit="vcc"),
        mask_op("v_div_scale_f32", _division_scale, "f32", "f32 f32 f32"),
        value_op("v_add_f16", np.add, "f16", "f16 f16"),
        value_op("v_sub_f16", np.subtract, "f16", "f16 f16"),
        value_op("v_mul_f16", np.multiply, "f16", "f16 f16"),
        value_op("v_max_f16", larger, "f16", "f16 f16"),
        value_op("v_min_f16", smaller, "f16", "f16 f16"),
        value_op("v_fma_f16", _fma16, "f16", "f16 f16 f16"),
        value_op("v_add_f64", np.add, "f64", "f64 f64"),
        value_op("v_mul_f64", np.multiply, "f64", "f64 f64"),
        value_op("v_max_f64", larger, "f64", "f64 f64"),
        value_op("v_min_f64", smaller, "f64", "f64 f64"),
        *_transcendentals(),
    ]
)
