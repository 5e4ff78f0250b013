"""Scalar ALU: SOP1, SOP2, SOPC, SOPK.

Each function is one instruction of the MI300 ISA guide, section "Scalar ALU instructions", executed for all waves of
a group: operands are register indices of [waves, 1] rows. SCC is a bool row. Shift counts use their low 5 (or 6) bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.op import InstructionClass, Op, Semantics, table
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.shadow import bitwise_copy
from search.gfx950.simulator.state.state import WaveGroup

_U64 = np.uint64
_ONE = np.uint64(1)
_FULL = np.uint64(0xFFFFFFFFFFFFFFFF)


def _zero_extended(g: WaveGroup, index: int) -> Array:
    return np.asarray(g.u[index].astype(_U64))


def set_scc(g: WaveGroup, value: Array) -> None:
    """SCC = ``value`` [waves, 1], bool."""
    # Comparing two constants gives one value for all waves. Rows of scc are never changed in place.
    g.scc = value if value.shape[0] == g.count else np.broadcast_to(value, (g.count, 1))


def s_mov_b32(g: WaveGroup, d: int, a: int) -> None:
    """D = S0."""
    g.u[d][...] = g.u[a]


def s_mov_b64(g: WaveGroup, d: int, a: int) -> None:
    """D = S0, 64 bits."""
    g.write64(d, g.read64(a))


def s_cmov_b32(g: WaveGroup, d: int, a: int, old: int) -> None:
    """D = SCC ? S0 : D."""
    g.u[d][...] = np.where(g.scc, g.u[a], g.u[old])


def s_cselect_b32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = SCC ? S0 : S1."""
    g.u[d][...] = np.where(g.scc, g.u[a], g.u[b])


def s_cselect_b64(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = SCC ? S0 : S1, 64 bits."""
    g.write64(d, np.where(g.scc, g.read64(a), g.read64(b)))


def s_add_u32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S0 + S1; SCC = carry out."""
    x = g.u[a]
    result = x + g.u[b]
    set_scc(g, result < x)
    g.u[d][...] = result


def s_addc_u32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S0 + S1 + SCC; SCC = carry out."""
    total = _zero_extended(g, a) + g.u[b] + g.scc
    set_scc(g, total > 0xFFFFFFFF)
    np.copyto(g.u[d], total, casting="unsafe")


def s_sub_u32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S0 - S1; SCC = borrow out."""
    x, y = g.u[a], g.u[b]
    borrow = x < y
    g.u[d][...] = x - y
    set_scc(g, borrow)


def s_subb_u32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S0 - S1 - SCC; SCC = borrow out."""
    take = _zero_extended(g, b) + g.scc
    x = _zero_extended(g, a)
    set_scc(g, x < take)
    np.copyto(g.u[d], x - take, casting="unsafe")


def s_add_i32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S0 + S1; SCC = signed overflow."""
    x, y = g.u[a], g.u[b]
    result = x + y
    overflow = ((x ^ result) & (y ^ result)) >> np.uint32(31)
    g.u[d][...] = result
    set_scc(g, overflow != 0)


def s_sub_i32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = S0 - S1; SCC = signed overflow."""
    x, y = g.u[a], g.u[b]
    result = x - y
    overflow = ((x ^ y) & (x ^ result)) >> np.uint32(31)
    g.u[d][...] = result
    set_scc(g, overflow != 0)


def s_mul_i32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = low 32 bits of S0 * S1."""
    np.multiply(g.u[a], g.u[b], out=g.u[d])


def s_mul_hi_u32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = high 32 bits of the unsigned product."""
    np.copyto(g.u[d], (_zero_extended(g, a) * g.u[b]) >> _U64(32), casting="unsafe")


def s_mul_hi_i32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = high 32 bits of the signed product."""
    np.copyto(g.i[d], (g.i[a].astype(np.int64) * g.i[b]) >> np.int64(32), casting="unsafe")


def s_abs_i32(g: WaveGroup, d: int, a: int) -> None:
    """D = |S0| (0x80000000 stays); SCC = D != 0."""
    np.absolute(g.i[a], out=g.i[d])
    set_scc(g, g.u[d] != 0)


def s_absdiff_i32(g: WaveGroup, d: int, a: int, b: int) -> None:
    """D = |S0 - S1| on wrapped 32-bit arithmetic; SCC = D != 0."""
    np.absolute(g.i[a] - g.i[b], out=g.i[d])
    set_scc(g, g.u[d] != 0)


def _shift_add(places: int) -> Semantics:
    """S_LSHLn_ADD_U32: D = (S0 << n) + S1; SCC = carry out of 32 bits."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        total = (_zero_extended(g, a) << _U64(places)) + g.u[b]
        np.copyto(g.u[d], total, casting="unsafe")
        set_scc(g, total > 0xFFFFFFFF)

    return run


def _select(signed: bool, smaller: bool) -> Semantics:
    """S_MIN/S_MAX: SCC = S0 was chosen (strictly smaller for min, strictly larger for max)."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        x, y = (g.i[a], g.i[b]) if signed else (g.u[a], g.u[b])
        first = x < y if smaller else x > y
        g.u[d][...] = np.where(first, g.u[a], g.u[b])
        set_scc(g, first)

    return run


def _compare(operation: Callable[[Array, Array], Array], signed: bool) -> Semantics:
    """S_CMP: SCC = operation(S0, S1)."""

    def run(g: WaveGroup, a: int, b: int) -> None:
        rows = g.i if signed else g.u
        set_scc(g, operation(rows[a], rows[b]))

    return run


def _compare64(operation: Callable[[Array, Array], Array]) -> Semantics:
    """S_CMP on 64-bit operands."""

    def run(g: WaveGroup, a: int, b: int) -> None:
        set_scc(g, operation(g.read64(a), g.read64(b)))

    return run


def s_movk_i32(g: WaveGroup, d: int, a: int) -> None:
    """D = sign-extended 16-bit immediate."""
    g.i[d][...] = g.u[a].astype(np.int16)


def s_addk_i32(g: WaveGroup, d: int, a: int, old: int) -> None:
    """D = D + sign-extended 16-bit immediate; SCC = signed overflow."""
    total = g.i[old].astype(np.int64) + g.u[a].astype(np.int16)
    np.copyto(g.u[d], total, casting="unsafe")
    set_scc(g, total != g.i[d])


def s_mulk_i32(g: WaveGroup, d: int, a: int, old: int) -> None:
    """D = D * sign-extended 16-bit immediate."""
    g.i[d][...] = g.i[old] * g.u[a].astype(np.int16).astype(np.int32)


def _compare_k(operation: Callable[[Array, Array], Array], signed: bool) -> Semantics:
    """S_CMPK: SCC = operation(S0, 16-bit immediate), sign- or zero-extended."""

    def run(g: WaveGroup, a: int, b: int) -> None:
        immediate = g.u[b]
        if signed:
            set_scc(g, operation(g.i[a], immediate.astype(np.int16).astype(np.int32)))
        else:
            set_scc(g, operation(g.u[a], immediate & np.uint32(0xFFFF)))

    return run


_RELATIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "lg": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip


def scalar_op(name: str, semantics: Semantics, dst: str, src: str, scc: bool = True, **more: Any) -> Op:
    """Table entry of a scalar instruction; ``dst`` and ``src`` list types."""
    kind = InstructionClass.SCALAR
    return Op(name, semantics, tuple(dst.split()), tuple(src.split()), kind=kind, sets_scc=scc, **more)


def _comparisons() -> list[Op]:
    ops = []
    for name, relation in _RELATIONS.items():
        ops.append(scalar_op(f"s_cmp_{name}_i32", _compare(relation, True), "", "i32 i32"))
        ops.append(scalar_op(f"s_cmp_{name}_u32", _compare(relation, False), "", "u32 u32"))
        ops.append(scalar_op(f"s_cmpk_{name}_i32", _compare_k(relation, True), "", "i32 u32"))
        ops.append(scalar_op(f"s_cmpk_{name}_u32", _compare_k(relation, False), "", "u32 u32"))
    ops.append(scalar_op("s_cmp_eq_u64", _compare64(np.equal), "", "b64 b64"))
    ops.append(scalar_op("s_cmp_lg_u64", _compare64(np.not_equal), "", "b64 b64"))
    return ops


OPS = table(
    [
        scalar_op("s_mov_b32", s_mov_b32, "u32", "u32", False, shadow=bitwise_copy),
        scalar_op("s_mov_b64", s_mov_b64, "b64", "b64", False, shadow=bitwise_copy),
        scalar_op("s_cmov_b32", s_cmov_b32, "u32", "u32", False, implicit=("scc", "dst")),
        scalar_op("s_cselect_b32", s_cselect_b32, "u32", "u32 u32", False, implicit=("scc",)),
        scalar_op("s_cselect_b64", s_cselect_b64, "b64", "b64 b64", False, implicit=("scc",)),
        scalar_op("s_add_u32", s_add_u32, "u32", "u32 u32"),
        scalar_op("s_addc_u32", s_addc_u32, "u32", "u32 u32", implicit=("scc",)),
        scalar_op("s_sub_u32", s_sub_u32, "u32", "u32 u32"),
        scalar_op("s_subb_u32", s_subb_u32, "u32", "u32 u32", implicit=("scc",)),
        scalar_op("s_add_i32", s_add_i32, "i32", "i32 i32"),
        scalar_op("s_sub_i32", s_sub_i32, "i32", "i32 i32"),
        scalar_op("s_mul_i32", s_mul_i32, "i32", "i32 i32", False),
        scalar_op("s_mul_hi_u32", s_mul_hi_u32, "u32", "u32 u32", False),
        scalar_op("s_mul_hi_i32", s_mul_hi_i32, "i32", "i32 i32", False),
        scalar_op("s_abs_i32", s_abs_i32, "i32", "i32"),
        scalar_op("s_absdiff_i32", s_absdiff_i32, "i32", "i32 i32"),
        *(scalar_op(f"s_lshl{n}_add_u32", _shift_add(n), "u32", "u32 u32") for n in (1, 2, 3, 4)),
        scalar_op("s_min_i32", _select(True, True), "i32", "i32 i32"),
        scalar_op("s_max_i32", _select(True, False), "i32", "i32 i32"),
        scalar_op("s_min_u32", _select(False, True), "u32", "u32 u32"),
        scalar_op("s_max_u32", _select(False, False), "u32", "u32 u32"),
        scalar_op("s_movk_i32", s_movk_i32, "i32", "u32", False),
        scalar_op("s_addk_i32", s_addk_i32, "i32", "u32", implicit=("dst",)),
        scalar_op("s_mulk_i32", s_mulk_i32, "i32", "u32", False, implicit=("dst",)),
        *_comparisons(),
    ]
)
