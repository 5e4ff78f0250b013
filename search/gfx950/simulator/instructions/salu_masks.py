"""Scalar ALU on 64 bits and on lane masks: bit fields, single bits, counts of zeros, whole quads, WREXEC.

MI300 ISA guide, section "Scalar ALU instructions"; conventions as in ``salu``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from search.gfx950.simulator.decode.op import Semantics, table
from search.gfx950.simulator.instructions.salu import scalar_op as _op
from search.gfx950.simulator.instructions.salu import set_scc
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.registers import EXEC
from search.gfx950.simulator.state.state import WaveGroup

_U64 = np.uint64
_ONE = np.uint64(1)


def _bits(value: Array, width: int) -> Array:
    """Bits of [waves, 1] values, lowest first, as bool [waves, width]."""
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(value.shape[0], -1)
    return np.unpackbits(raw, axis=1, bitorder="little")[:, :width].astype(np.bool_)


def _number(bits: Array) -> Array:
    """The other way, as uint64 [waves, 1]."""
    padded = np.zeros((bits.shape[0], 64), np.uint8)
    padded[:, : bits.shape[1]] = bits
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def _position(bits: Array) -> Array:
    """Place of the first set bit of each row, -1 if there is none, int32 [waves, 1]."""
    return np.asarray(np.where(bits.any(axis=1), bits.argmax(axis=1), -1).astype(np.int32)[:, None])


def _read(g: WaveGroup, index: int, width: int) -> Array:
    value = g.read64(index) if width == 64 else g.u[index]
    return np.asarray(np.broadcast_to(value, (g.count, 1)))


def _write(g: WaveGroup, index: int, width: int, value: Array) -> None:
    if width == 64:
        g.write64(index, value)
    else:
        g.u[index][...] = value.astype(np.uint32)


def _first_zero(width: int) -> Semantics:
    """S_FF0: D = position of the lowest zero, -1 if there is none."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        g.i[d][...] = _position(~_bits(_read(g, a, width), width))

    return run


def _leading(width: int, signed: bool) -> Semantics:
    """S_FLBIT: D = number of zeros (signed: of bits equal to the sign) from the top, -1 where all bits are."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        bits = _bits(_read(g, a, width), width)[:, ::-1]
        g.i[d][...] = _position(bits != bits[:, :1] if signed else bits)

    return run


def _zeros(width: int) -> Semantics:
    """S_BCNT0: D = number of zeros; SCC = D != 0."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        count = (~_bits(_read(g, a, width), width)).sum(axis=1, dtype=np.uint32)[:, None]
        g.u[d][...] = count
        set_scc(g, count != 0)

    return run


def _quads(width: int, whole: bool) -> Semantics:
    """Groups of four bits of which one is set: S_WQM sets all four, S_QUADMASK gives a bit a group; SCC = D != 0."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        any_of_four = _bits(_read(g, a, width), width).reshape(g.count, -1, 4).any(axis=2)
        result = _number(np.asarray(np.repeat(any_of_four, 4, axis=1) if whole else any_of_four))
        _write(g, d, width, result)
        set_scc(g, result != 0)

    return run


def s_brev_b64(g: WaveGroup, d: int, a: int) -> None:
    """D = S0 with its 64 bits reversed."""
    g.write64(d, _number(_bits(_read(g, a, 64), 64)[:, ::-1]))


def s_bitreplicate_b64_b32(g: WaveGroup, d: int, a: int) -> None:
    """D = each bit of S0 twice."""
    g.write64(d, _number(np.repeat(_bits(_read(g, a, 32), 32), 2, axis=1)))


def s_bfm_b64(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = ((1 << S0[5:0]) - 1) << S1[5:0], 64 bits."""
    width, place = ((g.u[s] & np.uint32(63)).astype(_U64) for s in (a, b))
    g.write64(d, ((_ONE << width) - _ONE) << place)


def _field64(signed: bool) -> Semantics:
    """S_BFE of 64 bits: D = (S0 >> S1[5:0]) & ones(S1[22:16]), sign-extended where signed; SCC = D != 0."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        place = (g.u[b] & np.uint32(63)).astype(_U64)
        width = np.minimum((g.u[b] >> np.uint32(16)) & np.uint32(127), np.uint32(64)).astype(np.int64)
        spare = np.minimum(64 - width, 63).astype(_U64)
        left = (g.read64(a) >> place) << spare
        field = (left.view(np.int64) >> spare.view(np.int64)).view(_U64) if signed else left >> spare
        result = np.where(width == 0, _U64(0), field)
        g.write64(d, result)
        set_scc(g, result != 0)

    return run


def _bit_compare64(expected: int) -> Semantics:
    """S_BITCMP of 64 bits: SCC = bit S1[5:0] of S0 equals ``expected``."""

    def run(g: WaveGroup, a: int, b: int) -> None:
        set_scc(g, ((g.read64(a) >> (g.u[b] & np.uint32(63)).astype(_U64)) & _ONE) == expected)

    return run


def _bit_set64(value: int) -> Semantics:
    """S_BITSET of 64 bits: D = D with bit S0[5:0] set or cleared."""

    def run(g: WaveGroup, d: int, a: int, old: int) -> None:
        bit = _ONE << (g.u[a] & np.uint32(63)).astype(_U64)
        g.write64(d, g.read64(old) | bit if value else g.read64(old) & ~bit)

    return run


def s_cmov_b64(g: WaveGroup, d: int, a: int, old: int) -> None:
    """D = SCC ? S0 : D, 64 bits."""
    g.write64(d, np.where(g.scc, g.read64(a), g.read64(old)))


def s_cmovk_i32(g: WaveGroup, d: int, a: int, old: int) -> None:
    """D = SCC ? sign-extended 16-bit immediate : D."""
    g.i[d][...] = np.where(g.scc, g.u[a].astype(np.int16).astype(np.int32), g.i[old])


def _not_first(x: Array, y: Array) -> Array:
    return np.asarray(~x & y)


def _or_not_first(x: Array, y: Array) -> Array:
    return np.asarray(~x | y)


def _and_not_second(x: Array, y: Array) -> Array:
    return np.asarray(x & ~y)


def _exec(operation: Callable[[Array, Array], Array], keeps_old: bool) -> Semantics:
    """EXEC = operation(S0, EXEC); D = EXEC before (SAVEEXEC) or after (WREXEC); SCC = EXEC != 0."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        old = g.read64(EXEC).copy()
        new = operation(g.read64(a), old)
        g.write64(d, old if keeps_old else new)
        g.write64(EXEC, new)
        set_scc(g, new != 0)

    return run


OPS = table(
    [
        _op("s_ff0_i32_b32", _first_zero(32), "i32", "u32", False),
        _op("s_ff0_i32_b64", _first_zero(64), "i32", "b64", False),
        _op("s_flbit_i32_b64", _leading(64, False), "i32", "b64", False),
        _op("s_flbit_i32", _leading(32, True), "i32", "u32", False),
        _op("s_flbit_i32_i64", _leading(64, True), "i32", "b64", False),
        _op("s_bcnt0_i32_b32", _zeros(32), "i32", "u32"),
        _op("s_bcnt0_i32_b64", _zeros(64), "i32", "b64"),
        _op("s_wqm_b32", _quads(32, True), "u32", "u32"),
        _op("s_wqm_b64", _quads(64, True), "b64", "b64"),
        _op("s_quadmask_b32", _quads(32, False), "u32", "u32"),
        _op("s_quadmask_b64", _quads(64, False), "b64", "b64"),
        _op("s_brev_b64", s_brev_b64, "b64", "b64", False),
        _op("s_bitreplicate_b64_b32", s_bitreplicate_b64_b32, "b64", "u32", False),
        _op("s_bfm_b64", s_bfm_b64, "b64", "u32 u32", False),
        _op("s_bfe_u64", _field64(False), "b64", "b64 u32"),
        _op("s_bfe_i64", _field64(True), "b64", "b64 u32"),
        _op("s_bitcmp0_b64", _bit_compare64(0), "", "b64 u32"),
        _op("s_bitcmp1_b64", _bit_compare64(1), "", "b64 u32"),
        _op("s_bitset0_b64", _bit_set64(0), "b64", "u32", False, implicit=("dst",)),
        _op("s_bitset1_b64", _bit_set64(1), "b64", "u32", False, implicit=("dst",)),
        _op("s_cmov_b64", s_cmov_b64, "b64", "b64", False, implicit=("scc", "dst")),
        _op("s_cmovk_i32", s_cmovk_i32, "i32", "u32", False, implicit=("scc", "dst")),
        _op("s_andn1_saveexec_b64", _exec(_not_first, True), "b64", "b64", implicit=("exec",)),
        _op("s_orn1_saveexec_b64", _exec(_or_not_first, True), "b64", "b64", implicit=("exec",)),
        _op("s_andn1_wrexec_b64", _exec(_not_first, False), "b64", "b64", implicit=("exec",)),
        _op("s_andn2_wrexec_b64", _exec(_and_not_second, False), "b64", "b64", implicit=("exec",)),
    ]
)
