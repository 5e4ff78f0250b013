"""kernels.mxfp4.reference: the oracle itself against exact sums, rounding against rationals, errors by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kernels.mxfp4.numerics import ExponentRule, quantize
from kernels.mxfp4.reference import UNMATCHED_ULP, bf16_ordinal, compare, mxfp4_gemm_reference, to_bf16
from kernels.mxfp4.weights import PackedWeight

BF16_MAX = (2 - 2.0**-7) * 2.0**127


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16)


def bf16(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64).to(torch.bfloat16)


def f64(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("rule", ["even", "floor", "rceil"])
def test_the_product_is_the_exact_sum_of_quantised_products(rule: ExponentRule) -> None:
    a, b = randn(3, 192, seed=1), randn(64, 192, seed=2)
    out = mxfp4_gemm_reference(a, PackedWeight.from_dense(b), rule)
    assert out.shape == (3, 64) and out.dtype == torch.float64
    rows, columns = quantize(a, rule).dequantize().tolist(), quantize(b).dequantize().tolist()
    for m in range(3):
        for n in range(0, 64, 9):
            exact = sum(Fraction(x) * Fraction(y) for x, y in zip(rows[m], columns[n], strict=True))
            assert Fraction(float(out[m, n])) == exact


def test_a_product_by_hand() -> None:
    """Row 0 of A is all 1.7, which the scale 2**-2 (1.7 < 1.75) makes 6 / 4; B is all -3. K = 64."""
    a = torch.full((1, 64), 1.7, dtype=torch.bfloat16)
    weight = PackedWeight.from_dense(torch.full((64, 64), -3.0, dtype=torch.bfloat16))
    assert torch.equal(mxfp4_gemm_reference(a, weight), torch.full((1, 64), -288.0, dtype=torch.float64))


def test_leading_dimensions_and_strides_of_a_do_not_matter() -> None:
    weight = PackedWeight.from_dense(randn(128, 64))
    a = randn(64, 6, seed=1).T
    flat = mxfp4_gemm_reference(a.contiguous(), weight)
    assert torch.equal(mxfp4_gemm_reference(a, weight), flat)
    assert torch.equal(mxfp4_gemm_reference(a.reshape(2, 3, 64), weight), flat.reshape(2, 3, 128))
    assert mxfp4_gemm_reference(a[:0], weight).shape == (0, 128)


def test_a_weight_of_several_slices_gives_the_same_columns() -> None:
    """1088 x 4096 elements exceed one slice of 2**22; the second holds rows 1024 to 1087."""
    b, a = randn(1088, 4096, seed=4), randn(2, 4096, seed=5)
    whole = mxfp4_gemm_reference(a, PackedWeight.from_dense(b))
    tail = mxfp4_gemm_reference(a, PackedWeight.from_dense(b[1024:]))
    torch.testing.assert_close(whole[:, 1024:], tail, rtol=1e-13, atol=1e-13)


def test_nan_in_a_makes_its_row_nan_and_a_nan_scale_of_b_its_column() -> None:
    a = randn(3, 128)
    a[1, 70] = math.nan
    quantized = quantize(torch.zeros(64, 128))  # 0 * NaN is NaN too
    quantized.scales[5, 3] = 255
    out = mxfp4_gemm_reference(a, PackedWeight.from_packed(quantized.codes, quantized.scales))
    expected = torch.zeros(3, 64, dtype=torch.bool)
    expected[1] = expected[:, 5] = True
    assert torch.equal(out.isnan(), expected)


def test_infinity_counts_as_six_times_the_largest_scale() -> None:
    a = torch.zeros(1, 64, dtype=torch.bfloat16)
    a[0, 0] = -math.inf
    out = mxfp4_gemm_reference(a, PackedWeight.from_dense(torch.full((64, 64), 2.0**-20, dtype=torch.bfloat16)))
    assert torch.equal(out, torch.full((1, 64), -6 * 2.0**107, dtype=torch.float64))


def test_a_with_another_k_is_refused() -> None:
    weight = PackedWeight.from_dense(randn(64, 64))
    with pytest.raises(ValueError, match=r"a must be \[..., M, K=64\], got \(2, 128\)"):
        mxfp4_gemm_reference(randn(2, 128), weight)
    with pytest.raises(ValueError, match=r"got \(64,\)"):
        mxfp4_gemm_reference(randn(64), weight)


def nearest_bf16(x: float) -> float:
    """Round to bfloat16 over the rationals: 8 significant bits, ties to even, steps of at least 2**-133."""
    exponent = max(math.frexp(x)[1] - 8, -133)  # of the last bit kept
    rounded = round(Fraction(x) / Fraction(2) ** exponent) * Fraction(2) ** exponent  # round(): ties to even
    return math.copysign(float(rounded) if abs(rounded) < 2**128 else math.inf, x)


@settings(deadline=None, max_examples=300)
@given(st.floats(allow_nan=False, allow_infinity=False))
@example(1 + 2**-8 + 2**-40)  # through float32 this is a tie, and goes down
@example(1 + 3 * 2**-8 - 2**-40)  # and this goes up
@example(1 + 2**-8 + 0.75 * 2**-23)  # float32's nearest is right as it is, its neighbour is a tie
@example(-(2**-133) * (0.5 + 2**-40))
@example(2.0**-134)
@example(BF16_MAX + 2.0**119 - 2.0**90)
@example(BF16_MAX + 2.0**119)
def test_rounding_to_bf16_is_to_nearest_even_in_one_step(x: float) -> None:
    got = to_bf16(f64(x))
    assert got.dtype == torch.bfloat16
    assert float(got) == nearest_bf16(x)


@settings(deadline=None, max_examples=300)
@given(st.integers(0, 0x7F7E), st.sampled_from([0.5, 0.5 - 2**-40, 0.5 + 2**-40, 0.25]), st.sampled_from([1, -1]))
def test_rounding_next_to_the_midpoints_of_bf16(bits: int, part: float, sign: int) -> None:
    low, high = torch.tensor([bits, bits + 1], dtype=torch.int16).view(torch.bfloat16).to(torch.float64).tolist()
    x = sign * (low + (high - low) * part)
    assert float(to_bf16(f64(x))) == nearest_bf16(x)


def test_rounding_keeps_nan_infinity_and_the_sign_of_zero() -> None:
    got = to_bf16(f64(math.nan, math.inf, -math.inf, -0.0, -1e-300))
    assert got[0].isnan() and got[1] == math.inf and got[2] == -math.inf
    assert torch.signbit(got[3:]).all() and not got[3:].any()
    with pytest.raises(TypeError, match=r"float64, got torch\.float32"):
        to_bf16(torch.zeros(1))


def test_ordinals_count_the_values_of_bf16_in_order() -> None:
    positive = torch.arange(0x7F81, dtype=torch.int16).view(torch.bfloat16)  # 0 to Inf
    ordered = torch.cat([-positive[1:].flip(0), positive])
    assert (ordered[1:] > ordered[:-1]).all()
    assert torch.equal(bf16_ordinal(ordered), torch.arange(-0x7F80, 0x7F81, dtype=torch.int32))
    assert bf16_ordinal(bf16(-0.0)).item() == 0


def test_equal_tensors_report_no_error() -> None:
    report = compare(bf16(1.0, -2.0, 0.0, -0.0), f64(1.0, -2.0, -0.0, 0.0), ulp=0)
    assert report.ok and (report.elements, report.mismatches, report.first_mismatch) == (4, 0, None)
    assert (report.max_abs, report.max_rel, report.max_bf16_ulp, report.nan_count) == (0.0, 0.0, 0, 0)


def test_errors_by_hand() -> None:
    """bf16 steps: 2**-7 above 1, 2**-6 above 2. 1.0 is two steps from 1 + 2**-6, 2 + 2**-6 one from 2."""
    actual = bf16(4.0, 1.0, 2 + 2**-6, -1.0).reshape(2, 2)
    reference = f64(4.0, 1 + 2**-6, 2.0, -1.0).reshape(2, 2)
    report = compare(actual, reference)
    assert (report.mismatches, report.first_mismatch, report.max_bf16_ulp, report.ulp) == (1, (0, 1), 2, 1)
    assert report.max_abs == 2**-6 and report.max_rel == 2**-6 / (1 + 2**-6)
    assert not report.ok
    assert compare(actual, reference, ulp=2).ok
    assert compare(actual, reference, ulp=0).mismatches == 2


def test_the_reference_is_rounded_before_steps_are_counted_but_not_before_errors() -> None:
    report = compare(bf16(1.0), f64(1 + 2**-9), ulp=0)
    assert report.ok and report.max_abs == 2**-9


def test_steps_cross_zero_and_powers_of_two() -> None:
    smallest = 2.0**-133
    assert compare(bf16(smallest), f64(-smallest)).max_bf16_ulp == 2
    assert compare(bf16(1 - 2**-8), f64(1.0)).max_bf16_ulp == 1
    assert compare(bf16(-1.0), f64(1.0)).max_bf16_ulp == 2 * 0x3F80


def test_a_result_where_zero_is_expected_is_infinitely_wrong_in_relation() -> None:
    report = compare(bf16(0.0, 2.0**-10), f64(0.0, 0.0))
    assert report.max_rel == math.inf and report.max_abs == 2.0**-10


@pytest.mark.parametrize(
    ("actual", "reference"),
    [(math.nan, math.nan), (math.inf, math.inf), (-math.inf, -math.inf), (math.inf, 1e39)],
)
def test_the_same_nan_or_infinity_matches(actual: float, reference: float) -> None:
    """1e39 is Inf once rounded to bfloat16."""
    report = compare(bf16(1.0, actual), f64(1.0, reference), ulp=0)
    assert report.ok and (report.max_abs, report.max_rel, report.max_bf16_ulp) == (0.0, 0.0, 0)
    assert report.nan_count == math.isnan(actual)


@pytest.mark.parametrize(
    ("actual", "reference"),
    [
        (math.nan, 1.0),
        (1.0, math.nan),
        (0.0, math.nan),
        (math.nan, 0.0),
        (math.inf, -math.inf),
        (math.inf, BF16_MAX),
        (BF16_MAX, math.inf),
        (math.nan, math.inf),
        (math.inf, math.nan),
    ],
)
def test_any_other_nan_or_infinity_is_infinitely_wrong(actual: float, reference: float) -> None:
    report = compare(bf16(1.0, actual), f64(1.0, reference), ulp=1)
    assert (report.mismatches, report.first_mismatch, report.max_bf16_ulp) == (1, (1,), UNMATCHED_ULP)
    assert report.max_abs == report.max_rel == math.inf
    assert not compare(bf16(actual), f64(reference), ulp=0xFF00).ok


def test_the_first_mismatch_is_found_beyond_the_first_slice() -> None:
    reference = torch.zeros(3, 1 << 21, dtype=torch.float64)
    actual = torch.zeros(3, 1 << 21, dtype=torch.bfloat16)
    actual[2, 7], actual[2, 11], actual[0, 3] = 1.0, math.nan, 2.0**-133
    report = compare(actual, reference)
    assert (report.mismatches, report.first_mismatch, report.nan_count) == (2, (2, 7), 1)
    assert report.elements == 3 << 21
    actual[0, 9] = 1.0  # in the first slice, so the later ones no longer come first
    assert compare(actual, reference).first_mismatch == (0, 9)


def test_an_fp32_result_is_counted_in_bf16_steps() -> None:
    report = compare(torch.tensor([1.0 + 2**-20]), f64(1.0), ulp=0)
    assert report.ok and report.max_abs == 2**-20


def test_nothing_compared_is_no_error_and_wrong_arguments_are_refused() -> None:
    assert compare(bf16(), f64()).elements == 0
    with pytest.raises(ValueError, match=r"actual is \(1,\), reference \(2,\)"):
        compare(bf16(1.0), f64(1.0, 2.0))
    with pytest.raises(TypeError, match="reference must be float64"):
        compare(bf16(1.0), torch.zeros(1))
    with pytest.raises(ValueError, match="got -1"):
        compare(bf16(1.0), f64(1.0), ulp=-1)
