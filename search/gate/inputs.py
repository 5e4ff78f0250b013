"""Operands of one shape that hurt, filled in only where somebody reads them, and what must come out.

The arrays have the real extents, so that every stride and range check is the real one, but a large weight costs
only the rows that the chosen tiles read.

What hurts is at every M from 1 on. Blocks of A go from denormal numbers to the largest of bf16, with the scales of B
shifted the other way, from byte 254 to byte 0: so every product weighs the same, and what is lost at either end shows.
The first row holds an Inf, the second one a NaN, which takes its whole row of C with it; for a single row there is a
second set of operands. One row of B in each 32 has a NaN scale. Rows that are to serve see further sets, see ``turn``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from kernels.mxfp4.layouts import padded_scale_shape, shuffle_scale_tiles, unshuffle_weight
from kernels.mxfp4.numerics import Mxfp4Tensor, quantize
from kernels.problem import BLOCK, GemmShape
from search.gate.tolerance import RowSizes, bf16_sum_bound, sum_bound
from search.gfx950.simulator.state.arrays import Array, lazy_zeros

ROWS = 32  # a block of rows: a row group of the shuffled scales, two of the shuffled weight
# Scales differ, so that one from a wrong block shows, but little: products are multiples of one quantum, and the sum
# of the magnitudes of K of them stays within the 24 bits of fp32 (search.gate.tolerance), so that it is exact in any
# order, and one step of bf16 is an error.
SCALE_BYTES = (125, 129)
EXACT_K = 1 << 15  # from here on all scales of B are alike, or the sums would not be exact
EXPONENTS = (0, 1, 2)  # of the largest element of a block of A
POISON = 0xFF  # E8M0 NaN
POISON_A = 0xFFFF  # between the rows of a strided A: NaN
MAGNITUDES = 0x7777_7777_7777_7777  # of 16 codes, without their signs
INF, NAN = 0x7F80, 0x7F81  # the smallest NaN
NORM_SLACK = 1 + 2.0**-9  # a norm of K numbers is formed in fp32
KEPT = 64  # references of a shape: tiles of the same size come again and again
KEPT_BYTES = 1 << 27  # of dequantised rows of a shape

# Significands of the largest element of a block, as the 7 bits of bf16: the rules of quantisation differ at 1.5 and
# 1.75. A block takes the entry (its number + its row) modulo the length, so the first ones are there at every K and M.
ZERO, NEGATIVE_ZERO, ANY = -1, -2, -3
PEAKS = (0x60, 0x40, 0x7F, 0x41, ZERO, 0x5F, NEGATIVE_ZERO, 0x00, *[ANY] * 8)
# Shifts of the exponents of a group of 32 columns of A, and the other way of its scales of B; the smallest blocks of A
# are denormal, the largest end where bf16 ends. An arithmetic that scales before it multiplies is spared the ends.
SHIFTS = {True: 125, False: 90}
TINY_EXPONENTS = (-124, -126, -127, -128)  # denormal below -126; quantised at the smallest scale below -124
# Of each 32 rows three hold a NaN and four an Inf, in their first, middle or last block, which are different code
# where loops are pipelined: row, third of K, bits. The Inf goes to the nearest block whose scales of B are small, and
# the four rows have one in each such block together. The NaN moves with the candidate, for any step of a loop may err.
SPECIALS = ((0, 2, INF), (1, 1, 0xFF81), (5, 0, INF), (9, 0, NAN), (14, 1, 0xFF80), (26, 2, INF), (29, 2, NAN))
INF_ROWS = tuple(row for row, _, bits in SPECIALS if bits & 0x7FFF == INF)
# Two of each 32 rows have one element alone, in a group of usual scales. Their sums are one product each, whatever the
# order: from beyond fp32, which is Inf and no largest number, down to denormal ones, which are not 0.
ALONE = ((7, 0x7F40), (11, 0x0020))  # 1.5 * 2**127 and 2**-128
NAN_FIRST = tuple((row, 0, NAN) for row in range(ROWS))  # of the set that looks for nothing but NaN
WINDOW = 4  # groups: the shortest step along K of a kernel; in later turns each has a group that may hold an Inf
LATER_TURNS = (1, 2)  # in which a single row has an Inf in each of these groups


@dataclass
class GateInputs:
    """Operands of ``shape`` as the kernels see them.

    Args:
        extreme: To the ends of bf16 and E8M0, and with Inf; otherwise milder, for arithmetic that scales before it
            multiplies and so overflows: 6 * 2**127 is no fp32.
        nan_first: NaN in every row instead.
        turn: 0, or one of :data:`LATER_TURNS`: with other groups, peaks and Infs.
        ordinary: Without NaN and Inf in A, and mild too.
        stride: Elements from one row of A to the next, NaN between the rows; None: K.
        a: bf16 as uint16, M rows of K elements, ``stride`` apart, flat.
        b: [N, K // 2] shuffled codes.
        b_scale: [pad256(N), pad8(K // 32)] shuffled scales; pads hold 0xFF.
    """

    shape: GemmShape
    seed: int
    extreme: bool = True
    nan_first: bool = False
    stride: int | None = None
    ordinary: bool = False
    turn: int = 0
    a: Array = field(init=False)
    b: Array = field(init=False)
    b_scale: Array = field(init=False)
    _a_done: set[int] = field(default_factory=set)
    _b_done: set[int] = field(default_factory=set)
    _scales: dict[int, Array] = field(default_factory=dict)
    _dequantized: dict[tuple[str, int], _Block] = field(default_factory=dict)
    _expected: dict[tuple[range, range, int | None], Expected] = field(default_factory=dict)
    _shifts: Array = field(init=False)
    _nans: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reserve the arrays."""
        self.extreme = self.extreme and not self.ordinary
        M, N, K = self.shape.M, self.shape.N, self.shape.K
        stride = self.stride or K
        self.a = lazy_zeros((M - 1) * stride + K, np.uint16)
        self.b = lazy_zeros((N, K // 2), np.uint8)
        self.b_scale = lazy_zeros(padded_scale_shape(N, K // BLOCK), np.uint8)
        kinds = group_kinds(K // BLOCK, np.random.default_rng((self.seed, 2)), often=self.turn > 0)
        self._shifts = SHIFTS[self.extreme] * kinds

    @property
    def rows(self) -> Array:
        """A as [M, K], a view."""
        stride = (self.stride or self.shape.K) * self.a.itemsize
        shape = (self.shape.M, self.shape.K)
        return np.lib.stride_tricks.as_strided(self.a, shape, (stride, self.a.itemsize))

    def fill(self, rows: range, columns: range) -> None:
        """Make the operands of these rows and columns of C real; scale rows up to the tile's padding too."""
        for block in _blocks_of(rows):
            if block not in self._a_done:
                self._fill_a(block)
        for block in range(columns.start // ROWS, min(-(-columns.stop // ROWS), len(self.b_scale) // ROWS)):
            if block not in self._b_done:
                self._fill_b(block)

    def _fill_a(self, block: int) -> None:
        self._a_done.add(block)
        random = np.random.default_rng((self.seed, 0, block))
        rows = self.rows[block * ROWS : (block + 1) * ROWS]
        if self.stride is not None:
            self.a[block * ROWS * self.stride :][: ROWS * self.stride] = POISON_A
        numbers = np.arange(len(rows)) + block * ROWS
        rows[...] = _blocks(numbers, self._shifts, random, self.turn // 2).reshape(rows.shape)
        for row, place, bits in self._specials:
            if row < len(rows):
                columns = self._groups(row, place, infinite=bits & 0x7FFF == INF) * BLOCK + random.integers(BLOCK)
                rows[row, columns] = self._special(bits)
                if bits & 0x7FFF != INF:
                    self._nans[block * ROWS + row] = int(columns[0])
        for row, bits in self._alone:
            if row < len(rows):
                rows[row] = 0
                rows[row, int(np.flatnonzero(self._shifts == 0)[0]) * BLOCK + random.integers(BLOCK)] = bits

    @property
    def _alone(self) -> tuple[tuple[int, int], ...]:
        return ALONE if self.extreme and not self.nan_first and (self._shifts == 0).any() else ()

    @property
    def _specials(self) -> tuple[tuple[int, int, int], ...]:
        if self.ordinary:
            return ()
        return NAN_FIRST if self.nan_first else SPECIALS

    def move_nans(self, draw: int) -> None:
        """Put the NaN of each row of A that has one elsewhere along K, by ``draw``; its row of C is NaN in any case."""
        random, groups = np.random.default_rng((self.seed, 3, draw)), len(self._shifts)
        places = {row: random.choice([0, groups - 1, *random.integers(groups, size=4)]) for row in self._nans}
        self.place_nans(places)

    def place_nans(self, group_of: Mapping[int, int]) -> None:
        """Put the NaN of each of these rows into that group of 32 columns."""
        for row, group in group_of.items():
            column = self._nans[row]
            bits, self.rows[row, column] = self.rows[row, column], 0
            self._nans[row] = int(group) * BLOCK + column % BLOCK
            self.rows[row, self._nans[row]] = bits

    def _groups(self, row: int, place: int, *, infinite: bool) -> Array:
        """Group of 32 columns at the start, in the middle or at the end; for an Inf those with small scales."""
        groups = len(self._shifts)
        wanted = (0, groups // 2, groups - 1)[place]
        if not infinite:
            return np.array([wanted])
        small = np.flatnonzero(self._shifts > 0)
        apart = len(LATER_TURNS) if self.turn else len(INF_ROWS)
        first = (INF_ROWS.index(row) + self.turn) % apart
        return np.union1d(small[np.abs(small - wanted).argmin()], small[first::apart])

    def _special(self, bits: int) -> int:
        if self.extreme or bits & 0x7FFF != INF:
            return bits
        return (127 + SHIFTS[False] + EXPONENTS[-1]) << 7 | 0x40 | bits & 0x8000

    def _fill_b(self, block: int) -> None:
        self._b_done.add(block)
        random = np.random.default_rng((self.seed, 1, block))
        part = self.b[block * ROWS : (block + 1) * ROWS]
        part[...] = random.integers(0, 256, part.shape, np.uint8)
        natural = np.full((ROWS, self.b_scale.shape[1]), POISON, np.uint8)
        groups = len(self._shifts)
        low, high = SCALE_BYTES if self.shape.K < EXACT_K else (127, 127)
        scales = random.integers(low, high + 1, (len(part), groups)) - self._shifts
        natural[: len(part), :groups] = scales
        if len(part) and self.extreme:
            natural[random.integers(len(part)), random.integers(groups)] = POISON
        self._scales[block] = natural
        self.b_scale[block * ROWS : (block + 1) * ROWS] = shuffle_scale_tiles(torch.from_numpy(natural)).numpy()

    def expected(self, rows: range, columns: range, bf16_slice_k: int | None = None) -> Expected:
        """What must come out at C [rows, columns], which must have been filled; not to be changed."""
        key = (rows, columns, bf16_slice_k)
        if key not in self._expected:
            a, b = self._span("a", rows), self._span("b", columns)
            bound = self._fp32_bound(rows, columns)
            alone = [row for row in range(len(rows)) if (rows.start + row) % ROWS in dict(self._alone)]
            bound[alone] = 0.0
            if bound.nan_to_num(0.0).any():
                a, b = a.double(), b.double()
            if bf16_slice_k is not None:
                bound = bf16_sum_bound(a.double(), b.double(), bf16_slice_k)
            reference = (a @ b.T).double()
            if alone:
                reference[alone] = a[alone].double() @ b.double().T  # beyond the range of fp32
            self._expected[key] = Expected(reference, bound)
            _forget(self._expected, KEPT)
        return self._expected[key]

    def _fp32_bound(self, rows: range, columns: range) -> torch.Tensor:
        left, right = (
            RowSizes.joined([self._block(operand, block).sizes for block in _blocks_of(span)])[_within(span)]
            for operand, span in (("a", rows), ("b", columns))
        )
        return sum_bound(left, right, self.shape.K)

    def _span(self, operand: str, span: range) -> torch.Tensor:
        return torch.cat([self._block(operand, block).values for block in _blocks_of(span)])[_within(span)]

    def _block(self, operand: str, block: int) -> _Block:
        key = (operand, block)
        if key not in self._dequantized:
            packed, side = (self._quantized_a(block), -1) if operand == "a" else (self._packed_b(block), 1)
            self._dequantized[key] = _unshifted(packed, side * self._shifts)
            _forget(self._dequantized, KEPT_BYTES // (ROWS * self.shape.K * 4))
        return self._dequantized[key]

    def _quantized_a(self, block: int) -> Mxfp4Tensor:
        return quantize(torch.from_numpy(self.rows[block * ROWS : (block + 1) * ROWS]).view(torch.bfloat16))

    def _packed_b(self, block: int) -> Mxfp4Tensor:
        codes = unshuffle_weight(torch.from_numpy(self.b[block * ROWS : (block + 1) * ROWS]))
        scales = np.ascontiguousarray(self._scales[block][: len(codes), : len(self._shifts)])
        return Mxfp4Tensor(codes, torch.from_numpy(scales))


def _unshifted(packed: Mxfp4Tensor, shifts: Array) -> _Block:
    """Rows with the exponents of their groups of 32 columns moved by ``shifts``."""
    bytes_ = packed.scales.to(torch.int16)
    moved = torch.where(bytes_ == 255, 255, (bytes_ + torch.from_numpy(shifts)).clamp(0, 254))
    values = Mxfp4Tensor(packed.codes, moved.to(torch.uint8)).dequantize(torch.float32)
    empty = ((packed.codes.view(torch.int64) & MAGNITUDES) == 0).reshape(*moved.shape, 2).all(dim=2)
    quantum = torch.where(empty, 255, moved).amin(dim=1) - 128  # of the code 0.5
    return _Block(values, RowSizes(values.norm(dim=1).double() * NORM_SLACK, quantum.double()))


@dataclass(frozen=True, eq=False)
class Expected:
    """A region of C.

    Args:
        reference: Float64 [R, C].
        bound: Largest error of a sum before it is rounded to bf16 [R, C], float64.
    """

    reference: torch.Tensor
    bound: torch.Tensor


@dataclass(frozen=True, eq=False)
class _Block:
    """Up to 32 rows of an operand.

    Args:
        values: Dequantised and with :data:`SHIFTS` undone [R, K], float32, which holds them exactly. Where the bound of
            their sums is zero, so does fp32 each sum, in whatever order a library forms it.
    """

    values: torch.Tensor
    sizes: RowSizes


def _blocks_of(span: range) -> range:
    return range(span.start // ROWS, -(-span.stop // ROWS))


def _within(span: range) -> slice:
    """Where ``span`` lies in the rows of its blocks."""
    first = span.start // ROWS * ROWS
    return slice(span.start - first, span.stop - first)


def _forget(kept: dict[Any, Any], count: int) -> None:
    """Drop the oldest entry beyond ``count``."""
    if len(kept) > count:
        del kept[next(iter(kept))]


def group_kinds(groups: int, random: np.random.Generator, *, often: bool = False) -> Array:
    """Of each group of 32 columns: 1 where A is huge and the scales of B small, -1 the other way, 0 neither.

    Huge ones are at both ends and in the middle, tiny ones behind the first: loops treat these as special.

    Args:
        often: Huge ones are in each :data:`WINDOW` too, and the first of two is usual instead of tiny.
    """
    kinds = random.choice([0, -1, 1], groups, p=[0.6, 0.25, 0.15])
    kinds[[0, -1]] = 1
    if groups >= 8:
        kinds[groups // 2] = 1
    kinds[0 if groups == 2 else 1] = -1
    if groups >= 4:
        kinds[2] = 0
    if often:
        kinds[0 if groups == 2 else WINDOW - 1 :: WINDOW] = 0 if groups == 2 else 1
    return np.asarray(kinds)


def _turns(shifts: Array, random: np.random.Generator) -> Array:
    """Random numbers of the groups: first the usual ones, then the huge, which an Inf may take, last the tiny.

    Among tiny blocks the rules of rounding up do not show.
    """
    order = np.lexsort((random.random(len(shifts)), -shifts, shifts != 0))
    turns = np.empty_like(order)
    turns[order] = np.arange(len(order))
    return turns


def _blocks(numbers: Array, shifts: Array, random: np.random.Generator, first_peak: int) -> Array:
    """Rows ``numbers`` of A as bits [R, groups, 32]: see :data:`PEAKS`, :data:`SHIFTS`."""
    shape = (len(numbers), len(shifts))
    kind = np.take(PEAKS, (first_peak + numbers[:, None] + _turns(shifts, random)) % len(PEAKS))
    exponent = random.choice(EXPONENTS, shape) + shifts
    if SHIFTS[True] in shifts:
        tiny = np.take(TINY_EXPONENTS, (numbers[:, None] + np.arange(len(shifts))) % len(TINY_EXPONENTS))
        exponent = np.where(shifts < 0, tiny, exponent)
    significand = 1 + np.where(kind >= 0, kind, random.integers(0, 128, shape)) / 128
    peak = np.ldexp(significand, exponent)
    alone = random.random(shape) < 0.5  # the largest element alone decides the scale: it may not be missed
    others = np.clip(random.standard_normal((*shape, BLOCK)) / 2, -0.99, 0.99)
    values = np.ldexp(others, (exponent - 2 * alone)[..., None])
    place = random.integers(0, BLOCK, shape)[..., None] == np.arange(BLOCK)
    sign = np.where(random.random(shape) < 0.5, -1.0, 1.0)
    values = np.where(place, (sign * peak)[..., None], values)
    values = np.where((kind == ZERO)[..., None], 0.0, np.where((kind == NEGATIVE_ZERO)[..., None], -0.0, values))
    return torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()
