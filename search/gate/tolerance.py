"""How far a result may be from the float64 reference: one bf16 step, or what sums of bf16 values allow."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import torch

from kernels.mxfp4.reference import ErrorReport, compare

MAX_ULP: Final = 1  # bf16 steps: fp32 sums may differ in their last bit by order
BF16_ROUNDOFF: Final = 2.0**-8  # half a step of a significand of 8 bits, relative


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
        bound: Largest error of each element; None allows :data:`MAX_ULP` bf16 steps.
    """
    report = compare(actual, reference, ulp=MAX_ULP)
    if bound is None or report.ok:
        return report
    values = actual.to(reference.device, torch.float64)
    expected = reference.to(torch.bfloat16).to(torch.float64)  # Inf where bf16 ends
    equal = (values == expected) | (values.isnan() & expected.isnan())
    wrong = ~(equal | ((values - reference).abs() <= bound))
    first = wrong.nonzero()[:1].tolist()
    return replace(report, mismatches=int(wrong.sum()), first_mismatch=tuple(first[0]) if first else None)
