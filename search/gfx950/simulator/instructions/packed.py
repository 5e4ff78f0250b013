"""Packed and 16-bit arithmetic: VOP3P, the 16-bit VOP2/VOP3 integer instructions, V_BITOP3.

MI300 ISA guide, section "Packed math". ``mods.op_sel`` chooses each operand's half (or register of a pair) for the low
result, ``mods.op_sel_hi`` for the high one. 16-bit VOP1/VOP2 instructions of gfx9 write 0 to the high half; those that
gfx9 brought with op_sel (the three-operand minimum, maximum and median of 16 bits) keep it.
Source of V_BITOP3 (new in gfx950): LLVM ``AMDGPUUsage``/``VOP3Instructions.td``: a truth table of three inputs whose
index is S0<<2 | S1<<1 | S2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.modifiers import Modifiers
from search.gfx950.simulator.decode.op import Op, Semantics, table
from search.gfx950.simulator.decode.values import (
    HALVES,
    HIGH,
    LOW,
    WRITERS,
    Operation,
    Writer,
    computed,
    paired,
    saturated,
    value_op,
    vector_op,
)
from search.gfx950.simulator.instructions.valu_float import fma32, larger, largest, median, smaller, smallest
from search.gfx950.simulator.state import shadow as rules
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.state import WaveGroup

_16 = np.uint32(16)


def _twice(operation: Operation, read: Callable[[WaveGroup, int, int], Array], write: Writer) -> Semantics:
    """D = operation on what op_sel chooses of the sources, and on what op_sel_hi does."""

    def run(g: WaveGroup, d: int, *sources: int, mods: Modifiers) -> None:
        results = []
        for selects, negate in ((mods.op_sel, mods.neg_lo), (mods.op_sel_hi, mods.neg_hi)):
            values = []
            for position, source in enumerate(sources):
                value = read(g, source, selects[position])
                values.append(-value if negate[position] else value)
            results.append(operation(*values))
        write(g, d, results)

    return run


def _pk16(name: str, operation: Operation, kind: str, sources: int = 2, wide: Any = np.int32) -> Op:
    """Both halves of D = operation on halves of the sources, computed in ``wide`` and cut to 16 bits."""
    dtype = np.dtype(f"{kind[0]}2")

    def read(g: WaveGroup, source: int, high: int) -> Array:
        word = g.u[source] >> _16 if high else g.u[source] & LOW
        return np.asarray(word.astype(np.uint16).view(dtype).astype(wide))

    def write(g: WaveGroup, d: int, results: list[Array]) -> None:
        low, high = (np.asarray(result).astype(dtype).view(np.uint16).astype(np.uint32) for result in results)
        np.bitwise_or(low, high << _16, out=g.u[d])

    operands = "pkf16" if kind == "f16" else "pk16"
    return vector_op(
        name, _twice(operation, read, write), operands, f"{operands} " * sources, takes_modifiers=True,
        shadow=rules.each_half, halfwise=True,
    )  # fmt: skip


def _pk32(name: str, operation: Operation, sources: int = 2) -> Op:
    """Both registers of D = operation on registers of the source pairs, f32."""
    semantics = _twice(operation, lambda g, source, select: np.asarray(g.f[source + select]), WRITERS["pkf32"])
    return vector_op(name, semantics, "pkf32", "pkf32 " * sources, takes_modifiers=True)


def v_pk_mov_b32(g: WaveGroup, d: int, a: int, b: int, *, mods: Modifiers) -> None:
    """D.lo = register op_sel[0] of S0; D.hi = register op_sel[1] of S1."""
    low, high = g.u[a + mods.op_sel[0]].copy(), g.u[b + mods.op_sel[1]]
    g.u[d + 1][...] = high
    g.u[d][...] = low


def _shifted_left(count: Array, value: Array) -> Array:
    return np.asarray(value << (count & 15))


def _shifted_right(count: Array, value: Array) -> Array:
    return np.asarray(value >> (count & 15))


def _multiply_add(x: Array, y: Array, z: Array) -> Array:
    return np.asarray(x * y + z)


def _bit_operation(mods: Modifiers, x: Array, y: Array, z: Array) -> Array:
    """Bitwise function of three inputs with the truth table ``bitop3``."""
    result: Array = np.zeros(np.broadcast_shapes(x.shape, y.shape, z.shape), np.uint32)
    for row in range(8):
        if mods.bitop3 >> row & 1:
            term = (x if row & 4 else ~x) & (y if row & 2 else ~y) & (z if row & 1 else ~z)
            result = result | term
    return result


def v_bitop3_b32(g: WaveGroup, d: int, a: int, b: int, c: int, *, mods: Modifiers) -> None:
    """D = truth table ``bitop3`` of S0, S1, S2."""
    g.u[d][...] = _bit_operation(mods, g.u[a], g.u[b], g.u[c])


def v_bitop3_b16(g: WaveGroup, d: int, a: int, b: int, c: int, *, mods: Modifiers) -> None:
    """D[15:0] = truth table ``bitop3`` of the low halves; D[31:16] stays."""
    WRITERS["u16 kept"](g, d, _bit_operation(mods, g.u[a], g.u[b], g.u[c]))


def _dot2(kind: str) -> Semantics:
    """D.f32 = S0.lo * S1.lo + S0.hi * S1.hi + S2.f32, rounded once."""

    def run(g: WaveGroup, d: int, a: int, b: int, c: int, *, mods: Modifiers) -> None:
        total = g.f[c].astype(np.float64)
        for x, y in zip(HALVES[kind](g.u[a]), HALVES[kind](g.u[b]), strict=True):
            total = total + x.astype(np.float64) * y.astype(np.float64)
        g.f[d][...] = total

    return run


def _packed_table() -> Iterator[Op]:
    for kind, dtype in (("u16", np.uint16), ("i16", np.int16)):
        for name, operation in (("add", np.add), ("sub", np.subtract)):
            yield _pk16(f"v_pk_{name}_{kind}", operation, kind)
            yield _pk16(f"v_pk_{name}_{kind}.clamp", saturated(operation, dtype), kind)
        yield _pk16(f"v_pk_mad_{kind}", _multiply_add, kind, 3)
        yield _pk16(f"v_pk_max_{kind}", np.maximum, kind)
        yield _pk16(f"v_pk_min_{kind}", np.minimum, kind)
    yield _pk16("v_pk_mul_lo_u16", np.multiply, "u16")
    yield _pk16("v_pk_lshlrev_b16", _shifted_left, "u16")
    yield _pk16("v_pk_lshrrev_b16", _shifted_right, "u16")
    yield _pk16("v_pk_ashrrev_i16", _shifted_right, "i16")
    yield _pk16("v_pk_add_f16", np.add, "f16", wide=np.float32)
    yield _pk16("v_pk_mul_f16", np.multiply, "f16", wide=np.float32)
    yield _pk16("v_pk_fma_f16", _multiply_add, "f16", 3, wide=np.float64)
    yield _pk16("v_pk_max_f16", larger, "f16", wide=np.float32)
    yield _pk16("v_pk_min_f16", smaller, "f16", wide=np.float32)
    yield _pk32("v_pk_add_f32", np.add)
    yield _pk32("v_pk_mul_f32", np.multiply)
    yield _pk32("v_pk_fma_f32", fma32, 3)
    yield vector_op("v_pk_mov_b32", v_pk_mov_b32, "pkf32", "pkf32 pkf32", takes_modifiers=True)
    for kind in ("f16", "bf16"):
        yield vector_op(f"v_dot2_f32_{kind}", _dot2(kind), "f32", "pk16 pk16 f32", takes_modifiers=True)
        yield vector_op(f"v_dot2c_f32_{kind}", _dot2(kind), "f32", "pk16 pk16", implicit=("dst",), takes_modifiers=True)


def _word(name: str, operation: Operation, kind: str, sources: int = 2, rule: rules.Rule = rules.whole_result) -> Op:
    """D[15:0] = operation on low halves; D[31:16] = 0."""
    return value_op(name, operation, "u16", f"{kind} " * sources, shadow=rules.low_half(rule))


def _word_table() -> Iterator[Op]:
    yield _word("v_add_u16", np.add, "u16", rule=rules.low_bits_first)
    yield _word("v_sub_u16", np.subtract, "u16", rule=rules.low_bits_first)
    yield _word("v_subrev_u16", lambda x, y: y - x, "u16")
    yield _word("v_add_u16.clamp", saturated(np.add, np.uint16), "u16")
    yield _word("v_sub_u16.clamp", saturated(np.subtract, np.uint16), "u16")
    yield _word("v_add_i16", np.add, "i16")
    yield _word("v_sub_i16", np.subtract, "i16")
    yield _word("v_mul_lo_u16", np.multiply, "u16")
    yield _word("v_mad_u16", _multiply_add, "u16", 3)
    yield _word("v_mad_legacy_u16", _multiply_add, "u16", 3)
    yield _word("v_lshlrev_b16", _shifted_left, "u16", rule=rules.shift_left_reversed)
    yield _word("v_lshrrev_b16", _shifted_right, "u16", rule=rules.shift_right_reversed)
    yield _word("v_ashrrev_i16", _shifted_right, "i16")
    for kind in ("u16", "i16"):
        yield _word(f"v_max_{kind}", np.maximum, kind)
        yield _word(f"v_min_{kind}", np.minimum, kind)


def _kept(name: str, operation: Operation, kind: str) -> Op:
    """D[15:0] = operation on the low halves of three sources; D[31:16] stays."""
    rule = rules.low_half(rules.whole_result)
    result = "f16" if kind == "f16" else "u16"
    return value_op(name, operation, result, f"{kind} " * 3, preserve=int(HIGH), shadow=rule)


def _kept_table() -> Iterator[Op]:
    for kind in ("u16", "i16"):
        yield _kept(f"v_min3_{kind}", lambda x, y, z: np.minimum(np.minimum(x, y), z), kind)
        yield _kept(f"v_max3_{kind}", lambda x, y, z: np.maximum(np.maximum(x, y), z), kind)
        yield _kept(
            f"v_med3_{kind}", lambda x, y, z: np.maximum(np.minimum(x, y), np.minimum(np.maximum(x, y), z)), kind
        )
    yield _kept("v_min3_f16", smallest, "f16")
    yield _kept("v_max3_f16", largest, "f16")
    yield _kept("v_med3_f16", median, "f16")


OPS = table(
    [
        *_packed_table(),
        *_word_table(),
        *_kept_table(),
        value_op("v_mad_u32_u16", _multiply_add, "u32", "u16 u16 u32"),
        value_op("v_mad_i32_i16", _multiply_add, "i32", "i16 i16 i32"),
        vector_op("v_pack_b32_f16", computed(lambda x, y: paired(x & LOW, y), "u32 u32", WRITERS["u32"]), "u32",
                  "f16 f16"),  # raw halves, that op_sel chooses
        vector_op("v_bitop3_b32", v_bitop3_b32, "u32", "u32 u32 u32", takes_modifiers=True,
                  shadow_of=lambda mods: rules.truth_table(mods.bitop3)),
        vector_op("v_bitop3_b16", v_bitop3_b16, "u16", "u16 u16 u16", takes_modifiers=True, preserve=int(HIGH),
                  shadow_of=lambda mods: rules.low_half(rules.truth_table(mods.bitop3))),
    ]
)  # fmt: skip
