"""Rules for undefined bits: which bits of a result depend on bits that were never written.

A rule gets the values and the undefined-bit masks of the sources (uint32 arrays that broadcast together) and returns
the mask of the result. Instructions without a rule turn any undefined source bit into a fully undefined result. The
idea of bit-exact propagation is Memcheck's (Seward and Nethercote, "Using Valgrind to detect undefined value errors",
2005).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from search.gfx950.simulator.state.arrays import Array

Rule = Callable[[Sequence[Array], Sequence[Array]], Array]
ALL = np.uint32(0xFFFFFFFF)


def _together(shadows: Sequence[Array]) -> Array:
    return reduce(np.bitwise_or, shadows)


def any_bit(shadows: Sequence[Array]) -> Array:
    """All ones where any source has an undefined bit."""
    return np.asarray(np.where(_together(shadows) != 0, ALL, np.uint32(0)))


def whole_result(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """Any undefined bit makes every bit undefined."""
    return any_bit(shadows)


def bitwise_copy(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """Each bit depends on the same bit of the only source."""
    return shadows[0]


def bitwise_xor(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """Each bit depends on the same bit of both sources."""
    return np.asarray(shadows[0] | shadows[1])


def bitwise_and(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """A defined 0 makes the result defined."""
    (x, y), (p, q) = values, shadows
    return np.asarray((p | q) & (p | x) & (q | y))


def bitwise_or(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """A defined 1 makes the result defined."""
    (x, y), (p, q) = values, shadows
    return np.asarray((p | q) & (p | ~x) & (q | ~y))


def truth_table(code: int) -> Rule:
    """Any function of the same bit of three sources: undefined where the undefined inputs can change it.

    Args:
        code: Result bit of inputs S0<<2 | S1<<1 | S2.
    """

    def apply(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
        never: Array = np.zeros((1, 1), np.uint32)
        can_be = [never, never]
        for row in range(8):
            reached = ~never
            for value, undefined, place in zip(values, shadows, (4, 2, 1), strict=True):
                reached = reached & (undefined | (value if row & place else ~value))
            can_be[code >> row & 1] = can_be[code >> row & 1] | reached
        return np.asarray(can_be[0] & can_be[1])

    return apply


def low_bits_first(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """Sums: an undefined bit reaches the bits above it."""
    total = _together(shadows)
    return np.asarray(total | (~total + np.uint32(1)))


def low_half(rule: Rule) -> Rule:
    """``rule`` on 16-bit sources: high halves are not read, the result's high half is 0."""

    def apply(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
        word = np.uint32(0xFFFF)
        return np.asarray(rule([v & word for v in values], [s & word for s in shadows]) & word)

    return apply


def each_half(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """Packed 16-bit arithmetic: each half of the result depends on that half of the sources."""
    total = _together(shadows)
    return pack_halves(values, [total & np.uint32(0xFFFF), total >> np.uint32(16)])


def pack_halves(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """A pair of 16-bit results: the low one depends on S0, the high one on S1."""
    low = np.where(shadows[0] != 0, np.uint32(0xFFFF), np.uint32(0))
    high = np.where(shadows[1] != 0, np.uint32(0xFFFF0000), np.uint32(0))
    return np.asarray(low | high)


def shift_left_reversed(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """S1 << S0."""
    moved = shadows[1] << (values[0] & np.uint32(31))
    return np.asarray(np.where(shadows[0] & np.uint32(31), ALL, moved))


def shift_right_reversed(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """S1 >> S0."""
    moved = shadows[1] >> (values[0] & np.uint32(31))
    return np.asarray(np.where(shadows[0] & np.uint32(31), ALL, moved))


def and_or(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """(S0 & S1) | S2."""
    inner = bitwise_and(values[:2], shadows[:2])
    return bitwise_or([values[0] & values[1], values[2]], [inner, shadows[2]])


def or_three(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """S0 | S1 | S2."""
    inner = bitwise_or(values[:2], shadows[:2])
    return bitwise_or([values[0] | values[1], values[2]], [inner, shadows[2]])


def shift_left_or(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """(S0 << S1) | S2."""
    count = values[1] & np.uint32(31)
    moved = np.where(shadows[1] & np.uint32(31), ALL, shadows[0] << count)
    return bitwise_or([values[0] << count, values[2]], [moved, shadows[2]])


def bit_field(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """(S0 >> S1) & ones(S2), also sign-extended (then the top bit spreads)."""
    if np.any(shadows[1]) or np.any(shadows[2]):
        return any_bit(shadows)
    width = values[2] & np.uint32(31)
    field = (shadows[0] >> (values[1] & np.uint32(31))) & ((np.uint32(1) << width) - np.uint32(1))
    return np.asarray(np.where(field != 0, ALL, np.uint32(0)))


def byte_permute(values: Sequence[Array], shadows: Sequence[Array]) -> Array:
    """V_PERM_B32: each byte depends on the byte that its selector names."""
    if np.any(shadows[2]):
        return any_bit(shadows)
    source = (shadows[0].astype(np.uint64) << np.uint64(32)) | shadows[1]
    result: Array = np.zeros(np.broadcast_shapes(source.shape, values[2].shape), np.uint64)
    for byte in range(4):
        select = ((values[2] >> np.uint32(8 * byte)) & np.uint32(0xFF)).astype(np.uint64)
        picked = (source >> (np.minimum(select, np.uint64(7)) * np.uint64(8))) & np.uint64(0xFF)
        bits = np.where(select < 8, picked, np.where(select < 12, np.uint64(0xFF), np.uint64(0)))
        result |= bits << np.uint64(8 * byte)
    return result.astype(np.uint32)
