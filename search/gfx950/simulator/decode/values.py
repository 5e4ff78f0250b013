"""Instructions whose result is a function of their sources: types say how these are read and how it is written.

An operation gets the values of the sources and returns the result. Values are arrays [waves, 64], or [waves, 1] and
[1, 1] of scalar and constant sources. Where the operands are all of one type, it may get the destination's row as well,
into which its last step writes, as NumPy's ufuncs do: the short instructions of inner loops take half their time then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.op import Op, Semantics
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.state import LANES, WaveGroup

Operation = Callable[..., Any]
Reader = Callable[[WaveGroup, int], Any]
Writer = Callable[[WaveGroup, int, Any], None]
LOW, HIGH = np.uint32(0xFFFF), np.uint32(0xFFFF0000)
_16 = np.uint32(16)


def half_values(word: Array) -> Array:
    """float32 of the f16 in the low half of uint32 ``word``."""
    return word.astype(np.uint16).view(np.float16).astype(np.float32)


def half_bits(value: Array) -> Array:
    """Float values rounded to f16, as uint32 with a zero high half."""
    return value.astype(np.float16).view(np.uint16).astype(np.uint32)


def bf16_values(word: Array) -> Array:
    """float32 of the bf16 in the low half of uint32 ``word``."""
    return np.asarray((word << _16).view(np.float32))


def bf16_bits(value: Array) -> Array:
    """float32 values rounded to nearest even bf16, as uint32 with a zero high half; NaN stays a quiet NaN."""
    bits = value.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> _16) & np.uint32(1))) >> _16
    nan = np.isnan(value)
    if nan.any():
        rounded = np.where(nan, (bits >> _16) | np.uint32(0x40), rounded)
    return np.asarray(rounded)


HALVES: Mapping[str, Callable[[Array], tuple[Array, Array]]] = {  # float32 values of both halves of a register
    "f16": lambda word: (half_values(word), half_values(word >> _16)),
    "bf16": lambda word: (bf16_values(word), (word & HIGH).view(np.float32)),
}


def paired(low: Array, high: Array) -> Array:
    """Two 16-bit results, uint32 with zero high halves, as one register."""
    return np.asarray(low | (high << _16))


def bits_of(value: Array) -> Array:
    """Bits of unsigned numbers, lowest first, uint8 [*shape, width]."""
    raw = np.ascontiguousarray(value).view(np.uint8).reshape(*value.shape, -1)
    return np.unpackbits(raw, axis=-1, bitorder="little")


def from_bits(bits: Array, dtype: Any) -> Array:
    """Numbers whose low bits are ``bits``, lowest first; the others are 0."""
    packed = np.packbits(bits, axis=-1, bitorder="little")
    raw = np.zeros((*bits.shape[:-1], np.dtype(dtype).itemsize), np.uint8)
    raw[..., : packed.shape[-1]] = packed
    return np.asarray(raw.view(dtype)[..., 0])


def rows_swapped(rows: int) -> Callable[[Array, Array], tuple[Array, Array]]:
    """Of two registers [waves, 64], odd rows of ``rows`` lanes of the first for even ones of the second."""

    def swapped(x: Array, y: Array) -> tuple[Array, Array]:
        first, second = (register.reshape(-1, LANES // rows, rows).copy() for register in (x, y))
        first[:, 1::2], second[:, 0::2] = second[:, 0::2].copy(), first[:, 1::2].copy()
        return first.reshape(-1, LANES), second.reshape(-1, LANES)

    return swapped


def double(g: WaveGroup, index: int) -> Array:
    """Two registers as float64."""
    return np.ascontiguousarray(g.read64(index)).view(np.float64)


READERS: Mapping[str, Reader] = {
    "u32": lambda g, index: g.u[index],
    "i32": lambda g, index: g.i[index],
    "f32": lambda g, index: g.f[index],
    "u16": lambda g, index: g.u[index] & LOW,
    "i16": lambda g, index: g.u[index].astype(np.int16).astype(np.int32),
    "f16": lambda g, index: half_values(g.u[index]),
    "bf16": lambda g, index: bf16_values(g.u[index]),
    "b64": lambda g, index: g.read64(index),
    "i64": lambda g, index: g.read64(index).view(np.int64),
    "f64": double,
    "mask": lambda g, index: g.read_mask(index),
    "scc": lambda g, index: g.scc,
}


def _write_unsigned(g: WaveGroup, index: int, value: Any) -> None:
    g.u[index][...] = value


def _write_signed(g: WaveGroup, index: int, value: Any) -> None:
    g.i[index][...] = value


def _write_single(g: WaveGroup, index: int, value: Any) -> None:
    g.f[index][...] = value


def _write_singles(g: WaveGroup, index: int, values: Any) -> None:
    low, high = values
    g.f[index][...] = low
    g.f[index + 1][...] = high


def _rounded_bf16(value: Array) -> Array:
    return bf16_bits(value.astype(np.float32))


def _write_low(g: WaveGroup, index: int, bits: Any) -> None:
    np.bitwise_or(g.u[index] & HIGH, bits, out=g.u[index])


WRITERS: Mapping[str, Writer] = {
    "u32": _write_unsigned,
    "i32": _write_signed,
    "f32": _write_single,
    "u16": lambda g, index, value: _write_unsigned(g, index, value.astype(np.uint16)),
    "f16": lambda g, index, value: _write_unsigned(g, index, half_bits(value)),
    "b64": WaveGroup.write64,
    "f64": lambda g, index, value: g.write64(index, np.ascontiguousarray(value, np.float64).view(np.uint64)),
    # Pairs of values: in two registers, or in the halves of one.
    "pkf32": _write_singles,
    "pkf16": lambda g, index, values: _write_unsigned(g, index, paired(*map(half_bits, values))),
    "pkbf16": lambda g, index, values: _write_unsigned(g, index, paired(*map(_rounded_bf16, values))),
    # The low half, while the high one stays; op_sel puts the result into the high half by a step of its own.
    "u16 kept": lambda g, index, value: _write_low(g, index, value.astype(np.uint16)),
    "f16 kept": lambda g, index, value: _write_low(g, index, half_bits(value)),
}


def computed(operation: Operation, src: str, write: Writer) -> Semantics:
    """D = operation(S0, …) of one to four sources, whose types ``src`` lists."""
    match [READERS[kind] for kind in src.split()]:
        case [x]:
            return lambda g, d, a: write(g, d, operation(x(g, a)))
        case [x, y]:
            return lambda g, d, a, b: write(g, d, operation(x(g, a), y(g, b)))
        case [x, y, z]:
            return lambda g, d, a, b, c: write(g, d, operation(x(g, a), y(g, b), z(g, c)))
        case [x, y, z, w]:
            return lambda g, d, a, b, c, e: write(g, d, operation(x(g, a), y(g, b), z(g, c), w(g, e)))
    raise ValueError(f"{src!r}: one to four sources expected")


def in_place(operation: Operation, src: str) -> Semantics:
    """operation(S0, …, out=D) of one to three sources, all of the type of D (``u32``, ``i32`` or ``f32``)."""
    rows = attrgetter(src[0])  # of the group
    match src.split():
        case [_]:

            def unary(g: WaveGroup, d: int, a: int) -> None:
                row = rows(g)
                operation(row[a], out=row[d])

            return unary
        case [_, _]:

            def binary(g: WaveGroup, d: int, a: int, b: int) -> None:
                row = rows(g)
                operation(row[a], row[b], out=row[d])

            return binary

    def ternary(g: WaveGroup, d: int, a: int, b: int, c: int) -> None:
        row = rows(g)
        operation(row[a], row[b], row[c], out=row[d])

    return ternary


def saturated(operation: Operation, dtype: Any) -> Operation:
    """``operation`` on whole numbers, clamped to what ``dtype`` holds (the CLAMP bit)."""
    bounds = np.iinfo(dtype)
    return lambda x, y: np.clip(operation(x.astype(np.int64), y.astype(np.int64)), bounds.min, bounds.max)


def vector_op(name: str, semantics: Semantics, dst: str, src: str, **more: Any) -> Op:
    """Table entry of a vector instruction; ``dst`` and ``src`` list types."""
    return Op(name, semantics, tuple(dst.split()), tuple(src.split()), **more)


def rows_op(name: str, operation: Operation, src: str, **more: Any) -> Op:
    """Table entry of a vector instruction that writes in place, a row of the type of its sources."""
    return vector_op(name, in_place(operation, src), src.split()[0], src, **more)


def value_op(name: str, operation: Operation, dst: str, src: str, *, implicit: str = "", **more: Any) -> Op:
    """Table entry of a vector instruction that computes its result.

    Args:
        implicit: The other source that the text does not print, ``dst`` or ``vcc``.
        more: As of :class:`Op`; a ``preserve`` keeps the high half of the destination.
    """
    hidden = {"": "", "dst": dst, "vcc": "mask"}[implicit]
    write = WRITERS[f"{dst} kept" if more.get("preserve") else dst]
    semantics = computed(operation, f"{src} {hidden}", write)
    return vector_op(name, semantics, dst, src, implicit=tuple(implicit.split()), **more)


def mask_op(name: str, operation: Operation, dst: str, src: str) -> Op:
    """Table entry of a vector instruction with two results: a value, and a bit a lane in an SGPR pair."""
    readers, write = [READERS[kind] for kind in src.split()], WRITERS[dst]

    def run(g: WaveGroup, d: int, mask: int, *sources: int) -> None:
        value, lanes = operation(*[read(g, source) for read, source in zip(readers, sources, strict=True)])
        write(g, d, value)
        g.write_mask(mask, lanes)

    return vector_op(name, run, f"{dst} mask", src)
