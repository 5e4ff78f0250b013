"""How far a result may be from the float64 reference: what rounding can do to the sum, in whatever order it is formed.

A stored bf16 must be the nearest even one of some value within that bound. Where a sum is exact in any order the bound
is zero, so that a last bit cut off instead of rounded shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch

from kernels.mxfp4.reference import ErrorReport, bf16_ordinal, compare, to_bf16

MAX_ULP: Final = 1  # bf16 steps, where nothing is known of the sum
BF16_ROUNDOFF: Final = 2.0**-8  # half a step of a significand of 8 bits, relative
FP32_BITS: Final = 24  # of a significand
FP32_ROUNDOFF: Final = 2.0**-23  # a step, relative: the rounding inside of a matrix instruction is not documented
FP32_MAX: Final = 2.0**128
SMALLEST: Final = -1200  # exponent below that of every quantum
MATRIX_K: Final = 128  # of the smallest tile of the scaled matrix instructions


@dataclass(frozen=True, eq=False)
class RowSizes:
    """What the bound needs of each row of an operand.

    Args:
        norm: Euclidean [R], float64.
        quantum: Exponent of the largest power of two that all elements are multiples of [R], float64.
    """

    norm: torch.Tensor
    quantum: torch.Tensor

    @staticmethod
    def joined(parts: Sequence[RowSizes]) -> RowSizes:
        """Rows of all parts, in order."""
        return RowSizes(torch.cat([part.norm for part in parts]), torch.cat([part.quantum for part in parts]))

    def __getitem__(self, rows: slice) -> RowSizes:
        """These rows."""
        return RowSizes(self.norm[rows], self.quantum[rows])


def row_sizes(values: torch.Tensor) -> RowSizes:
    """Sizes of the rows of ``values`` [R, K], float64, each a code of FP4 times a power of two."""
    bits = values.view(torch.int64)
    lowest = ((bits >> 52) & 0x7FF) - 1023 - ((bits >> 51) & 1)  # a code has two significant bits at most
    return RowSizes(values.norm(dim=1), torch.where(values == 0, -SMALLEST, lowest).amin(dim=1).to(torch.float64))


def sum_bound(left: RowSizes, right: RowSizes, K: int) -> torch.Tensor:
    """Largest error of A @ B.T where products, exact themselves, are added in fp32, in any order.

    All products of an element are multiples of one quantum q. While the sum of their magnitudes S stays within 2**24 q,
    so does every partial sum, and none is rounded. Otherwise each of the K - 1 additions may be off by a step of S
    (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). S is bounded by the norms of row and column
    (Cauchy and Schwarz). Before all this, groups of 32 of K that are large in A and small in B are brought together.

    Args:
        left: Sizes of the rows of A [R, K], float64, each a code of FP4 times a power of two.
        right: Sizes of those of B [C, K], likewise.

    Returns:
        [R, C] float64; inf where partial sums can exceed fp32, NaN where A or B has one in the row.
    """
    magnitude = left.norm[:, None] * right.norm
    quantum = left.quantum[:, None] + right.quantum
    bound = torch.where(magnitude <= 2.0 ** (quantum + FP32_BITS), 0.0, magnitude * (K * FP32_ROUNDOFF))
    return torch.where(magnitude < FP32_MAX, bound, torch.where(magnitude.isnan(), magnitude, torch.inf))


def device_sum_bound(left: RowSizes, right: RowSizes, K: int) -> torch.Tensor:
    """:func:`sum_bound` [R, C] on hardware, where what a matrix instruction does to its sum is not documented.

    Each may be off by a step of fp32 once more: by a fifth of a step of bf16 at K = 7168, so that a last bit that is
    cut off shows.
    """
    instructions = -(-K // MATRIX_K)
    return sum_bound(left, right, K) + left.norm[:, None] * right.norm * (instructions * FP32_ROUNDOFF)


def bf16_sum_bound(a: torch.Tensor, b: torch.Tensor, slice_k: int) -> torch.Tensor:
    """Largest error of A @ B.T where slices of K are rounded to bf16 and added in bf16, in any order.

    Source: each slice is rounded once, and each addition but the first (to zero) once: slices x 2**-8 of the sum of
    the slices' magnitudes to first order (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2).

    Args:
        a: Values [R, K], float64.
        b: Values [C, K], float64.
        slice_k: Columns of a slice; the last may have fewer.

    Returns:
        [R, C] float64.
    """
    starts = range(0, a.shape[1], slice_k)
    parts = [(a[:, start : start + slice_k] @ b[:, start : start + slice_k].T).abs() for start in starts]
    return torch.stack(parts).sum(0) * (len(starts) * BF16_ROUNDOFF * (1 + BF16_ROUNDOFF) ** len(starts))


def judge_result(actual: torch.Tensor, reference: torch.Tensor, bound: torch.Tensor | None = None) -> ErrorReport:
    """Compare a result with its reference; the report's mismatches are the elements that are wrong.

    Args:
        actual: Output [R, C], bfloat16.
        reference: [R, C], float64.
        bound: Largest error of each element before it is rounded to bf16 [R, C]; None allows :data:`MAX_ULP` steps.
    """
    if bound is None:
        return compare(actual, reference, ulp=MAX_ULP)
    report = compare(actual, reference, ulp=0)
    if report.ok:
        return report
    low, high = (bf16_ordinal(to_bf16(reference + side * bound.nan_to_num(0.0))) for side in (-1, 1))
    rank = bf16_ordinal(actual)
    right = (rank >= low) & (rank <= high) & ~actual.isnan()
    wrong = ~torch.where(reference.isnan(), actual.isnan(), right | bound.isinf())
    first = wrong.nonzero()[:1].tolist()
    return replace(report, mismatches=int(wrong.sum()), first_mismatch=tuple(first[0]) if first else None)
