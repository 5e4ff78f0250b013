"""Scalar ALU: SOP1, SOP2, SOPC, SOPK, on 32 and on 64 bits.

Each entry is one instruction of the MI300 ISA guide, section "Scalar ALU instructions", executed for all waves of a
group: its sources are [waves, 1] rows (or [1, 1] constants), uint64 where the type has 64 bits. SCC is a bool row. An
operation serves both widths: shift counts use their low 5 or 6 bits, as the value has 32 or 64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.op import InstructionClass, Op, Semantics, table
from search.gfx950.simulator.decode.values import (
    HIGH,
    LOW,
    READERS,
    WRITERS,
    Operation,
    bits_of,
    computed,
    from_bits,
    paired,
)
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.registers import EXEC
from search.gfx950.simulator.state.shadow import bitwise_and, bitwise_copy, bitwise_or, bitwise_xor
from search.gfx950.simulator.state.state import WaveGroup

_U64 = np.uint64
_OVER = 0xFFFFFFFF  # sums of more have a carry
_WIDTHS = (("b32", "u32"), ("b64", "b64"))  # in names, in tables


def set_scc(g: WaveGroup, value: Array) -> None:
    """SCC = ``value`` [waves, 1], bool."""
    # Comparing two constants gives one value for all waves. Rows of scc are never changed in place.
    g.scc = value if value.shape[0] == g.count else np.broadcast_to(value, (g.count, 1))


def _scalar(name: str, semantics: Semantics, dst: str, src: str, implicit: str, sets_scc: bool, **more: Any) -> Op:
    hidden = tuple(implicit.split())
    kinds = (tuple(dst.split()), tuple(src.split()))
    return Op(name, semantics, *kinds, hidden, kind=InstructionClass.SCALAR, sets_scc=sets_scc, **more)


def _plain(name: str, operation: Operation, dst: str, src: str, implicit: str = "", **more: Any) -> Op:
    """D = operation(S0, …), the ``implicit`` sources (``scc``, ``dst``) last; SCC stays."""
    hidden = implicit.replace("dst", dst)
    return _scalar(name, computed(operation, f"{src} {hidden}", WRITERS[dst]), dst, src, implicit, False, **more)


def _flagged(name: str, operation: Operation, dst: str, src: str, implicit: str = "", **more: Any) -> Op:
    """(D, SCC) = operation(S0, …)."""
    write_result = WRITERS[dst]

    def write(g: WaveGroup, d: int, results: tuple[Array, Array]) -> None:
        write_result(g, d, results[0])
        set_scc(g, results[1])

    hidden = implicit.replace("dst", dst)
    return _scalar(name, computed(operation, f"{src} {hidden}", write), dst, src, implicit, True, **more)


def _nonzero(name: str, operation: Operation, dst: str, src: str, **more: Any) -> Op:
    """D = operation(S0, …); SCC = D != 0."""
    write_result = WRITERS[dst]

    def write(g: WaveGroup, d: int, result: Array) -> None:
        write_result(g, d, result)
        set_scc(g, result != 0)

    return _scalar(name, computed(operation, src, write), dst, src, "", True, **more)


def _test(name: str, relation: Operation, src: str) -> Op:
    """SCC = relation(S0, S1)."""
    x, y = (READERS[kind] for kind in src.split())
    return _scalar(name, lambda g, a, b: set_scc(g, relation(x(g, a), y(g, b))), "", src, "", True)


def _same(x: Array) -> Array:
    return x


def _chosen(x: Array, y: Array, scc: Array) -> Array:
    """SCC ? S0 : S1."""
    return np.where(scc, x, y)


def _moved(x: Array, scc: Array, old: Array) -> Array:
    """SCC ? S0 : D."""
    return np.where(scc, x, old)


def _immediate(x: Array) -> Array:
    """The 16 bits of a SOPK instruction, sign-extended."""
    return x.astype(np.int16).astype(np.int32)


def _to_immediate(relation: Operation, extend: Operation) -> Operation:
    """S_CMPK: relation(S0, 16-bit immediate)."""
    return lambda x, y: relation(x, extend(y))


def _sum(x: Array, y: Array) -> tuple[Array, Array]:
    """Of unsigned numbers, with the carry."""
    result = x + y
    return result, result < x


def _sum_with_carry(x: Array, y: Array, scc: Array) -> tuple[Array, Array]:
    total = x.astype(_U64) + y + scc
    return total, total > _OVER


def _difference_with_borrow(x: Array, y: Array, scc: Array) -> tuple[Array, Array]:
    take = y.astype(_U64) + scc
    return x.astype(_U64) - take, x < take


def _signed_sum(x: Array, y: Array) -> tuple[Array, Array]:
    """With the signed overflow."""
    result = x + y
    return result, ((x ^ result) & (y ^ result)) < 0


def _signed_difference(x: Array, y: Array) -> tuple[Array, Array]:
    """With the signed overflow."""
    result = x - y
    return result, ((x ^ y) & (x ^ result)) < 0


def _shift_add(places: int) -> Operation:
    """S_LSHLn_ADD_U32: (S0 << n) + S1, with the carry out of 32 bits."""

    def operation(x: Array, y: Array) -> tuple[Array, Array]:
        total = (x.astype(_U64) << _U64(places)) + y
        return total, total > _OVER

    return operation


def _select(relation: Operation) -> Operation:
    """S_MIN, S_MAX: the one for which ``relation`` holds, and whether this is S0."""

    def operation(x: Array, y: Array) -> tuple[Array, Array]:
        first = relation(x, y)
        return np.where(first, x, y), first

    return operation


def _width(x: Array) -> int:
    return 8 * x.dtype.itemsize


def _signed(x: Array) -> Array:
    return x.view(f"i{x.dtype.itemsize}")


def _count(x: Array, places: Array) -> Array:
    """As many bits as a shift of ``x`` by ``places`` takes, in the type of ``x``."""
    return (places & np.uint32(_width(x) - 1)).astype(x.dtype)


def _shift_left(x: Array, places: Array) -> Array:
    return np.asarray(x << _count(x, places))


def _shift_right(x: Array, places: Array) -> Array:
    return np.asarray(x >> _count(x, places))


def _shift_right_signed(x: Array, places: Array) -> Array:
    return np.asarray(_signed(x) >> _signed(_count(x, places))).view(x.dtype)


def _bit(x: Array, place: Array) -> Array:
    return np.asarray(x.dtype.type(1) << _count(x, place))


def _mask(dtype: Any) -> Operation:
    """S_BFM: S0 ones from bit S1 on."""

    def operation(width: Array, place: Array) -> Array:
        one = np.ones((1, 1), dtype)
        return _shift_left(_bit(one, width) - one, place)

    return operation


def _field(signed: bool) -> Operation:
    """S_BFE: (S0 >> S1[5:0]) & ones(S1[22:16]), sign-extended where signed."""

    def operation(x: Array, where: Array) -> Array:
        bits = _width(x)
        width = np.minimum((where >> np.uint32(16)) & np.uint32(127), np.uint32(bits))
        spare = np.minimum(np.uint32(bits) - width, np.uint32(bits - 1))
        left = _shift_left(_shift_right(x, where), spare)
        field = _shift_right_signed(left, spare) if signed else _shift_right(left, spare)
        return np.where(width == 0, x.dtype.type(0), field)

    return operation


def _is_bit(expected: int) -> Operation:
    """S_BITCMP: whether bit S1 of S0 equals ``expected``."""
    return lambda x, place: (_shift_right(x, place) & x.dtype.type(1)) == expected


def _first(bits: Array) -> Array:
    """Place of the first one of each row of ``bits``, -1 if there is none."""
    return np.where(bits.any(axis=-1), bits.argmax(axis=-1), -1)


def _first_unlike_sign(x: Array) -> Array:
    """Number of bits from the top that equal the sign, -1 where all do."""
    bits = bits_of(x)[..., ::-1]
    return _first(bits != bits[..., :1])


def _ones(x: Array) -> Array:
    return np.asarray(np.bitwise_count(x).astype(np.uint32))


def _quads(whole: bool) -> Operation:
    """Groups of four bits of which one is set: S_WQM sets all four, S_QUADMASK gives a bit a group."""

    def operation(x: Array) -> Array:
        some = np.asarray(bits_of(x).reshape(*x.shape, -1, 4).any(axis=-1))
        return from_bits(np.repeat(some, 4, axis=-1) if whole else some, x.dtype)

    return operation


def _change_exec(operation: Operation, keeps_old: bool) -> Semantics:
    """EXEC = operation(S0, EXEC); D = EXEC before (SAVEEXEC) or after (WREXEC); SCC = EXEC != 0."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        old = g.read64(EXEC).copy()
        new = operation(g.read64(a), old)
        g.write64(d, old if keeps_old else new)
        g.write64(EXEC, new)
        set_scc(g, new != 0)

    return run


_RELATIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "lg": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal,
}  # fmt: skip
_LOGIC: Mapping[str, tuple[Operation, Any]] = {
    "and": (np.bitwise_and, bitwise_and),
    "or": (np.bitwise_or, bitwise_or),
    "xor": (np.bitwise_xor, bitwise_xor),
    "andn2": (lambda x, y: x & ~y, None),
    "orn2": (lambda x, y: x | ~y, None),
    "nand": (lambda x, y: ~(x & y), None),
    "nor": (lambda x, y: ~(x | y), None),
    "xnor": (lambda x, y: ~(x ^ y), bitwise_xor),
}
_EXEC: Mapping[str, Operation] = {name: operation for name, (operation, _) in _LOGIC.items()} | {
    "andn1": lambda x, y: ~x & y,
    "orn1": lambda x, y: ~x | y,
}


def _comparisons() -> Iterator[Op]:
    for name, relation in _RELATIONS.items():
        yield _test(f"s_cmp_{name}_i32", relation, "i32 i32")
        yield _test(f"s_cmp_{name}_u32", relation, "u32 u32")
        yield _test(f"s_cmpk_{name}_i32", _to_immediate(relation, _immediate), "i32 u32")
        yield _test(f"s_cmpk_{name}_u32", _to_immediate(relation, lambda x: x & LOW), "u32 u32")
    yield _test("s_cmp_eq_u64", np.equal, "b64 b64")
    yield _test("s_cmp_lg_u64", np.not_equal, "b64 b64")


def _both_widths() -> Iterator[Op]:
    """What says ``b32`` or ``b64`` (or, of numbers, ``i64`` and ``u64``) at the end of its name."""
    for name, kind in _WIDTHS:
        number = name[1:]
        yield _plain(f"s_mov_{name}", _same, kind, kind, shadow=bitwise_copy)
        yield _plain(f"s_cmov_{name}", _moved, kind, kind, "scc dst")
        yield _plain(f"s_cselect_{name}", _chosen, kind, f"{kind} {kind}", "scc")
        yield _nonzero(f"s_not_{name}", np.invert, kind, kind, shadow=bitwise_copy)
        yield _nonzero(f"s_lshl_{name}", _shift_left, kind, f"{kind} u32")
        yield _nonzero(f"s_lshr_{name}", _shift_right, kind, f"{kind} u32")
        yield _nonzero(f"s_ashr_i{number}", _shift_right_signed, kind, f"{kind} u32")
        yield _plain(f"s_bfm_{name}", _mask(f"u{int(number) // 8}"), kind, "u32 u32")
        yield _nonzero(f"s_bfe_u{number}", _field(False), kind, f"{kind} u32")
        yield _nonzero(f"s_bfe_i{number}", _field(True), kind, f"{kind} u32")
        yield _test(f"s_bitcmp0_{name}", _is_bit(0), f"{kind} u32")
        yield _test(f"s_bitcmp1_{name}", _is_bit(1), f"{kind} u32")
        yield _plain(f"s_bitset0_{name}", lambda place, old: old & ~_bit(old, place), kind, "u32", "dst")
        yield _plain(f"s_bitset1_{name}", lambda place, old: old | _bit(old, place), kind, "u32", "dst")
        yield _plain(f"s_brev_{name}", lambda x: from_bits(bits_of(x)[..., ::-1], x.dtype), kind, kind)
        yield _nonzero(f"s_bcnt0_i32_{name}", lambda x: _ones(~x), "i32", kind)
        yield _nonzero(f"s_bcnt1_i32_{name}", _ones, "i32", kind)
        yield _plain(f"s_ff0_i32_{name}", lambda x: _first(bits_of(~x)), "i32", kind)
        yield _plain(f"s_ff1_i32_{name}", lambda x: _first(bits_of(x)), "i32", kind)
        yield _plain(f"s_flbit_i32_{name}", lambda x: _first(bits_of(x)[..., ::-1]), "i32", kind)
        yield _nonzero(f"s_wqm_{name}", _quads(True), kind, kind)
        yield _nonzero(f"s_quadmask_{name}", _quads(False), kind, kind)
        for logic, (operation, shadow) in _LOGIC.items():
            yield _nonzero(f"s_{logic}_{name}", operation, kind, f"{kind} {kind}", shadow=shadow)


def _exec_changes() -> Iterator[Op]:
    saved = [(f"s_{name}_saveexec_b64", operation, True) for name, operation in _EXEC.items()]
    written = [(f"s_{name}_wrexec_b64", _EXEC[name], False) for name in ("andn1", "andn2")]
    for name, operation, keeps_old in (*saved, *written):
        yield _scalar(name, _change_exec(operation, keeps_old), "b64", "b64", "exec", True)


OPS = table(
    [
        _flagged("s_add_u32", _sum, "u32", "u32 u32"),
        _flagged("s_addc_u32", _sum_with_carry, "u32", "u32 u32", "scc"),
        _flagged("s_sub_u32", lambda x, y: (x - y, x < y), "u32", "u32 u32"),
        _flagged("s_subb_u32", _difference_with_borrow, "u32", "u32 u32", "scc"),
        _flagged("s_add_i32", _signed_sum, "i32", "i32 i32"),
        _flagged("s_sub_i32", _signed_difference, "i32", "i32 i32"),
        _plain("s_mul_i32", np.multiply, "i32", "i32 i32"),
        _plain("s_mul_hi_u32", lambda x, y: (x.astype(_U64) * y) >> _U64(32), "u32", "u32 u32"),
        _plain("s_mul_hi_i32", lambda x, y: (x.astype(np.int64) * y) >> np.int64(32), "i32", "i32 i32"),
        _nonzero("s_abs_i32", np.absolute, "i32", "i32"),  # 0x80000000 stays
        _nonzero("s_absdiff_i32", lambda x, y: np.absolute(x - y), "i32", "i32 i32"),
        *(_flagged(f"s_lshl{n}_add_u32", _shift_add(n), "u32", "u32 u32") for n in (1, 2, 3, 4)),
        _flagged("s_min_i32", _select(np.less), "i32", "i32 i32"),
        _flagged("s_max_i32", _select(np.greater), "i32", "i32 i32"),
        _flagged("s_min_u32", _select(np.less), "u32", "u32 u32"),
        _flagged("s_max_u32", _select(np.greater), "u32", "u32 u32"),
        _plain("s_movk_i32", _immediate, "i32", "u32"),
        _plain("s_cmovk_i32", lambda x, scc, old: np.where(scc, _immediate(x), old), "i32", "u32", "scc dst"),
        _flagged("s_addk_i32", lambda x, old: _signed_sum(old, _immediate(x)), "i32", "u32", "dst"),
        _plain("s_mulk_i32", lambda x, old: old * _immediate(x), "i32", "u32", "dst"),
        _plain("s_sext_i32_i8", lambda x: x.astype(np.int8), "i32", "u32"),
        _plain("s_sext_i32_i16", lambda x: x.astype(np.int16), "i32", "u32"),
        _plain("s_flbit_i32", _first_unlike_sign, "i32", "u32"),
        _plain("s_flbit_i32_i64", _first_unlike_sign, "i32", "b64"),
        _plain("s_bitreplicate_b64_b32", lambda x: from_bits(np.repeat(bits_of(x), 2, axis=-1), _U64), "b64", "u32"),
        _plain("s_pack_ll_b32_b16", lambda x, y: paired(x & LOW, y), "u32", "u32 u32"),
        _plain("s_pack_lh_b32_b16", lambda x, y: (x & LOW) | (y & HIGH), "u32", "u32 u32"),
        _plain("s_pack_hh_b32_b16", lambda x, y: (x >> np.uint32(16)) | (y & HIGH), "u32", "u32 u32"),
        *_both_widths(),
        *_comparisons(),
        *_exec_changes(),
    ]
)
