"""Vector compares: VOPC and its VOP3 form, which write one bit a lane to VCC or an SGPR pair.

MI300 ISA guide, section "VOPC instructions". The float relations with N in front are negations, so that they hold
for NaN operands; O and U test for the absence and presence of a NaN. V_CMPX also writes EXEC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from search.gfx950.simulator.decode.op import Op, Semantics, table
from search.gfx950.simulator.decode.values import READERS, Reader
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.registers import EXEC
from search.gfx950.simulator.state.state import LANES, WaveGroup

Relation = Callable[[Array, Array], Array]


def _unordered(x: Array, y: Array) -> Array:
    return np.asarray(np.isnan(x) | np.isnan(y))


def _less_or_greater(x: Array, y: Array) -> Array:
    return np.asarray((x < y) | (x > y))


def _never(x: Array, y: Array) -> Array:
    return np.zeros(np.broadcast_shapes(x.shape, y.shape), np.bool_)


def _negated(relation: Relation) -> Relation:
    return lambda x, y: np.asarray(~relation(x, y))


_FLOAT: Mapping[str, Relation] = {
    "f": _never, "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "lg": _less_or_greater,
    "ge": np.greater_equal, "o": _negated(_unordered), "u": _unordered, "nge": _negated(np.greater_equal),
    "nlg": _negated(_less_or_greater), "ngt": _negated(np.greater), "nle": _negated(np.less_equal),
    "neq": _negated(np.equal), "nlt": _negated(np.less), "tru": _negated(_never),
}  # fmt: skip
_INTEGER: Mapping[str, Relation] = {
    "f": _never, "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ne": np.not_equal,
    "ge": np.greater_equal, "t": _negated(_never),
}  # fmt: skip


def _compare(relation: Relation, read: Reader, write_exec: bool) -> Semantics:
    """Mask = relation(S0, S1) in active lanes, 0 elsewhere."""

    def run(g: WaveGroup, mask: int, a: int, b: int) -> None:
        lanes = relation(read(g, a), read(g, b))
        g.write_mask(mask, lanes)
        if write_exec and mask != EXEC:
            g.write_mask(EXEC, lanes)

    return run


def _float_class(value: Array, tests: Array) -> Array:
    """V_CMP_CLASS: any of the classes whose bit is set in ``tests``: sNaN, qNaN, -inf, -normal, …, +inf."""
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
    """Mask = S0 is in a class that S1 names."""
    g.write_mask(mask, _float_class(g.f[a], g.u[b]))


def _all_compares() -> Iterator[Op]:
    yield Op("v_cmp_class_f32", v_cmp_class_f32, ("mask",), ("f32", "u32"))
    for kind in ("f32", "f16", "f64", "u32", "i32", "u16", "i16", "u64", "i64"):
        operand = "b64" if kind in ("u64", "i64") else kind
        for name, relation in (_FLOAT if kind.startswith("f") else _INTEGER).items():
            for prefix, implicit in (("v_cmp", ()), ("v_cmpx", ("exec",))):
                run = _compare(relation, READERS["b64" if kind == "u64" else kind], bool(implicit))
                yield Op(f"{prefix}_{name}_{kind}", run, ("mask",), (operand, operand), implicit)


OPS = table(_all_compares())
