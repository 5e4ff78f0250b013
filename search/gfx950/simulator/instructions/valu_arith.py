"""Vector integer arithmetic: carries, products, multiply-add, saturation, three-way minimum and maximum.

MI300 ISA guide, section "Vector ALU instructions"; conventions as in ``valu``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.op import Semantics, table
from search.gfx950.simulator.instructions.valu import vector_op as _op
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.state import WaveGroup

_U64 = np.uint64
_LOW24 = np.uint32(0xFFFFFF)


def v_add_co_u32(g: WaveGroup, d: int, carry: int, a: int, b: int) -> None:
    """D = S0 + S1; VCC (or the SGPR pair) = carry out."""
    x = g.u[a]
    result = x + g.u[b]
    overflow = result < x
    g.u[d][...] = result
    g.write_mask(carry, overflow)


def v_sub_co_u32(g: WaveGroup, d: int, carry: int, a: int, b: int) -> None:
    """D = S0 - S1; mask = borrow out."""
    x, y = g.u[a], g.u[b]
    borrow = x < y
    g.u[d][...] = x - y
    g.write_mask(carry, borrow)


def v_subrev_co_u32(g: WaveGroup, d: int, carry: int, a: int, b: int) -> None:
    """D = S1 - S0; mask = borrow out."""
    v_sub_co_u32(g, d, carry, b, a)


def v_addc_co_u32(g: WaveGroup, d: int, carry: int, a: int, b: int, c: int) -> None:
    """D = S0 + S1 + carry in; mask = carry out."""
    total = g.u[a].astype(_U64) + g.u[b] + g.read_mask(c)
    np.copyto(g.u[d], total, casting="unsafe")
    g.write_mask(carry, total > 0xFFFFFFFF)


def v_subb_co_u32(g: WaveGroup, d: int, carry: int, a: int, b: int, c: int) -> None:
    """D = S0 - S1 - borrow in; mask = borrow out."""
    total = g.u[a].astype(np.int64) - g.u[b] - g.read_mask(c)
    np.copyto(g.u[d], total, casting="unsafe")
    g.write_mask(carry, total < 0)


def v_subbrev_co_u32(g: WaveGroup, d: int, carry: int, a: int, b: int, c: int) -> None:
    """D = S1 - S0 - borrow in; mask = borrow out."""
    v_subb_co_u32(g, d, carry, b, a, c)


def v_mul_hi_u32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = high 32 bits of the unsigned product."""
    np.copyto(g.u[d], (g.u[a].astype(_U64) * g.u[b]) >> _U64(32), casting="unsafe")


def v_mul_hi_i32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = high 32 bits of the signed product."""
    np.copyto(g.i[d], (g.i[a].astype(np.int64) * g.i[b]) >> np.int64(32), casting="unsafe")


def v_mul_u32_u24(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = low 32 bits of the product of the low 24 bits."""
    np.multiply(g.u[a] & _LOW24, g.u[b] & _LOW24, out=g.u[d])


def _signed24(value: Array) -> Array:
    return np.asarray((value << np.int32(8)) >> np.int32(8))


def v_mul_i32_i24(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = low 32 bits of the product of the sign-extended low 24 bits."""
    np.multiply(_signed24(g.i[a]), _signed24(g.i[b]), out=g.i[d])


def v_mad_u32_u24(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = S0[23:0] * S1[23:0] + S2."""
    np.add((g.u[a] & _LOW24) * (g.u[b] & _LOW24), g.u[c], out=g.u[d])


def v_mad_i32_i24(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = sext(S0[23:0]) * sext(S1[23:0]) + S2."""
    np.add(_signed24(g.i[a]) * _signed24(g.i[b]), g.i[c], out=g.i[d])


def v_mad_u64_u32(g: WaveGroup, d: int, carry: int, a: int, b: int, c: int) -> None:
    """D.u64 = S0 * S1 + S2.u64; mask = carry out of 64 bits."""
    product = g.u[a].astype(_U64) * g.u[b]
    total = product + g.read64(c)
    g.write64(d, total)
    g.write_mask(carry, total < product)


def v_mad_i64_i32(g: WaveGroup, d: int, carry: int, a: int, b: int, c: int) -> None:
    """D.i64 = S0 * S1 + S2.i64; mask = signed overflow."""
    product = g.i[a].astype(np.int64) * g.i[b]
    addend = g.read64(c).view(np.int64)
    total = product + addend
    g.write64(d, total.view(_U64))
    g.write_mask(carry, ((product ^ total) & (addend ^ total)) < 0)


def v_lshl_add_u64(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D.u64 = (S0.u64 << S1[2:0]) + S2.u64."""
    g.write64(d, (g.read64(a) << (g.u[b] & np.uint32(7)).astype(_U64)) + g.read64(c))


def _extreme3(first: Callable[..., Any], signed: bool) -> Semantics:
    """D = largest or smallest of three."""

    def run(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
        rows = g.i if signed else g.u
        first(first(rows[a], rows[b]), rows[c], out=rows[d])

    return run


def _median3(signed: bool) -> Semantics:
    """D = median of three."""

    def run(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
        rows = g.i if signed else g.u
        x, y, z = rows[a], rows[b], rows[c]
        np.maximum(np.minimum(x, y), np.minimum(np.maximum(x, y), z), out=rows[d])

    return run


def _saturating(signed: bool, subtract: bool) -> Semantics:
    """Sum or difference that clamps to the type's range (the CLAMP bit of V_ADD/V_SUB)."""
    low, high = (-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        rows = g.i if signed else g.u
        x, y = rows[a].astype(np.int64), rows[b].astype(np.int64)
        np.copyto(rows[d], np.clip(x - y if subtract else x + y, low, high), casting="unsafe")

    return run


OPS = table(
    [
        _op("v_add_u32.clamp", _saturating(False, False), "u32", "u32 u32"),
        _op("v_sub_u32.clamp", _saturating(False, True), "u32", "u32 u32"),
        _op("v_add_i32.clamp", _saturating(True, False), "i32", "i32 i32"),
        _op("v_sub_i32.clamp", _saturating(True, True), "i32", "i32 i32"),
        _op("v_add_co_u32", v_add_co_u32, "u32 mask", "u32 u32"),
        _op("v_sub_co_u32", v_sub_co_u32, "u32 mask", "u32 u32"),
        _op("v_subrev_co_u32", v_subrev_co_u32, "u32 mask", "u32 u32"),
        _op("v_addc_co_u32", v_addc_co_u32, "u32 mask", "u32 u32 mask"),
        _op("v_subb_co_u32", v_subb_co_u32, "u32 mask", "u32 u32 mask"),
        _op("v_subbrev_co_u32", v_subbrev_co_u32, "u32 mask", "u32 u32 mask"),
        _op("v_mul_hi_u32", v_mul_hi_u32, "u32", "u32 u32"),
        _op("v_mul_hi_i32", v_mul_hi_i32, "i32", "i32 i32"),
        _op("v_mul_u32_u24", v_mul_u32_u24, "u32", "u32 u32"),
        _op("v_mul_i32_i24", v_mul_i32_i24, "i32", "i32 i32"),
        _op("v_mad_u32_u24", v_mad_u32_u24, "u32", "u32 u32 u32"),
        _op("v_mad_i32_i24", v_mad_i32_i24, "i32", "i32 i32 i32"),
        _op("v_mad_u64_u32", v_mad_u64_u32, "b64 mask", "u32 u32 b64"),
        _op("v_mad_i64_i32", v_mad_i64_i32, "b64 mask", "i32 i32 b64"),
        _op("v_lshl_add_u64", v_lshl_add_u64, "b64", "b64 u32 b64"),
        _op("v_min3_u32", _extreme3(np.minimum, False), "u32", "u32 u32 u32"),
        _op("v_max3_u32", _extreme3(np.maximum, False), "u32", "u32 u32 u32"),
        _op("v_min3_i32", _extreme3(np.minimum, True), "i32", "i32 i32 i32"),
        _op("v_max3_i32", _extreme3(np.maximum, True), "i32", "i32 i32 i32"),
        _op("v_med3_i32", _median3(True), "i32", "i32 i32 i32"),
        _op("v_med3_u32", _median3(False), "u32", "u32 u32 u32"),
    ]
)
