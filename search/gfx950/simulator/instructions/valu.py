"""Vector ALU on integers of 32 and 64 bits, and moves between lanes.

Each entry is one instruction of the MI300 ISA guide, section "Vector ALU instructions"; LLVM ``AMDGPUUsage`` for the
swaps of gfx950. Rows are [waves, 64] (or [waves, 1], [1, 1] for scalar and constant sources); the binder redirects the
result when EXEC is not full. What gets the row ``out`` reads its sources before it writes: they may be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from search.gfx950.simulator.decode.op import Op, Semantics, table
from search.gfx950.simulator.decode.values import (
    Operation,
    bits_of,
    from_bits,
    mask_op,
    rows_op,
    rows_swapped,
    saturated,
    value_op,
    vector_op,
)
from search.gfx950.simulator.state import shadow as rules
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.state import LANES, WaveGroup

_U64 = np.uint64
_1, _31 = np.uint32(1), np.uint32(31)
_BELOW = (_U64(1) << np.arange(LANES, dtype=_U64)) - _U64(1)  # of each lane: the lanes before it


def _copy(x: Array, out: Array) -> None:
    out[...] = x


def _places64(count: Array) -> Array:
    return (count & np.uint32(63)).astype(_U64)


def _shift_right64(count: Array, x: Array) -> Array:
    return (x.view(np.int64) >> _places64(count).view(np.int64)).view(_U64)


def _field(x: Array, place: Array, width: Array, out: Array) -> None:
    """V_BFE_U32: (S0 >> S1[4:0]) & ones(S2[4:0])."""
    np.bitwise_and(x >> (place & _31), (_1 << (width & _31)) - _1, out=out)


def _signed_field(x: Array, place: Array, width: Array) -> Array:
    """As V_BFE_U32, sign-extended from the field's top bit; bits above bit 31 read as 0."""
    bits = (width & _31).astype(np.int64)
    field = (x >> (place & _31)).astype(np.int64)
    spare = (np.int64(64) - bits) & np.int64(63)
    return np.where(bits == 0, np.int64(0), (field << spare) >> spare)


def _joined(high: Array, low: Array) -> Array:
    return (high.astype(_U64) << _U64(32)) | low


def _permuted(high: Array, low: Array, selector: Array) -> Array:
    """V_PERM_B32: byte n is the byte of {S0,S1} that byte n of S2 names: 0-3 in S1, 4-7 in S0.

    8-11 replicate the sign of bytes 1, 3, 5, 7; 12 is 0x00; 13 and above 0xFF.
    """
    if selector.shape[1] == 1 and (selector == selector[0, 0]).all():
        return _uniform_permute(high, low, int(selector[0, 0]))
    source = _joined(high, low)
    result: Array = np.zeros((1, 1), np.uint32)
    for byte in range(4):
        select = (selector >> np.uint32(8 * byte)) & np.uint32(0xFF)
        result = result | (_permuted_byte(source, select) << np.uint32(8 * byte))
    return result


def _uniform_permute(high: Array, low: Array, selector: int) -> Array:
    """V_PERM_B32 with one selector for all lanes: a few 32-bit shifts."""
    result: Array = np.zeros((1, 1), np.uint32)
    for byte in range(4):
        select = selector >> (8 * byte) & 0xFF
        if select < 8:
            word = high if select & 4 else low
            picked = (word >> np.uint32(8 * (select & 3))) & np.uint32(0xFF)
        elif select < 12:
            word = high if select & 2 else low
            sign = word.view(np.int32) << np.int32(0 if select & 1 else 16)
            picked = (sign >> np.int32(31)).view(np.uint32) & np.uint32(0xFF)
        else:
            picked = np.full((1, 1), 0 if select == 12 else 0xFF, np.uint32)
        result = np.asarray(result | (picked << np.uint32(8 * byte)))
    return result


def _permuted_byte(source: Array, select: Array) -> Array:
    low = (select & np.uint32(7)).astype(_U64) << _U64(3)
    plain = ((source >> low) & _U64(0xFF)).astype(np.uint32)
    if not np.any(select > 7):
        return np.asarray(plain)
    sign_at = (((select & np.uint32(3)) * np.uint32(2) + np.uint32(1)).astype(_U64) << _U64(3)) + _U64(7)
    sign = ((source >> sign_at) & _U64(1)).astype(np.uint32) * np.uint32(0xFF)
    constant = np.where(select == 12, np.uint32(0), np.uint32(0xFF))
    return np.asarray(np.where(select < 8, plain, np.where(select < 12, sign, constant)))


def _highest(x: Array) -> Array:
    """Number of zeros above the highest one, -1 for 0."""
    return np.where(x == 0, -1, 32 - np.frexp(x.astype(np.float64))[1])


def _lowest(x: Array) -> Array:
    """Position of the lowest one, -1 for 0."""
    return np.where(x == 0, -1, np.frexp((x & (~x + _1)).astype(np.float64))[1] - 1)


def _sum(x: Array, y: Array) -> tuple[Array, Array]:
    """With the carry."""
    result = x + y
    return result, result < x


def _difference(x: Array, y: Array) -> tuple[Array, Array]:
    """With the borrow."""
    return x - y, x < y


def _sum_with_carry(x: Array, y: Array, carry: Array) -> tuple[Array, Array]:
    total = x.astype(_U64) + y + carry
    return total, total > 0xFFFFFFFF


def _difference_with_borrow(x: Array, y: Array, borrow: Array) -> tuple[Array, Array]:
    total = x.astype(np.int64) - y - borrow
    return total, total < 0


def _product_sum(x: Array, y: Array, addend: Array) -> tuple[Array, Array]:
    """V_MAD_U64_U32, with the carry out of 64 bits."""
    product = x.astype(_U64) * y
    total = product + addend
    return total, total < product


def _signed_product_sum(x: Array, y: Array, addend: Array) -> tuple[Array, Array]:
    """V_MAD_I64_I32, with the signed overflow."""
    product, signed = x.astype(np.int64) * y, addend.view(np.int64)
    total = product + signed
    return total.view(_U64), ((product ^ total) & (signed ^ total)) < 0


def _low24(x: Array) -> Array:
    return x & np.uint32(0xFFFFFF)


def _signed24(x: Array) -> Array:
    return (x << np.int32(8)) >> np.int32(8)


def _product24(x: Array, y: Array) -> Array:
    return _signed24(x).astype(np.int64) * _signed24(y)


def _median(x: Array, y: Array, z: Array, out: Array) -> None:
    np.maximum(np.minimum(x, y), np.minimum(np.maximum(x, y), z), out=out)


def _extremes(kind: str) -> Iterator[Op]:
    """Smallest, largest and middle of two and of three."""
    two, three = f"{kind} {kind}", f"{kind} {kind} {kind}"
    yield rows_op(f"v_min_{kind}", np.minimum, two)
    yield rows_op(f"v_max_{kind}", np.maximum, two)
    yield rows_op(f"v_min3_{kind}", lambda x, y, z, out: np.minimum(np.minimum(x, y), z, out=out), three)
    yield rows_op(f"v_max3_{kind}", lambda x, y, z, out: np.maximum(np.maximum(x, y), z, out=out), three)
    yield rows_op(f"v_med3_{kind}", _median, three)


def _ones_of_lanes(lanes: Array) -> Operation:
    """V_MBCNT: S1 + number of ones of S0 among ``lanes``, uint32 [64]."""
    return lambda x, y, out: np.add(np.bitwise_count(x & lanes), y, out=out)


def _distance(x: Array, y: Array) -> Array:
    return np.asarray(np.maximum(x, y) - np.minimum(x, y))


def _distances(width: int, shift: int = 0, masked: bool = False) -> Operation:
    """Sum of |S0 - S1| over fields of ``width`` bits, shifted, plus S2; masked: where the field of S1 is not 0."""

    def operation(x: Array, y: Array, z: Array, out: Array) -> None:
        total: Array = np.zeros((1, 1), np.uint32)
        mask = np.uint32((1 << width) - 1)
        for place in map(np.uint32, range(0, 32, width)):
            field = (y >> place) & mask
            distance = _distance((x >> place) & mask, field)
            total = total + (np.where(field != 0, distance, np.uint32(0)) if masked else distance)
        np.add(total << np.uint32(shift), z, out=out)

    return operation


def _byte_means(x: Array, y: Array, rounding: Array) -> Array:
    """V_LERP_U8: each byte is (S0 + S1 + bit 0 of S2) >> 1."""
    result: Array = np.zeros((1, 1), np.uint32)
    for place in map(np.uint32, range(0, 32, 8)):
        a, b = ((word >> place) & np.uint32(0xFF) for word in (x, y))
        result = result | ((a + b + ((rounding >> place) & _1)) >> _1) << place
    return result


def v_readfirstlane_b32(g: WaveGroup, d: int, a: int) -> None:
    """D.sgpr = S0 of the lowest active lane (lane 0 if none is active)."""
    row = g.u[a]
    if row.shape[1] == 1:
        g.u[d][...] = row
    elif g.full:
        g.u[d][...] = row[:, :1]
    else:
        g.u[d][...] = np.take_along_axis(row, g.mask.argmax(axis=1)[:, None], axis=1)


def v_readlane_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D.sgpr = S0 of lane S1[5:0], whatever EXEC is."""
    lane = np.broadcast_to(g.u[b] & np.uint32(63), (g.count, 1)).astype(np.int64)
    g.u[d][...] = np.take_along_axis(g.u[a], lane, axis=1)


def v_writelane_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """Lane S1[5:0] of D = S0, whatever EXEC is."""
    lane = np.broadcast_to(g.u[b] & np.uint32(63), (g.count, 1))
    np.copyto(g.u[d], g.u[a], where=np.arange(LANES, dtype=np.uint32) == lane)


def _exchange(swapped: Callable[[Array, Array], tuple[Array, Array]]) -> Semantics:
    """Both registers = ``swapped`` of both."""

    def run(g: WaveGroup, d: int, s: int, first: int, second: int) -> None:
        g.u[d][...], g.u[s][...] = swapped(g.u[first], g.u[second])

    return run


_BOTH = ("dst", "dst1")
_SUM = {"shadow": rules.low_bits_first}
OPS = table(
    [
        vector_op("v_nop", lambda g: None, "", ""),
        *(
            rows_op(name, _copy, "u32", shadow=rules.bitwise_copy)
            for name in ("v_mov_b32", "v_accvgpr_read_b32", "v_accvgpr_write_b32", "v_accvgpr_mov_b32")
        ),
        value_op("v_mov_b64", lambda x: x, "b64", "b64", shadow=rules.bitwise_copy),
        rows_op("v_not_b32", np.invert, "u32", shadow=rules.bitwise_copy),
        value_op("v_bfrev_b32", lambda x: from_bits(bits_of(x)[..., ::-1], np.uint32), "u32", "u32"),
        rows_op("v_and_b32", np.bitwise_and, "u32 u32", shadow=rules.bitwise_and),
        rows_op("v_or_b32", np.bitwise_or, "u32 u32", shadow=rules.bitwise_or),
        rows_op("v_xor_b32", np.bitwise_xor, "u32 u32", shadow=rules.bitwise_xor),
        rows_op("v_xnor_b32", lambda x, y, out: np.invert(x ^ y, out=out), "u32 u32", shadow=rules.bitwise_xor),
        rows_op("v_add_u32", np.add, "u32 u32", **_SUM),
        rows_op("v_sub_u32", np.subtract, "u32 u32", **_SUM),
        rows_op("v_subrev_u32", lambda x, y, out: np.subtract(y, x, out=out), "u32 u32", **_SUM),
        rows_op("v_add_i32", np.add, "u32 u32", **_SUM),
        rows_op("v_sub_i32", np.subtract, "u32 u32", **_SUM),
        value_op("v_add_u32.clamp", saturated(np.add, np.uint32), "u32", "u32 u32"),
        value_op("v_sub_u32.clamp", saturated(np.subtract, np.uint32), "u32", "u32 u32"),
        value_op("v_add_i32.clamp", saturated(np.add, np.int32), "i32", "i32 i32"),
        value_op("v_sub_i32.clamp", saturated(np.subtract, np.int32), "i32", "i32 i32"),
        mask_op("v_add_co_u32", _sum, "u32", "u32 u32"),
        mask_op("v_sub_co_u32", _difference, "u32", "u32 u32"),
        mask_op("v_subrev_co_u32", lambda x, y: _difference(y, x), "u32", "u32 u32"),
        mask_op("v_addc_co_u32", _sum_with_carry, "u32", "u32 u32 mask"),
        mask_op("v_subb_co_u32", _difference_with_borrow, "u32", "u32 u32 mask"),
        mask_op("v_subbrev_co_u32", lambda x, y, c: _difference_with_borrow(y, x, c), "u32", "u32 u32 mask"),
        rows_op("v_lshlrev_b32", lambda n, x, out: np.left_shift(x, n & _31, out=out), "u32 u32",
                shadow=rules.shift_left_reversed),
        rows_op("v_lshrrev_b32", lambda n, x, out: np.right_shift(x, n & _31, out=out), "u32 u32",
                shadow=rules.shift_right_reversed),
        rows_op("v_ashrrev_i32", lambda n, x, out: np.right_shift(x, n & np.int32(31), out=out), "i32 i32"),
        value_op("v_lshlrev_b64", lambda n, x: x << _places64(n), "b64", "u32 b64"),
        value_op("v_lshrrev_b64", lambda n, x: x >> _places64(n), "b64", "u32 b64"),
        value_op("v_ashrrev_i64", _shift_right64, "b64", "u32 b64"),
        *_extremes("u32"),
        *_extremes("i32"),
        rows_op("v_mul_lo_u32", np.multiply, "u32 u32"),
        value_op("v_mul_hi_u32", lambda x, y: (x.astype(_U64) * y) >> _U64(32), "u32", "u32 u32"),
        value_op("v_mul_hi_i32", lambda x, y: (x.astype(np.int64) * y) >> np.int64(32), "i32", "i32 i32"),
        rows_op("v_mul_u32_u24", lambda x, y, out: np.multiply(_low24(x), _low24(y), out=out), "u32 u32"),
        rows_op("v_mul_i32_i24", lambda x, y, out: np.multiply(_signed24(x), _signed24(y), out=out), "i32 i32"),
        value_op("v_mul_hi_u32_u24", lambda x, y: (_low24(x).astype(_U64) * _low24(y)) >> _U64(32), "u32", "u32 u32"),
        value_op("v_mul_hi_i32_i24", lambda x, y: _product24(x, y) >> np.int64(32), "i32", "i32 i32"),
        rows_op("v_mad_u32_u24", lambda x, y, z, out: np.add(_low24(x) * _low24(y), z, out=out), "u32 u32 u32"),
        rows_op("v_mad_i32_i24", lambda x, y, z, out: np.add(_signed24(x) * _signed24(y), z, out=out), "i32 i32 i32"),
        mask_op("v_mad_u64_u32", _product_sum, "b64", "u32 u32 b64"),
        mask_op("v_mad_i64_i32", _signed_product_sum, "b64", "i32 i32 b64"),
        rows_op("v_add3_u32", lambda x, y, z, out: np.add(x + y, z, out=out), "u32 u32 u32", **_SUM),
        rows_op("v_lshl_add_u32", lambda x, n, z, out: np.add(x << (n & _31), z, out=out), "u32 u32 u32"),
        rows_op("v_add_lshl_u32", lambda x, y, n, out: np.left_shift(x + y, n & _31, out=out), "u32 u32 u32"),
        value_op("v_lshl_add_u64", lambda x, n, z: (x << (n & np.uint32(7)).astype(_U64)) + z, "b64", "b64 u32 b64"),
        rows_op("v_lshl_or_b32", lambda x, n, z, out: np.bitwise_or(x << (n & _31), z, out=out), "u32 u32 u32",
                shadow=rules.shift_left_or),
        rows_op("v_and_or_b32", lambda x, y, z, out: np.bitwise_or(x & y, z, out=out), "u32 u32 u32",
                shadow=rules.and_or),
        rows_op("v_or3_b32", lambda x, y, z, out: np.bitwise_or(x | y, z, out=out), "u32 u32 u32",
                shadow=rules.or_three),
        rows_op("v_xad_u32", lambda x, y, z, out: np.add(x ^ y, z, out=out), "u32 u32 u32", **_SUM),
        rows_op("v_bfi_b32", lambda mask, y, z, out: np.bitwise_or(mask & y, ~mask & z, out=out), "u32 u32 u32"),
        rows_op("v_bfe_u32", _field, "u32 u32 u32", shadow=rules.bit_field),
        value_op("v_bfe_i32", _signed_field, "i32", "u32 u32 u32", shadow=rules.bit_field),
        rows_op("v_bfm_b32", lambda n, x, out: np.left_shift((_1 << (n & _31)) - _1, x & _31, out=out), "u32 u32"),
        value_op("v_alignbit_b32", lambda x, y, n: _joined(x, y) >> (n & _31).astype(_U64), "u32", "u32 u32 u32"),
        value_op("v_alignbyte_b32", lambda x, y, n: _joined(x, y) >> (8 * (n & np.uint32(3))).astype(_U64), "u32",
                 "u32 u32 u32"),
        value_op("v_perm_b32", _permuted, "u32", "u32 u32 u32", shadow=rules.byte_permute),
        value_op("v_cndmask_b32", lambda x, y, mask: np.where(mask, y, x), "u32", "u32 u32 mask"),
        rows_op("v_bcnt_u32_b32", lambda x, y, out: np.add(np.bitwise_count(x), y, out=out), "u32 u32"),
        rows_op("v_mbcnt_lo_u32_b32", _ones_of_lanes(_BELOW.astype(np.uint32)), "u32 u32"),
        rows_op("v_mbcnt_hi_u32_b32", _ones_of_lanes((_BELOW >> _U64(32)).astype(np.uint32)), "u32 u32"),
        value_op("v_ffbh_u32", _highest, "i32", "u32"),
        value_op("v_ffbh_i32", lambda x: _highest(np.where(x < 0, ~x, x)), "i32", "i32"),
        value_op("v_ffbl_b32", _lowest, "i32", "u32"),
        rows_op("v_sad_u32", lambda x, y, z, out: np.add(_distance(x, y), z, out=out), "u32 u32 u32"),
        rows_op("v_sad_u16", _distances(16), "u32 u32 u32"),
        rows_op("v_sad_u8", _distances(8), "u32 u32 u32"),
        rows_op("v_sad_hi_u8", _distances(8, 16), "u32 u32 u32"),
        rows_op("v_msad_u8", _distances(8, masked=True), "u32 u32 u32"),
        value_op("v_lerp_u8", _byte_means, "u32", "u32 u32 u32"),
        vector_op("v_readfirstlane_b32", v_readfirstlane_b32, "u32", "u32"),
        vector_op("v_readlane_b32", v_readlane_b32, "u32", "u32 u32"),
        vector_op("v_writelane_b32", v_writelane_b32, "u32", "u32 u32", ignores_exec=True, preserve=0xFFFFFFFF),
        vector_op("v_permlane16_swap_b32", _exchange(rows_swapped(16)), "u32 u32", "", implicit=_BOTH),
        vector_op("v_permlane32_swap_b32", _exchange(rows_swapped(32)), "u32 u32", "", implicit=_BOTH),
        vector_op("v_swap_b32", _exchange(lambda x, y: (y, x.copy())), "u32 u32", "", implicit=_BOTH),
    ]
)  # fmt: skip
