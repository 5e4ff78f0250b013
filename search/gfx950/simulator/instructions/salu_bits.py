"""Scalar ALU on bits: logic, shifts, bit fields, counts, packing, SAVEEXEC.

MI300 ISA guide, section "Scalar ALU instructions"; conventions as in ``salu``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.op import Op, Semantics, table
from search.gfx950.simulator.instructions.salu import scalar_op as _op
from search.gfx950.simulator.instructions.salu import set_scc as _set_scc
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.registers import EXEC
from search.gfx950.simulator.state.shadow import bitwise_and, bitwise_copy, bitwise_or, bitwise_xor
from search.gfx950.simulator.state.state import WaveGroup

_U64 = np.uint64
_ONE = np.uint64(1)


def _binary32(operation: Callable[[Array, Array], Array]) -> Semantics:
    """D = operation(S0, S1); SCC = D != 0."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        result = operation(g.u[a], g.u[b])
        g.u[d][...] = result
        _set_scc(g, result != 0)

    return run


def _binary64(operation: Callable[[Array, Array], Array]) -> Semantics:
    """D = operation(S0, S1), 64 bits; SCC = D != 0."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        result = operation(g.read64(a), g.read64(b))
        g.write64(d, result)
        _set_scc(g, result != 0)

    return run


def _shift_left(x: Array, count: Array) -> Array:
    return np.asarray(x << (count & np.uint32(31)))


def _shift_right(x: Array, count: Array) -> Array:
    return np.asarray(x >> (count & np.uint32(31)))


def _shift_right_signed(x: Array, count: Array) -> Array:
    return np.asarray((x.view(np.int32) >> (count & np.uint32(31)).view(np.int32)).view(np.uint32))


def s_bfm_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = ((1 << S0[4:0]) - 1) << S1[4:0]."""
    one = np.uint32(1)
    g.u[d][...] = ((one << (g.u[a] & np.uint32(31))) - one) << (g.u[b] & np.uint32(31))


def _field(g: WaveGroup, b: int) -> tuple[Array, Array]:
    offset = g.u[b] & np.uint32(31)
    width = np.minimum((g.u[b] >> np.uint32(16)) & np.uint32(127), np.uint32(32))
    return offset, width


def s_bfe_u32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = (S0 >> S1[4:0]) & ones(S1[22:16]); SCC = D != 0."""
    offset, width = _field(g, b)
    ones = ((_ONE << width.astype(_U64)) - _ONE).astype(np.uint32)
    result = (g.u[a] >> offset) & ones
    g.u[d][...] = result
    _set_scc(g, result != 0)


def s_bfe_i32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """As S_BFE_U32, sign-extended from the field's top bit."""
    offset, width = _field(g, b)
    spare = (np.uint32(64) - width).astype(np.int64)
    shifted = (g.u[a] >> offset).astype(np.int64)
    result = np.where(width == 0, np.int64(0), (shifted << (spare & np.int64(63))) >> (spare & np.int64(63)))
    np.copyto(g.i[d], result, casting="unsafe")
    _set_scc(g, g.u[d] != 0)


def s_lshl_b64(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S0 << S1[5:0]; SCC = D != 0."""
    result = g.read64(a) << (g.u[b] & np.uint32(63)).astype(_U64)
    g.write64(d, result)
    _set_scc(g, result != 0)


def s_lshr_b64(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S0 >> S1[5:0]; SCC = D != 0."""
    result = g.read64(a) >> (g.u[b] & np.uint32(63)).astype(_U64)
    g.write64(d, result)
    _set_scc(g, result != 0)


def s_ashr_i64(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S0 >> S1[5:0], signed; SCC = D != 0."""
    result = g.read64(a).view(np.int64) >> (g.u[b] & np.uint32(63)).astype(np.int64)
    g.write64(d, result.view(_U64))
    _set_scc(g, result != 0)


def _bit_compare(expected: int) -> Semantics:
    """S_BITCMP: SCC = bit S1[4:0] of S0 equals ``expected``."""

    def run(g: WaveGroup, a: int, b: int) -> None:
        _set_scc(g, ((g.u[a] >> (g.u[b] & np.uint32(31))) & np.uint32(1)) == expected)

    return run


def s_not_b32(g: WaveGroup, d: int, a: int) -> None:
    """D = ~S0; SCC = D != 0."""
    np.invert(g.u[a], out=g.u[d])
    _set_scc(g, g.u[d] != 0)


def s_not_b64(g: WaveGroup, d: int, a: int) -> None:
    """D = ~S0, 64 bits; SCC = D != 0."""
    result = ~g.read64(a)
    g.write64(d, result)
    _set_scc(g, result != 0)


def s_brev_b32(g: WaveGroup, d: int, a: int) -> None:
    """D = S0 with its bits reversed."""
    g.u[d][...] = reversed_bits(g.u[a])


def reversed_bits(value: Array) -> Array:
    """uint32 values with bit 0 and bit 31 swapped, and so on."""
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(*value.shape, 4)
    bits = np.unpackbits(raw, axis=-1, bitorder="little")[..., ::-1]
    return np.packbits(bits, axis=-1, bitorder="little").view(np.uint32).reshape(value.shape)


def s_sext_i32_i8(g: WaveGroup, d: int, a: int) -> None:
    """D = sign-extended low byte."""
    g.i[d][...] = g.u[a].astype(np.int8)


def s_sext_i32_i16(g: WaveGroup, d: int, a: int) -> None:
    """D = sign-extended low word."""
    g.i[d][...] = g.u[a].astype(np.int16)


def _bit_count(g: WaveGroup, value: Array) -> Array:
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(value.shape[0], -1)
    return np.asarray(np.unpackbits(raw, axis=1).sum(axis=1, dtype=np.uint32)[:, None])


def s_bcnt1_i32_b32(g: WaveGroup, d: int, a: int) -> None:
    """D = number of ones; SCC = D != 0."""
    g.u[d][...] = _bit_count(g, g.u[a])
    _set_scc(g, g.u[d] != 0)


def s_bcnt1_i32_b64(g: WaveGroup, d: int, a: int) -> None:
    """D = number of ones in 64 bits; SCC = D != 0."""
    g.u[d][...] = _bit_count(g, g.read64(a))
    _set_scc(g, g.u[d] != 0)


def _first_one(value: Array, width: int) -> Array:
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(value.shape[0], -1)
    bits = np.unpackbits(raw, axis=1, bitorder="little")[:, :width]
    return np.asarray(np.where(bits.any(axis=1), bits.argmax(axis=1), -1).astype(np.int32)[:, None])


def s_ff1_i32_b32(g: WaveGroup, d: int, a: int) -> None:
    """D = position of the lowest one, -1 if there is none."""
    g.i[d][...] = _first_one(g.u[a], 32)


def s_ff1_i32_b64(g: WaveGroup, d: int, a: int) -> None:
    """D = position of the lowest one in 64 bits, -1 if there is none."""
    g.i[d][...] = _first_one(g.read64(a), 64)


def s_flbit_i32_b32(g: WaveGroup, d: int, a: int) -> None:
    """D = number of zeros above the highest one, -1 if there is none."""
    g.i[d][...] = _first_one(reversed_bits(g.u[a]), 32)


def s_bitset0_b32(g: WaveGroup, d: int, a: int, old: int) -> None:
    """D = D with bit S0[4:0] cleared."""
    g.u[d][...] = g.u[old] & ~(np.uint32(1) << (g.u[a] & np.uint32(31)))


def s_bitset1_b32(g: WaveGroup, d: int, a: int, old: int) -> None:
    """D = D with bit S0[4:0] set."""
    g.u[d][...] = g.u[old] | (np.uint32(1) << (g.u[a] & np.uint32(31)))


def s_pack_ll_b32_b16(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S1[15:0] << 16 | S0[15:0]."""
    g.u[d][...] = (g.u[a] & np.uint32(0xFFFF)) | (g.u[b] << np.uint32(16))


def s_pack_lh_b32_b16(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S1[31:16] << 16 | S0[15:0]."""
    g.u[d][...] = (g.u[a] & np.uint32(0xFFFF)) | (g.u[b] & np.uint32(0xFFFF0000))


def s_pack_hh_b32_b16(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S1[31:16] << 16 | S0[31:16]."""
    g.u[d][...] = (g.u[a] >> np.uint32(16)) | (g.u[b] & np.uint32(0xFFFF0000))


def _save_exec(operation: Callable[[Array, Array], Array]) -> Semantics:
    """S_op_SAVEEXEC_B64: D = EXEC; EXEC = operation(S0, EXEC); SCC = EXEC != 0."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        old = g.read64(EXEC).copy()
        new = operation(g.read64(a), old)
        g.write64(d, old)
        g.write64(EXEC, new)
        _set_scc(g, new != 0)

    return run


def _and_not(x: Array, y: Array) -> Array:
    return np.asarray(x & ~y)


def _or_not(x: Array, y: Array) -> Array:
    return np.asarray(x | ~y)


def _not_and(x: Array, y: Array) -> Array:
    return np.asarray(~(x & y))


def _not_or(x: Array, y: Array) -> Array:
    return np.asarray(~(x | y))


def _not_xor(x: Array, y: Array) -> Array:
    return np.asarray(~(x ^ y))


def _logic() -> list[Op]:
    ops = []
    logic: dict[str, tuple[Any, Any]] = {
        "and": (np.bitwise_and, bitwise_and), "or": (np.bitwise_or, bitwise_or), "xor": (np.bitwise_xor, bitwise_xor),
        "andn2": (_and_not, None), "orn2": (_or_not, None), "nand": (_not_and, None), "nor": (_not_or, None),
        "xnor": (_not_xor, bitwise_xor),
    }  # fmt: skip
    for name, (operation, shadow) in logic.items():
        ops.append(_op(f"s_{name}_b32", _binary32(operation), "u32", "u32 u32", shadow=shadow))
        ops.append(_op(f"s_{name}_b64", _binary64(operation), "b64", "b64 b64", shadow=shadow))
        ops.append(_op(f"s_{name}_saveexec_b64", _save_exec(operation), "b64", "b64", implicit=("exec",)))
    return ops


OPS = table(
    [
        _op("s_lshl_b32", _binary32(_shift_left), "u32", "u32 u32"),
        _op("s_lshr_b32", _binary32(_shift_right), "u32", "u32 u32"),
        _op("s_ashr_i32", _binary32(_shift_right_signed), "i32", "i32 u32"),
        _op("s_lshl_b64", s_lshl_b64, "b64", "b64 u32"),
        _op("s_lshr_b64", s_lshr_b64, "b64", "b64 u32"),
        _op("s_ashr_i64", s_ashr_i64, "b64", "b64 u32"),
        _op("s_bfm_b32", s_bfm_b32, "u32", "u32 u32", False),
        _op("s_bfe_u32", s_bfe_u32, "u32", "u32 u32"),
        _op("s_bfe_i32", s_bfe_i32, "i32", "i32 u32"),
        _op("s_bitcmp0_b32", _bit_compare(0), "", "u32 u32"),
        _op("s_bitcmp1_b32", _bit_compare(1), "", "u32 u32"),
        _op("s_not_b32", s_not_b32, "u32", "u32", shadow=bitwise_copy),
        _op("s_not_b64", s_not_b64, "b64", "b64", shadow=bitwise_copy),
        _op("s_brev_b32", s_brev_b32, "u32", "u32", False),
        _op("s_sext_i32_i8", s_sext_i32_i8, "i32", "u32", False),
        _op("s_sext_i32_i16", s_sext_i32_i16, "i32", "u32", False),
        _op("s_bcnt1_i32_b32", s_bcnt1_i32_b32, "i32", "u32"),
        _op("s_bcnt1_i32_b64", s_bcnt1_i32_b64, "i32", "b64"),
        _op("s_ff1_i32_b32", s_ff1_i32_b32, "i32", "u32", False),
        _op("s_ff1_i32_b64", s_ff1_i32_b64, "i32", "b64", False),
        _op("s_flbit_i32_b32", s_flbit_i32_b32, "i32", "u32", False),
        _op("s_bitset0_b32", s_bitset0_b32, "u32", "u32", False, implicit=("dst",)),
        _op("s_bitset1_b32", s_bitset1_b32, "u32", "u32", False, implicit=("dst",)),
        _op("s_pack_ll_b32_b16", s_pack_ll_b32_b16, "u32", "u32 u32", False),
        _op("s_pack_lh_b32_b16", s_pack_lh_b32_b16, "u32", "u32 u32", False),
        _op("s_pack_hh_b32_b16", s_pack_hh_b32_b16, "u32", "u32 u32", False),
        *_logic(),
    ]
)
