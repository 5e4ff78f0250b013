"""Packed and 16-bit arithmetic: VOP3P, the 16-bit VOP2/VOP3 integer instructions, V_BITOP3.

MI300 ISA guide, section "Packed math". ``mods.op_sel`` chooses each operand's half (or register of a pair) for the low
result, ``mods.op_sel_hi`` for the high one. 16-bit VOP1/VOP2 instructions of gfx9 write 0 to the high half.
Source of V_BITOP3 (new in gfx950): LLVM ``AMDGPUUsage``/``VOP3Instructions.td``: a truth table of three inputs whose
index is S0<<2 | S1<<1 | S2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.modifiers import Modifiers
from search.gfx950.simulator.decode.op import Op, Semantics, table
from search.gfx950.simulator.instructions.valu_float import fma32, larger, smaller
from search.gfx950.simulator.state import shadow as rules
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.state import WaveGroup

_WORD = np.uint32(0xFFFF)
_16 = np.uint32(16)


def _halves(g: WaveGroup, index: int, high: int, dtype: Any) -> Array:
    word = g.u[index] >> _16 if high else g.u[index] & _WORD
    return np.asarray(word.astype(np.uint16).view(dtype))


def _packed16(operation: Callable[..., Any], dtype: Any, wide: Any, clamp: bool = False) -> Semantics:
    """Both halves of D = operation on halves of the sources, computed in ``wide`` and cut (or clamped) to ``dtype``."""

    def run(g: WaveGroup, d: int, *sources: int, mods: Modifiers) -> None:
        results = []
        for selects, negate in ((mods.op_sel, mods.neg_lo), (mods.op_sel_hi, mods.neg_hi)):
            values = []
            for position, source in enumerate(sources):
                value = _halves(g, source, selects[position], dtype).astype(wide)
                values.append(-value if negate[position] else value)
            result = np.asarray(operation(*values))
            if clamp:
                bounds = np.iinfo(dtype)
                result = np.clip(result, bounds.min, bounds.max)
            results.append(result.astype(dtype).view(np.uint16).astype(np.uint32))
        np.bitwise_or(results[0], results[1] << _16, out=g.u[d])

    return run


def _pair_f32(operation: Callable[..., Any]) -> Semantics:
    """Both registers of D = operation on registers of the source pairs, f32."""

    def run(g: WaveGroup, d: int, *sources: int, mods: Modifiers) -> None:
        results = []
        for selects, negate in ((mods.op_sel, mods.neg_lo), (mods.op_sel_hi, mods.neg_hi)):
            values = []
            for position, source in enumerate(sources):
                value = g.f[source + selects[position]]
                values.append(-value if negate[position] else value)
            results.append(operation(*values))
        g.f[d][...] = results[0]
        g.f[d + 1][...] = results[1]

    return run


def v_pk_mov_b32(g: WaveGroup, d: int, a: int, b: int, *, mods: Modifiers) -> None:
    """D.lo = register op_sel[0] of S0; D.hi = register op_sel[1] of S1."""
    low, high = g.u[a + mods.op_sel[0]].copy(), g.u[b + mods.op_sel[1]]
    g.u[d + 1][...] = high
    g.u[d][...] = low


def _word_op(operation: Callable[..., Any], dtype: Any, wide: Any, clamp: bool = False) -> Semantics:
    """D[15:0] = operation on low halves; D[31:16] = 0."""

    def run(g: WaveGroup, d: int, *sources: int) -> None:
        result = np.asarray(operation(*(_halves(g, source, 0, dtype).astype(wide) for source in sources)))
        if clamp:
            bounds = np.iinfo(dtype)
            result = np.clip(result, bounds.min, bounds.max)
        g.u[d][...] = result.astype(dtype).view(np.uint16)

    return run


def _shifted_left(count: Array, value: Array) -> Array:
    return np.asarray(value << (count & 15))


def _shifted_right(count: Array, value: Array) -> Array:
    return np.asarray(value >> (count & 15))


def _multiply_add(x: Array, y: Array, z: Array) -> Array:
    return np.asarray(x * y + z)


def _reversed_subtract(x: Array, y: Array) -> Array:
    return np.asarray(y - x)


def bit_operation(code: int, x: Array, y: Array, z: Array) -> Array:
    """Bitwise function of three inputs with truth table ``code``."""
    result: Array = np.zeros(np.broadcast_shapes(x.shape, y.shape, z.shape), np.uint32)
    for row in range(8):
        if code >> row & 1:
            term = (x if row & 4 else ~x) & (y if row & 2 else ~y) & (z if row & 1 else ~z)
            result = result | term
    return result


def v_bitop3_b32(g: WaveGroup, d: int, a: int, b: int, c: int, *, mods: Modifiers) -> None:
    """D = truth table ``bitop3`` of S0, S1, S2."""
    g.u[d][...] = bit_operation(mods.bitop3, g.u[a], g.u[b], g.u[c])


def v_bitop3_b16(g: WaveGroup, d: int, a: int, b: int, c: int, *, mods: Modifiers) -> None:
    """D[15:0] = truth table ``bitop3`` of the low halves; D[31:16] stays."""
    result = bit_operation(mods.bitop3, g.u[a], g.u[b], g.u[c]) & _WORD
    np.bitwise_or(g.u[d] & ~_WORD, result, out=g.u[d])


def _dot2(dtype: Any) -> Semantics:
    """D.f32 = S0.lo * S1.lo + S0.hi * S1.hi + S2.f32, rounded once."""

    def run(g: WaveGroup, d: int, a: int, b: int, c: int, *, mods: Modifiers) -> None:
        total = g.f[c].astype(np.float64)
        for half in (0, 1):
            total = total + _as_float(g, a, half, dtype) * _as_float(g, b, half, dtype)
        g.f[d][...] = total.astype(np.float32)

    return run


def _as_float(g: WaveGroup, index: int, high: int, dtype: str) -> Array:
    if dtype == "f16":
        return _halves(g, index, high, np.float16).astype(np.float64)
    bits = g.u[index] & np.uint32(0xFFFF0000) if high else g.u[index] << _16
    return np.asarray(bits.view(np.float32).astype(np.float64))


def _op(name: str, semantics: Semantics, dst: str, src: str, **more: Any) -> Op:
    return Op(name, semantics, tuple(dst.split()), tuple(src.split()), **more)


def _pk(name: str, semantics: Semantics, kind: str, sources: int) -> Op:
    rule = None if kind == "pkf32" else rules.each_half
    return _op(name, semantics, kind, " ".join([kind] * sources), takes_modifiers=True, shadow=rule, halfwise=True)


def _packed_table() -> list[Op]:
    u16, i16, f16 = np.uint16, np.int16, np.float16
    return [
        _pk("v_pk_add_u16", _packed16(np.add, u16, np.int32), "pk16", 2),
        _pk("v_pk_add_u16.clamp", _packed16(np.add, u16, np.int32, True), "pk16", 2),
        _pk("v_pk_sub_u16", _packed16(np.subtract, u16, np.int32), "pk16", 2),
        _pk("v_pk_sub_u16.clamp", _packed16(np.subtract, u16, np.int32, True), "pk16", 2),
        _pk("v_pk_add_i16", _packed16(np.add, i16, np.int32), "pk16", 2),
        _pk("v_pk_add_i16.clamp", _packed16(np.add, i16, np.int32, True), "pk16", 2),
        _pk("v_pk_sub_i16", _packed16(np.subtract, i16, np.int32), "pk16", 2),
        _pk("v_pk_sub_i16.clamp", _packed16(np.subtract, i16, np.int32, True), "pk16", 2),
        _pk("v_pk_mul_lo_u16", _packed16(np.multiply, u16, np.uint32), "pk16", 2),
        _pk("v_pk_mad_u16", _packed16(_multiply_add, u16, np.uint32), "pk16", 3),
        _pk("v_pk_mad_i16", _packed16(_multiply_add, i16, np.int32), "pk16", 3),
        _pk("v_pk_max_u16", _packed16(np.maximum, u16, np.int32), "pk16", 2),
        _pk("v_pk_min_u16", _packed16(np.minimum, u16, np.int32), "pk16", 2),
        _pk("v_pk_max_i16", _packed16(np.maximum, i16, np.int32), "pk16", 2),
        _pk("v_pk_min_i16", _packed16(np.minimum, i16, np.int32), "pk16", 2),
        _pk("v_pk_lshlrev_b16", _packed16(_shifted_left, u16, np.uint32), "pk16", 2),
        _pk("v_pk_lshrrev_b16", _packed16(_shifted_right, u16, np.uint32), "pk16", 2),
        _pk("v_pk_ashrrev_i16", _packed16(_shifted_right, i16, np.int32), "pk16", 2),
        _pk("v_pk_add_f16", _packed16(np.add, f16, np.float32), "pkf16", 2),
        _pk("v_pk_mul_f16", _packed16(np.multiply, f16, np.float32), "pkf16", 2),
        _pk("v_pk_fma_f16", _packed16(_multiply_add, f16, np.float64), "pkf16", 3),
        _pk("v_pk_max_f16", _packed16(larger, f16, np.float32), "pkf16", 2),
        _pk("v_pk_min_f16", _packed16(smaller, f16, np.float32), "pkf16", 2),
        _pk("v_pk_add_f32", _pair_f32(np.add), "pkf32", 2),
        _pk("v_pk_mul_f32", _pair_f32(np.multiply), "pkf32", 2),
        _pk("v_pk_fma_f32", _pair_f32(fma32), "pkf32", 3),
        _pk("v_pk_mov_b32", v_pk_mov_b32, "pkf32", 2),
        _op("v_dot2_f32_f16", _dot2("f16"), "f32", "pk16 pk16 f32", takes_modifiers=True),
        _op("v_dot2_f32_bf16", _dot2("bf16"), "f32", "pk16 pk16 f32", takes_modifiers=True),
        _op("v_dot2c_f32_f16", _dot2("f16"), "f32", "pk16 pk16", implicit=("dst",), takes_modifiers=True),
        _op("v_dot2c_f32_bf16", _dot2("bf16"), "f32", "pk16 pk16", implicit=("dst",), takes_modifiers=True),
    ]


def _word_table() -> list[Op]:
    u16, i16 = np.uint16, np.int16
    two, three = "u16 u16", "u16 u16 u16"
    low = rules.low_half
    left, right = _word_op(_shifted_left, u16, np.uint32), _word_op(_shifted_right, u16, np.uint32)
    return [
        _op("v_add_u16", _word_op(np.add, u16, np.int32), "u16", two, shadow=low(rules.low_bits_first)),
        _op("v_add_u16.clamp", _word_op(np.add, u16, np.int32, True), "u16", two, shadow=low(_any16)),
        _op("v_sub_u16", _word_op(np.subtract, u16, np.int32), "u16", two, shadow=low(rules.low_bits_first)),
        _op("v_sub_u16.clamp", _word_op(np.subtract, u16, np.int32, True), "u16", two, shadow=low(_any16)),
        _op("v_subrev_u16", _word_op(_reversed_subtract, u16, np.int32), "u16", two, shadow=low(_any16)),
        _op("v_add_i16", _word_op(np.add, i16, np.int32), "u16", two, shadow=low(_any16)),
        _op("v_sub_i16", _word_op(np.subtract, i16, np.int32), "u16", two, shadow=low(_any16)),
        _op("v_mul_lo_u16", _word_op(np.multiply, u16, np.uint32), "u16", two, shadow=low(_any16)),
        _op("v_mad_u16", _word_op(_multiply_add, u16, np.uint32), "u16", three, shadow=low(_any16)),
        _op("v_mad_legacy_u16", _word_op(_multiply_add, u16, np.uint32), "u16", three, shadow=low(_any16)),
        _op("v_max_u16", _word_op(np.maximum, u16, np.uint32), "u16", two, shadow=low(_any16)),
        _op("v_min_u16", _word_op(np.minimum, u16, np.uint32), "u16", two, shadow=low(_any16)),
        _op("v_max_i16", _word_op(np.maximum, i16, np.int32), "u16", two, shadow=low(_any16)),
        _op("v_min_i16", _word_op(np.minimum, i16, np.int32), "u16", two, shadow=low(_any16)),
        _op("v_lshlrev_b16", left, "u16", two, shadow=low(rules.shift_left_reversed)),
        _op("v_lshrrev_b16", right, "u16", two, shadow=low(rules.shift_right_reversed)),
        _op("v_ashrrev_i16", _word_op(_shifted_right, i16, np.int32), "u16", two, shadow=low(_any16)),
    ]


def _any16(values: Any, shadows: Any) -> Array:
    return rules.any_bit(shadows)


def _bit_rule(mods: Modifiers) -> rules.Rule:
    return rules.truth_table(mods.bitop3)


def _low_bit_rule(mods: Modifiers) -> rules.Rule:
    return rules.low_half(rules.truth_table(mods.bitop3))


OPS = table(
    [
        *_packed_table(),
        *_word_table(),
        _op("v_bitop3_b32", v_bitop3_b32, "u32", "u32 u32 u32", takes_modifiers=True, shadow_of=_bit_rule),
        _op("v_bitop3_b16", v_bitop3_b16, "u16", "u16 u16 u16", takes_modifiers=True, preserve=0xFFFF0000,
            shadow_of=_low_bit_rule),
    ]
)  # fmt: skip
