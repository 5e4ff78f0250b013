"""Vector compares: VOPC and its VOP3 form, which write one bit a lane to VCC or an SGPR pair.

MI300 ISA guide, section "VOPC instructions". The float relations with N in front are negations, so that they hold
for NaN operands; O and U test for the absence and presence of a NaN. V_CMPX also writes EXEC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from search.gfx950.simulator.decode.op import Op, table
from search.gfx950.simulator.instructions.valu_float import double, half
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.registers import EXEC
from search.gfx950.simulator.state.state import LANES, WaveGroup

Relation = Callable[[Array, Array], Array]
Reader = Callable[[WaveGroup, int], Array]


def _unordered(x: Array, y: Array) -> Array:
    return np.asarray(np.isnan(x) | np.isnan(y))


def _ordered(x: Array, y: Array) -> Array:
    return np.asarray(~_unordered(x, y))


def _less_or_greater(x: Array, y: Array) -> Array:
    return np.asarray((x < y) | (x > y))


def _never(x: Array, y: Array) -> Array:
    return np.zeros(np.broadcast_shapes(x.shape, y.shape), np.bool_)


def _negated(relation: Relation) -> Relation:
    return lambda x, y: np.asarray(~relation(x, y))


_FLOAT: Mapping[str, Relation] = {
    "f": _never, "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "lg": _less_or_greater,
    "ge": np.greater_equal, "o": _ordered, "u": _unordered, "nge": _negated(np.greater_equal),
    "nlg": _negated(_less_or_greater), "ngt": _negated(np.greater), "nle": _negated(np.less_equal),
    "neq": _negated(np.equal), "nlt": _negated(np.less), "tru": _negated(_never),
}  # fmt: skip
_INTEGER: Mapping[str, Relation] = {
    "f": _never, "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ne": np.not_equal,
    "ge": np.greater_equal, "t": _negated(_never),
}  # fmt: skip


def _unsigned(g: WaveGroup, index: int) -> Array:
    return np.asarray(g.u[index])


def _signed(g: WaveGroup, index: int) -> Array:
    return np.asarray(g.i[index])


def _single(g: WaveGroup, index: int) -> Array:
    return np.asarray(g.f[index])


def _word(g: WaveGroup, index: int) -> Array:
    return np.asarray(g.u[index] & np.uint32(0xFFFF))


def _signed_word(g: WaveGroup, index: int) -> Array:
    return np.asarray(g.u[index].astype(np.int16))


def _quad(g: WaveGroup, index: int) -> Array:
    return g.read64(index)


def _signed_quad(g: WaveGroup, index: int) -> Array:
    return g.read64(index).view(np.int64)


_READERS: Mapping[str, tuple[Reader, Mapping[str, Relation], str]] = {
    "f32": (_single, _FLOAT, "f32"), "f16": (half, _FLOAT, "f16"), "f64": (double, _FLOAT, "f64"),
    "u32": (_unsigned, _INTEGER, "u32"), "i32": (_signed, _INTEGER, "i32"), "u16": (_word, _INTEGER, "u16"),
    "i16": (_signed_word, _INTEGER, "i16"), "u64": (_quad, _INTEGER, "b64"), "i64": (_signed_quad, _INTEGER, "b64"),
}  # fmt: skip


def _compare(relation: Relation, read: Reader, write_exec: bool) -> Callable[..., None]:
    """Mask = relation(S0, S1) in active lanes, 0 elsewhere."""

    def run(g: WaveGroup, mask: int, a: int, b: int) -> None:
        lanes = relation(read(g, a), read(g, b))
        g.write_mask(mask, lanes)
        if write_exec and mask != EXEC:
            g.write_mask(EXEC, lanes)

    return run


def _float_class(value: Array, tests: Array) -> Array:
    """V_CMP_CLASS: any of the classes whose bit is set in ``tests``."""
    tiny = np.abs(value) < np.float32(2.0**-126)
    negative = np.signbit(value)
    quiet = (value.view(np.uint32) & np.uint32(0x400000)) != 0
    zero, infinite, nan = value == 0, np.isinf(value), np.isnan(value)
    normal = ~tiny & ~infinite & ~nan
    classes = (
        nan & ~quiet, nan & quiet, infinite & negative, normal & negative, tiny & ~zero & negative, zero & negative,
        zero & ~negative, tiny & ~zero & ~negative, normal & ~negative, infinite & ~negative,
    )  # fmt: skip
    result: Array = np.zeros((1, LANES), np.bool_)
    for bit, holds in enumerate(classes):
        result = result | (holds & ((tests >> np.uint32(bit)) & np.uint32(1)).astype(np.bool_))
    return result


def v_cmp_class_f32(g: WaveGroup, mask: int, a: int, b: int) -> None:
    """Mask = S0 is in a class that S1 names (sNaN, qNaN, -inf, -normal, -denormal, -0, +0, …, +inf)."""
    g.write_mask(mask, _float_class(g.f[a], g.u[b]))


def _all_compares() -> list[Op]:
    ops = [Op("v_cmp_class_f32", v_cmp_class_f32, ("mask",), ("f32", "u32"))]
    for kind, (read, relations, operand) in _READERS.items():
        for name, relation in relations.items():
            for prefix, write_exec in (("v_cmp", False), ("v_cmpx", True)):
                run = _compare(relation, read, write_exec)
                implicit = ("exec",) if write_exec else ()
                ops.append(Op(f"{prefix}_{name}_{kind}", run, ("mask",), (operand, operand), implicit=implicit))
    return ops


OPS = table(_all_compares())
