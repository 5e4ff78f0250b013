"""search.gate.tolerance: proven bounds of fp32 and bf16 sums in any order, and one step where none is known."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels.mxfp4.reference import to_bf16
from search.gate.tolerance import bf16_sum_bound, device_sum_bound, judge_result, row_sizes, sum_bound


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


CODES = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)


def coded(rows: int, k: int, spread: int, random: torch.Generator) -> torch.Tensor:
    """FP4 codes with a sign, times a power of two up to 2**spread for each 32 of them."""
    magnitude = CODES[torch.randint(0, 8, (rows, k), generator=random)]
    sign = 1.0 - 2.0 * torch.randint(0, 2, (rows, k), generator=random)
    scale = 2.0 ** torch.randint(0, spread + 1, (rows, k // 32), generator=random)
    return magnitude * sign * scale.repeat_interleave(32, dim=1)


def summed_in_fp32(a: torch.Tensor, b: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """A @ B.T, one product after another in this order, each sum rounded to fp32."""
    total = torch.zeros(len(a), len(b), dtype=torch.float32)
    for k in order.tolist():
        total = total + (a[:, k, None] * b[:, k]).to(torch.float32)
    return total


def fp32_sum_bound(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The bound for values [R, K] and [C, K], whose groups of 32 columns are shifted by the largest of B."""
    groups = b.nan_to_num(0.0).abs().amax(dim=0).reshape(-1, 32).amax(dim=1)
    factor = (2.0 ** torch.frexp(torch.where(groups > 0, groups, 1.0)).exponent.double()).repeat_interleave(32)
    return sum_bound(row_sizes(a * factor), row_sizes(b / factor), a.shape[1])


@given(st.integers(0, 2**32 - 1), st.integers(0, 40))
def test_sums_of_fp4_products_in_any_order_stay_within_the_bound(seed: int, spread: int) -> None:
    random = torch.Generator().manual_seed(seed)
    a, b = coded(3, 256, spread, random), coded(3, 256, spread, random)
    out = summed_in_fp32(a, b, torch.randperm(256, generator=random))
    assert bool(((out.double() - a @ b.T).abs() <= fp32_sum_bound(a, b)).all())
    assert judge_result(out.to(torch.bfloat16), a @ b.T, fp32_sum_bound(a, b)).ok


def test_a_sum_that_fits_24_bits_of_its_quantum_has_no_error_and_a_longer_one_has() -> None:
    # Quantum 0.25, norms 4 x 16 and 1: 256 quanta. With 2**20 beside 0.5 the quantum stays, the magnitude does not.
    short = torch.full((1, 256), 4.0, dtype=torch.float64)
    ones = torch.full((1, 256), 0.5, dtype=torch.float64)
    assert float(fp32_sum_bound(short, ones)) == 0.0
    wide = ones.clone()
    wide[0, 32:64] = 2.0**30
    assert float(fp32_sum_bound(wide, ones)) > 0.0


def test_what_is_large_in_one_operand_and_small_in_the_other_costs_no_exactness() -> None:
    a, b = torch.full((2, 1, 64), 3.0, dtype=torch.float64)
    a[0, :32], b[0, :32] = 3 * 2.0**120, 3 * 2.0**-120
    assert float(fp32_sum_bound(a, b)) == 0.0


def test_a_sum_beyond_fp32_may_be_anything() -> None:
    a = torch.full((1, 64), 6 * 2.0**64, dtype=torch.float64)
    bound = fp32_sum_bound(a, a)
    assert bool(bound.isinf())
    assert judge_result(torch.tensor([[torch.nan]], dtype=torch.bfloat16), a @ a.T, bound).ok


def test_a_nan_in_a_row_is_expected_there_and_only_there() -> None:
    a = torch.tensor([[1.0] * 32, [torch.nan] + [1.0] * 31], dtype=torch.float64)
    b = torch.full((1, 32), 1.0, dtype=torch.float64)
    bound = fp32_sum_bound(a, b)
    assert judge_result(torch.tensor([[32.0], [torch.nan]], dtype=torch.bfloat16), a @ b.T, bound).ok
    lost = judge_result(torch.tensor([[32.0], [32.0]], dtype=torch.bfloat16), a @ b.T, bound)
    assert (lost.mismatches, lost.first_mismatch) == (1, (1, 0))


@pytest.mark.parametrize("slack", [0.0, 2.0**-20])
def test_a_last_bit_that_is_cut_off_instead_of_rounded_is_wrong(slack: float) -> None:
    exact = torch.tensor([[1.0 + 2**-8 + 2**-12]], dtype=torch.float64)  # beyond the middle of 1 and 1 + 2**-7
    bound = torch.full((1, 1), slack, dtype=torch.float64)
    assert judge_result(to_bf16(exact), exact, bound).ok
    assert not judge_result(torch.ones(1, 1, dtype=torch.bfloat16), exact, bound).ok


def test_near_the_middle_of_two_steps_the_bound_allows_both() -> None:
    exact = torch.tensor([[1.0 + 2**-8 + 2**-20]], dtype=torch.float64)
    bound = torch.full((1, 1), 2.0**-19, dtype=torch.float64)
    for value in (1.0, 1.0 + 2**-7):
        assert judge_result(torch.tensor([[value]], dtype=torch.bfloat16), exact, bound).ok
    assert not judge_result(torch.tensor([[1.0 + 2**-6]], dtype=torch.bfloat16), exact, bound).ok


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


def test_on_hardware_each_matrix_instruction_may_be_off_by_a_step_of_fp32_and_a_cut_off_bit_shows() -> None:
    generator = torch.Generator().manual_seed(5)
    a, b = (coded(8, 7168, 0, generator) for _ in range(2))
    exact = a @ b.T
    bound = device_sum_bound(row_sizes(a), row_sizes(b), 7168)
    step = a.norm(dim=1)[:, None] * b.norm(dim=1) * 2.0**-23
    assert torch.equal(bound, 56 * step)  # of 128 of K each; the sum itself is exact
    assert judge_result(to_bf16(exact + 55 * step), exact, bound).ok
    cut = (exact.float().view(torch.int32) & -0x10000).view(torch.float32).to(torch.bfloat16)  # the sums fit fp32
    assert not torch.equal(cut, to_bf16(exact))
    assert not judge_result(cut, exact, bound).ok
