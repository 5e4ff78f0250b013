"""Random operands of one shape for the simulator, filled in only where somebody reads them.

The arrays have the real extents, so that every stride and range check is the real one, but a large weight costs
only the rows that the chosen tiles read.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernels.mxfp4.layouts import padded_scale_shape, shuffle_scales, unshuffle_weight
from kernels.mxfp4.numerics import Mxfp4Tensor, quantize
from kernels.problem import BLOCK, GemmShape

Array = npt.NDArray[Any]
ROWS = 32  # a block of rows: a row group of the shuffled scales, two of the shuffled weight
# Scales differ, so that one from a wrong block shows, but little: products of codes are multiples of 2**-2, and with
# about 10 bits of range in the scales the sums of 10**4 products stay within the 24 bits of fp32, exact in any order.
SCALE_BYTES = (125, 129)
MAGNITUDES = (-1, 1)  # exponents of the blocks of A
PEAK = 8.0  # what one element of half of the blocks is multiplied by: it alone decides the scale, so none may be missed
ZERO_BLOCKS = 1 / 32  # of A: their scale is that of no value
# Of each 32 rows of A six hold one NaN (the smallest) or Inf in their first, middle or last block, which are different
# code where loops are pipelined: row, third of K, bits. A NaN makes its row of C NaN, an Inf counts as 6 * 2**127.
INF, LARGE = 0x7F80, 0x7BC0  # LARGE: 1.5 * 2**120
SPECIALS = ((5, 0, 0x7F80), (9, 0, 0x7F81), (14, 1, 0xFF80), (19, 1, 0xFF81), (26, 2, 0x7F80), (29, 2, 0x7F81))
POISON = 0xFF  # E8M0 NaN
KEPT = 64  # references of a shape: tiles of the same size come again and again


@dataclass
class GateInputs:
    """Operands of ``shape`` as the kernels see them.

    Args:
        shape: Problem.
        seed: Of the random values.
        infinite: A holds Inf; otherwise large numbers in its place, for arithmetic that scales before it multiplies and
            so overflows: 6 * 2**127 is no fp32.
        a: [M, K] bf16 as uint16.
        b: [N, K // 2] shuffled codes.
        b_scale: [pad256(N), pad8(K // 32)] shuffled scales; pads hold 0xFF.
    """

    shape: GemmShape
    seed: int
    infinite: bool = True
    a: Array = field(init=False)
    b: Array = field(init=False)
    b_scale: Array = field(init=False)
    _a_done: set[int] = field(default_factory=set)
    _b_done: set[int] = field(default_factory=set)
    _scales: dict[int, Array] = field(default_factory=dict)
    _references: dict[tuple[range, range], torch.Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Reserve the arrays."""
        M, N, K = self.shape.M, self.shape.N, self.shape.K
        self.a = np.zeros((M, K), np.uint16)
        self.b = np.zeros((N, K // 2), np.uint8)
        self.b_scale = np.zeros(padded_scale_shape(N, K // BLOCK), np.uint8)

    def fill(self, rows: range, columns: range) -> None:
        """Make the operands of these rows and columns of C real; scale rows up to the tile's padding too."""
        for block in range(rows.start // ROWS, -(-rows.stop // ROWS)):
            if block not in self._a_done:
                self._fill_a(block)
        for block in range(columns.start // ROWS, min(-(-columns.stop // ROWS), len(self.b_scale) // ROWS)):
            if block not in self._b_done:
                self._fill_b(block)

    def _fill_a(self, block: int) -> None:
        self._a_done.add(block)
        part = self.a[block * ROWS : (block + 1) * ROWS]
        random = np.random.default_rng((self.seed, 0, block))
        low, high = MAGNITUDES
        groups = (len(part), self.shape.K // BLOCK)
        magnitude = np.exp2(random.integers(low, high + 1, groups)) * (random.random(groups) >= ZERO_BLOCKS)
        values = random.standard_normal((*groups, BLOCK)) * magnitude[..., None]
        peaks = random.random((*groups, BLOCK)).argmax(axis=2)[..., None] == np.arange(BLOCK)
        values *= np.where(peaks & (random.random((*groups, 1)) < 0.5), PEAK, 1.0)
        part[...] = torch.from_numpy(values.reshape(part.shape)).to(torch.bfloat16).view(torch.uint16).numpy()
        places = (0, self.shape.K // 2, self.shape.K - BLOCK)
        for row, place, bits in SPECIALS:
            if row < len(part):
                finite = LARGE | bits & 0x8000 if bits & 0x7FFF == INF else bits
                part[row, places[place] + random.integers(BLOCK)] = bits if self.infinite else finite

    def _fill_b(self, block: int) -> None:
        self._b_done.add(block)
        random = np.random.default_rng((self.seed, 1, block))
        part = self.b[block * ROWS : (block + 1) * ROWS]
        part[...] = random.integers(0, 256, part.shape, np.uint8)
        natural = np.full((ROWS, self.b_scale.shape[1]), POISON, np.uint8)
        natural[: len(part), : self.shape.K // BLOCK] = random.integers(
            SCALE_BYTES[0], SCALE_BYTES[1] + 1, (len(part), self.shape.K // BLOCK), np.uint8
        )
        self._scales[block] = natural
        padded = np.zeros((256, natural.shape[1]), np.uint8)
        padded[:ROWS] = natural
        shuffled = shuffle_scales(torch.from_numpy(padded))[:ROWS].numpy()
        self.b_scale[block * ROWS : (block + 1) * ROWS] = shuffled

    def reference(self, rows: range, columns: range) -> torch.Tensor:
        """C [rows, columns] in float64, not to be changed; the region must have been filled."""
        known = self._references.get((rows, columns))
        if known is None:
            a, b = self.values(rows, columns)
            known = self._references[rows, columns] = a @ b.T
            if len(self._references) > KEPT:
                del self._references[next(iter(self._references))]
        return known

    def values(self, rows: range, columns: range) -> tuple[torch.Tensor, torch.Tensor]:
        """Float64 values of the quantised rows [R, K] of A and of the rows [C, K] of B behind ``columns`` of C."""
        a = torch.from_numpy(self.a[rows.start : rows.stop]).view(torch.bfloat16)
        first, last = columns.start // ROWS, -(-columns.stop // ROWS)
        codes = unshuffle_weight(torch.from_numpy(self.b[first * ROWS : last * ROWS]))
        groups = self.shape.K // BLOCK
        scales = np.concatenate([self._scales[block] for block in range(first, last)])[: len(codes), :groups]
        weight = Mxfp4Tensor(codes, torch.from_numpy(np.ascontiguousarray(scales))).dequantize(torch.float64)
        chosen = weight[columns.start - first * ROWS : columns.stop - first * ROWS]
        return quantize(a).dequantize(torch.float64), chosen
