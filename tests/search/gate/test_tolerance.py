"""search.gate.tolerance: one bf16 step where sums are fp32, and a proven bound where bf16 values are added."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from search.gate.tolerance import bf16_sum_bound, judge_result


def test_the_bound_is_slices_times_half_a_step_of_the_magnitudes() -> None:
    a = torch.tensor([[1.0, 1.0, 2.0, 0.0]], dtype=torch.float64)
    b = torch.tensor([[3.0, -1.0, -1.0, 9.0]], dtype=torch.float64)
    # Slices of two: 2 and -2, which cancel; 2 slices x 2**-8 x 4, to first order.
    assert float(bf16_sum_bound(a, b, 2)) == pytest.approx(2 * 2**-8 * 4, rel=0.01)
    assert float(bf16_sum_bound(a, b, 4)) == 0.0  # one slice, whose sum is 0


@given(st.integers(0, 2**32 - 1), st.integers(2, 16))
def test_sums_of_bf16_values_in_any_order_stay_within_the_bound(seed: int, slices: int) -> None:
    random = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(3, 8 * slices, generator=random, dtype=torch.float64) for _ in range(2))
    parts = [a[:, i * 8 : i * 8 + 8] @ b[:, i * 8 : i * 8 + 8].T for i in range(slices)]
    out = torch.zeros(3, 3, dtype=torch.bfloat16)
    for i in torch.randperm(slices, generator=random).tolist():
        out = (out.to(torch.float64) + parts[i].to(torch.bfloat16).to(torch.float64)).to(torch.bfloat16)
    assert judge_result(out, a @ b.T, bf16_sum_bound(a, b, 8)).ok


def test_without_a_bound_two_steps_are_wrong() -> None:
    reference = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
    out = torch.tensor([[1.0, 2.0 + 2 * 2**-6]], dtype=torch.bfloat16)
    report = judge_result(out, reference)
    assert (report.mismatches, report.first_mismatch) == (1, (0, 1))
    assert judge_result(out, reference, torch.full((1, 2), 0.1)).ok
    beyond = judge_result(out, reference, torch.tensor([[0.1, 0.01]], dtype=torch.float64))
    assert (beyond.mismatches, beyond.first_mismatch) == (1, (0, 1))


@pytest.mark.parametrize(
    ("value", "expected", "ok"),
    [(torch.nan, torch.nan, True), (torch.inf, 1e39, True), (-torch.inf, 1e39, False), (torch.nan, 1.0, False),
     (1.0, torch.nan, False)],
)  # fmt: skip
def test_what_is_not_finite_must_be_so_in_both(value: float, expected: float, ok: bool) -> None:
    out = torch.tensor([[value, 9.0]], dtype=torch.bfloat16)
    reference = torch.tensor([[expected, 8.0]], dtype=torch.float64)
    assert judge_result(out, reference, torch.full((1, 2), 1.0, dtype=torch.float64)).ok is ok
