"""Vector ALU on integers: VOP1, VOP2, VOP3 moves, logic, shifts, sums and products.

Each function is one instruction of the MI300 ISA guide, section "Vector ALU instructions". Rows are [waves, 64] (or
[waves, 1], [1, 1] for scalar and constant sources); the binder redirects the result when EXEC is not full. A
function writes its result with its last NumPy call, since sources and destination may be the same register.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.op import Op, Semantics, table
from search.gfx950.simulator.instructions.salu_bits import reversed_bits
from search.gfx950.simulator.state import shadow as rules
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.state import LANES, WaveGroup

_U64 = np.uint64
_31 = np.uint32(31)
_LOW24 = np.uint32(0xFFFFFF)


def v_mov_b32(g: WaveGroup, d: int, a: int) -> None:
    """D = S0."""
    g.u[d][...] = g.u[a]


def v_mov_b64(g: WaveGroup, d: int, a: int) -> None:
    """D = S0, 64 bits."""
    g.write64(d, g.read64(a))


def v_nop(g: WaveGroup) -> None:
    """Nothing."""


def v_not_b32(g: WaveGroup, d: int, a: int) -> None:
    """D = ~S0."""
    np.invert(g.u[a], out=g.u[d])


def v_bfrev_b32(g: WaveGroup, d: int, a: int) -> None:
    """D = S0 with its bits reversed."""
    g.u[d][...] = reversed_bits(g.u[a])


def _ufunc(operation: Callable[..., Any]) -> Semantics:
    """D = operation(S0, S1), unsigned."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        operation(g.u[a], g.u[b], out=g.u[d])

    return run


def _ufunc_signed(operation: Callable[..., Any]) -> Semantics:
    """D = operation(S0, S1), signed."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        operation(g.i[a], g.i[b], out=g.i[d])

    return run


def v_subrev_u32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S1 - S0."""
    np.subtract(g.u[b], g.u[a], out=g.u[d])


def v_xnor_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = ~(S0 ^ S1)."""
    np.invert(g.u[a] ^ g.u[b], out=g.u[d])


def v_lshlrev_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S1 << S0[4:0]."""
    np.left_shift(g.u[b], g.u[a] & _31, out=g.u[d])


def v_lshrrev_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S1 >> S0[4:0]."""
    np.right_shift(g.u[b], g.u[a] & _31, out=g.u[d])


def v_ashrrev_i32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S1 >> S0[4:0], signed."""
    np.right_shift(g.i[b], g.i[a] & np.int32(31), out=g.i[d])


def _shift64(operation: Callable[..., Any], signed: bool = False) -> Semantics:
    """D = S1 shifted by S0[5:0], 64 bits."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        value = g.read64(b)
        count = (g.u[a] & np.uint32(63)).astype(_U64)
        if signed:
            g.write64(d, operation(value.view(np.int64), count.view(np.int64)).view(_U64))
        else:
            g.write64(d, operation(value, count))

    return run


def v_add3_u32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = S0 + S1 + S2."""
    np.add(g.u[a] + g.u[b], g.u[c], out=g.u[d])


def v_lshl_add_u32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = (S0 << S1[4:0]) + S2."""
    np.add(g.u[a] << (g.u[b] & _31), g.u[c], out=g.u[d])


def v_add_lshl_u32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = (S0 + S1) << S2[4:0]."""
    np.left_shift(g.u[a] + g.u[b], g.u[c] & _31, out=g.u[d])


def v_lshl_or_b32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = (S0 << S1[4:0]) | S2."""
    np.bitwise_or(g.u[a] << (g.u[b] & _31), g.u[c], out=g.u[d])


def v_and_or_b32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = (S0 & S1) | S2."""
    np.bitwise_or(g.u[a] & g.u[b], g.u[c], out=g.u[d])


def v_or3_b32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = S0 | S1 | S2."""
    np.bitwise_or(g.u[a] | g.u[b], g.u[c], out=g.u[d])


def v_xad_u32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = (S0 ^ S1) + S2."""
    np.add(g.u[a] ^ g.u[b], g.u[c], out=g.u[d])


def v_bfi_b32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = (S0 & S1) | (~S0 & S2)."""
    mask = g.u[a]
    np.bitwise_or(mask & g.u[b], ~mask & g.u[c], out=g.u[d])


def v_bfe_u32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = (S0 >> S1[4:0]) & ones(S2[4:0])."""
    ones = (np.uint32(1) << (g.u[c] & _31)) - np.uint32(1)
    np.bitwise_and(g.u[a] >> (g.u[b] & _31), ones, out=g.u[d])


def v_bfe_i32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """As V_BFE_U32, sign-extended from the field's top bit; bits above bit 31 read as 0."""
    width = (g.u[c] & _31).astype(np.int64)
    field = (g.u[a] >> (g.u[b] & _31)).astype(np.int64)
    spare = np.int64(64) - width
    result = np.where(width == 0, np.int64(0), (field << (spare & np.int64(63))) >> (spare & np.int64(63)))
    np.copyto(g.i[d], result, casting="unsafe")


def v_bfm_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = ((1 << S0[4:0]) - 1) << S1[4:0]."""
    one = np.uint32(1)
    np.left_shift((one << (g.u[a] & _31)) - one, g.u[b] & _31, out=g.u[d])


def v_alignbit_b32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = ({S0,S1} >> S2[4:0]) & 0xffffffff."""
    pair = (g.u[a].astype(_U64) << _U64(32)) | g.u[b]
    np.copyto(g.u[d], pair >> (g.u[c] & _31).astype(_U64), casting="unsafe")


def v_alignbyte_b32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = ({S0,S1} >> 8*S2[1:0]) & 0xffffffff."""
    pair = (g.u[a].astype(_U64) << _U64(32)) | g.u[b]
    np.copyto(g.u[d], pair >> ((g.u[c] & np.uint32(3)) << np.uint32(3)).astype(_U64), casting="unsafe")


def v_perm_b32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """Byte n of D is the byte of {S0,S1} that byte n of S2 names: 0-3 in S1, 4-7 in S0.

    8-11 replicate the sign of bytes 1, 3, 5, 7; 12 is 0x00; 13 and above 0xFF.
    """
    selector = g.u[c]
    if selector.shape[1] == 1 and (selector == selector[0, 0]).all():
        g.u[d][...] = _uniform_permute(g.u[a], g.u[b], int(selector[0, 0]))
        return
    source = (g.u[a].astype(_U64) << _U64(32)) | g.u[b]
    result: Array = np.zeros((g.count, LANES), np.uint32)
    for byte in range(4):
        select = (g.u[c] >> np.uint32(8 * byte)) & np.uint32(0xFF)
        result |= _permuted_byte(source, select) << np.uint32(8 * byte)
    g.u[d][...] = result


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


def v_cndmask_b32(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
    """D = mask lane ? S1 : S0."""
    g.u[d][...] = np.where(g.read_mask(c), g.u[b], g.u[a])


def v_bcnt_u32_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = number of ones in S0, plus S1."""
    raw = np.ascontiguousarray(g.u[a]).view(np.uint8).reshape(*g.u[a].shape, 4)
    np.add(np.unpackbits(raw, axis=-1).sum(axis=-1, dtype=np.uint32), g.u[b], out=g.u[d])


def v_ffbh_u32(g: WaveGroup, d: int, a: int) -> None:
    """D = number of zeros above the highest one, -1 for 0."""
    value = g.u[a]
    exponent = np.frexp(value.astype(np.float64))[1]
    g.i[d][...] = np.where(value == 0, -1, 32 - exponent)


def v_ffbl_b32(g: WaveGroup, d: int, a: int) -> None:
    """D = position of the lowest one, -1 for 0."""
    value = g.u[a]
    lowest = value & (~value + np.uint32(1))
    g.i[d][...] = np.where(value == 0, -1, np.frexp(lowest.astype(np.float64))[1] - 1)


_SUM = {"shadow": rules.low_bits_first}


def vector_op(name: str, semantics: Semantics, dst: str, src: str, **more: Any) -> Op:
    """Table entry of a vector instruction; ``dst`` and ``src`` list types."""
    return Op(name, semantics, tuple(dst.split()), tuple(src.split()), **more)


OPS = table(
    [
        vector_op("v_nop", v_nop, "", ""),
        vector_op("v_mov_b32", v_mov_b32, "u32", "u32", shadow=rules.bitwise_copy),
        vector_op("v_mov_b64", v_mov_b64, "b64", "b64", shadow=rules.bitwise_copy),
        vector_op("v_accvgpr_read_b32", v_mov_b32, "u32", "u32", shadow=rules.bitwise_copy),
        vector_op("v_accvgpr_write_b32", v_mov_b32, "u32", "u32", shadow=rules.bitwise_copy),
        vector_op("v_accvgpr_mov_b32", v_mov_b32, "u32", "u32", shadow=rules.bitwise_copy),
        vector_op("v_not_b32", v_not_b32, "u32", "u32", shadow=rules.bitwise_copy),
        vector_op("v_bfrev_b32", v_bfrev_b32, "u32", "u32"),
        vector_op("v_and_b32", _ufunc(np.bitwise_and), "u32", "u32 u32", shadow=rules.bitwise_and),
        vector_op("v_or_b32", _ufunc(np.bitwise_or), "u32", "u32 u32", shadow=rules.bitwise_or),
        vector_op("v_xor_b32", _ufunc(np.bitwise_xor), "u32", "u32 u32", shadow=rules.bitwise_xor),
        vector_op("v_xnor_b32", v_xnor_b32, "u32", "u32 u32", shadow=rules.bitwise_xor),
        vector_op("v_add_u32", _ufunc(np.add), "u32", "u32 u32", **_SUM),
        vector_op("v_sub_u32", _ufunc(np.subtract), "u32", "u32 u32", **_SUM),
        vector_op("v_subrev_u32", v_subrev_u32, "u32", "u32 u32", **_SUM),
        vector_op("v_add_i32", _ufunc(np.add), "u32", "u32 u32", **_SUM),
        vector_op("v_sub_i32", _ufunc(np.subtract), "u32", "u32 u32", **_SUM),
        vector_op("v_lshlrev_b32", v_lshlrev_b32, "u32", "u32 u32", shadow=rules.shift_left_reversed),
        vector_op("v_lshrrev_b32", v_lshrrev_b32, "u32", "u32 u32", shadow=rules.shift_right_reversed),
        vector_op("v_ashrrev_i32", v_ashrrev_i32, "i32", "u32 i32"),
        vector_op("v_lshlrev_b64", _shift64(np.left_shift), "b64", "u32 b64"),
        vector_op("v_lshrrev_b64", _shift64(np.right_shift), "b64", "u32 b64"),
        vector_op("v_ashrrev_i64", _shift64(np.right_shift, True), "b64", "u32 b64"),
        vector_op("v_min_u32", _ufunc(np.minimum), "u32", "u32 u32"),
        vector_op("v_max_u32", _ufunc(np.maximum), "u32", "u32 u32"),
        vector_op("v_min_i32", _ufunc_signed(np.minimum), "i32", "i32 i32"),
        vector_op("v_max_i32", _ufunc_signed(np.maximum), "i32", "i32 i32"),
        vector_op("v_mul_lo_u32", _ufunc(np.multiply), "u32", "u32 u32"),
        vector_op("v_add3_u32", v_add3_u32, "u32", "u32 u32 u32", **_SUM),
        vector_op("v_lshl_add_u32", v_lshl_add_u32, "u32", "u32 u32 u32"),
        vector_op("v_add_lshl_u32", v_add_lshl_u32, "u32", "u32 u32 u32"),
        vector_op("v_lshl_or_b32", v_lshl_or_b32, "u32", "u32 u32 u32", shadow=rules.shift_left_or),
        vector_op("v_and_or_b32", v_and_or_b32, "u32", "u32 u32 u32", shadow=rules.and_or),
        vector_op("v_or3_b32", v_or3_b32, "u32", "u32 u32 u32", shadow=rules.or_three),
        vector_op("v_xad_u32", v_xad_u32, "u32", "u32 u32 u32", **_SUM),
        vector_op("v_bfi_b32", v_bfi_b32, "u32", "u32 u32 u32"),
        vector_op("v_bfe_u32", v_bfe_u32, "u32", "u32 u32 u32", shadow=rules.bit_field),
        vector_op("v_bfe_i32", v_bfe_i32, "i32", "u32 u32 u32", shadow=rules.bit_field),
        vector_op("v_bfm_b32", v_bfm_b32, "u32", "u32 u32"),
        vector_op("v_alignbit_b32", v_alignbit_b32, "u32", "u32 u32 u32"),
        vector_op("v_alignbyte_b32", v_alignbyte_b32, "u32", "u32 u32 u32"),
        vector_op("v_perm_b32", v_perm_b32, "u32", "u32 u32 u32", shadow=rules.byte_permute),
        vector_op("v_cndmask_b32", v_cndmask_b32, "u32", "u32 u32 mask"),
        vector_op("v_bcnt_u32_b32", v_bcnt_u32_b32, "u32", "u32 u32"),
        vector_op("v_ffbh_u32", v_ffbh_u32, "i32", "u32"),
        vector_op("v_ffbl_b32", v_ffbl_b32, "i32", "u32"),
    ]
)
