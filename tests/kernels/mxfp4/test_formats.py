"""kernels.mxfp4.numerics: every code, scale, tie and special of MXFP4, against exact rational arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.mxfp4.numerics import (
    RULES,
    ExponentRule,
    Mxfp4Tensor,
    e8m0_values,
    pack_codes,
    quantize,
    row_slices,
    unpack_codes,
)

MAGNITUDES = [Fraction(n, 2) for n in (0, 1, 2, 3, 4, 6, 8, 12)]  # OCP MX v1.0, FP4 E2M1
FINITE_BF16 = torch.arange(0x7F80, dtype=torch.int16).view(torch.bfloat16)  # all that are not negative


def exact_exponent(amax: float, rule: str) -> int:
    """The exponent of the scale, from the definitions over the reals."""
    if math.isinf(amax):
        return 127
    if amax == 0:
        return -127
    mantissa, exponent = math.frexp(amax)  # exact: amax = mantissa * 2**exponent, 0.5 <= mantissa < 1
    floor_log2 = exponent - 1
    if rule == "rceil":  # the least u with 6 * 2**u >= amax
        u = floor_log2 - 3
        while Fraction(2) ** u * 6 < Fraction(amax):
            u += 1
    elif rule == "even" and Fraction(mantissa) * 2 >= Fraction(7, 4):
        u = floor_log2 + 1 - 2 if floor_log2 < 127 else 127  # 2**128 is Inf in fp32
    else:
        u = floor_log2 - 2
    return min(max(u, -127), 127)


def exact_code(x: float, u: int) -> int:
    """The nearest E2M1 code of x / 2**u, ties to the even code, by search."""
    sign = 8 if math.copysign(1.0, x) < 0 else 0
    if math.isinf(x):
        return sign | 7
    target = abs(Fraction(x)) / Fraction(2) ** u
    return sign | min(range(8), key=lambda code: (abs(MAGNITUDES[code] - target), code % 2))


def block_of(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """One block: ``values``, then zeros."""
    return torch.tensor([*values, *[0.0] * (32 - len(values))], dtype=torch.float64).to(dtype)[None]


def codes_of(quantized: Mxfp4Tensor) -> list[int]:
    return [int(code) for code in unpack_codes(quantized.codes).flatten()]


def test_dequantises_every_code_under_every_scale_exactly() -> None:
    codes = torch.arange(16, dtype=torch.uint8).repeat(256, 2)
    scales = torch.arange(256, dtype=torch.uint8)[:, None]
    values = Mxfp4Tensor(pack_codes(codes), scales).dequantize(torch.float64)
    for byte in range(255):
        for code in range(16):
            expected = math.ldexp(float(MAGNITUDES[code & 7]), byte - 127)
            assert values[byte, code] == expected * (-1 if code & 8 else 1)
            assert torch.signbit(values[byte, code]) == bool(code & 8)
    assert values[255].isnan().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_shorter_values_are_exact_below_two_to_the_128_and_infinite_above(dtype: torch.dtype) -> None:
    codes = torch.arange(16, dtype=torch.uint8).repeat(255, 2)
    quantized = Mxfp4Tensor(pack_codes(codes), torch.arange(255, dtype=torch.uint8)[:, None])
    exact, single = quantized.dequantize(torch.float64), quantized.dequantize(dtype)
    small = exact.abs() < 2.0**128
    assert (single.to(torch.float64) == exact)[small].all()
    assert single[~small].isinf().all() and (~small).any()


def test_scale_values_agree_with_the_e8m0_type_of_torch() -> None:
    scales = torch.arange(256, dtype=torch.uint8)
    theirs = scales.view(torch.float8_e8m0fnu).to(torch.float32)
    torch.testing.assert_close(e8m0_values(scales), theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("rule", RULES)
def test_every_code_under_every_scale_survives_a_round_trip(rule: ExponentRule) -> None:
    """The maximum of each block, 6 * 2**u, gives back u under all rules. Bytes 253 and 254 overflow fp32."""
    codes = pack_codes(torch.arange(16, dtype=torch.uint8).repeat(253, 2))
    original = Mxfp4Tensor(codes, torch.arange(253, dtype=torch.uint8)[:, None])
    again = quantize(original.dequantize(), rule)
    assert torch.equal(again.scales, original.scales)
    assert torch.equal(again.codes, codes)


@pytest.mark.parametrize("rule", RULES)
def test_scale_of_every_bf16_maximum(rule: ExponentRule) -> None:
    x = torch.zeros(0x7F80, 32, dtype=torch.bfloat16)
    x[:, 17] = -FINITE_BF16
    expected = [exact_exponent(float(a), rule) + 127 for a in FINITE_BF16]
    assert quantize(x, rule).scales.flatten().tolist() == expected


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("mantissa", [0x3FFFFF, 0x400000, 0x400001, 0x5FFFFF, 0x600000, 0x7FFFFF])
def test_scale_at_the_mantissas_where_the_rules_turn(rule: ExponentRule, mantissa: int) -> None:
    amax = torch.tensor([(field << 23) | mantissa for field in range(255)], dtype=torch.int32)
    x = torch.zeros(255, 32)
    x[:, 0] = amax.view(torch.float32)
    expected = [exact_exponent(float(a), rule) + 127 for a in x[:, 0]]
    assert quantize(x, rule).scales.flatten().tolist() == expected


def test_the_rules_differ_where_their_definitions_do() -> None:
    """By hand: 1.5 * 4 is 6; 7 = 1.75 * 4 is above it, and on the threshold of ``even``."""
    bytes_of = {a: [quantize(block_of(a), rule).scales.item() for rule in RULES] for a in (6.0, 6.5, 7.0)}
    assert RULES == ("even", "floor", "rceil")
    assert bytes_of == {6.0: [127, 127, 127], 6.5: [127, 127, 128], 7.0: [128, 127, 128]}


@pytest.mark.parametrize("u", [-100, -30, 0, 1, 60, 125])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("tie", "below", "at", "above"),
    [
        (0.25, 0, 0, 1),
        (0.75, 1, 2, 2),
        (1.25, 2, 2, 3),
        (1.75, 3, 4, 4),
        (2.5, 4, 4, 5),
        (3.5, 5, 6, 6),
        (5.0, 6, 6, 7),
    ],
)
def test_ties_go_to_the_even_code_and_their_neighbours_to_the_nearest(
    tie: float, below: int, at: int, above: int, sign: int, u: int
) -> None:
    """The neighbours are the nearest fp32 values. 6 sets the scale to 2**u; scaling by it is exact."""
    exact = torch.tensor(tie)
    neighbours = [float(exact.nextafter(torch.tensor(limit))) for limit in (0.0, 9.0)]
    values = [sign * v for v in (neighbours[0], tie, neighbours[1])]
    quantized = quantize(block_of(6.0, *values) * 2.0**u)
    sign_bit = 8 if sign < 0 else 0
    assert quantized.scales.item() == u + 127
    assert codes_of(quantized)[:4] == [7, below | sign_bit, at | sign_bit, above | sign_bit]


@pytest.mark.parametrize("rule", RULES)
def test_every_bf16_value_gets_the_nearest_code(rule: ExponentRule) -> None:
    """Each finite value as a maximum and up to 2**5 below one. Distances near ties are exact in float64."""
    ratios = 2.0 ** -torch.arange(6, dtype=torch.float64)
    x = torch.zeros(0x7F80, 32, dtype=torch.bfloat16)
    x[:, :6] = (FINITE_BF16.to(torch.float64)[:, None] * ratios).to(torch.bfloat16)
    quantized = quantize(x, rule)
    exponents = quantized.scales.numpy().astype(np.int64) - 127  # right: see the test above
    scaled = np.ldexp(x.to(torch.float64).numpy(), -exponents)
    even_first = np.array([0, 2, 4, 6, 1, 3, 5, 7])  # argmin takes the first of equals
    grid = np.array([float(m) for m in MAGNITUDES])[even_first]
    expected = even_first[np.abs(scaled[..., None] - grid).argmin(-1)]
    assert np.array_equal(unpack_codes(quantized.codes).numpy(), expected)


def from_bits(patterns: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Values of ``dtype`` from their bit patterns."""
    width = torch.int32 if dtype == torch.float32 else torch.int16
    bits = torch.iinfo(width).bits
    signed = [p - (1 << bits) if p >> (bits - 1) else p for p in patterns]
    return torch.tensor(signed, dtype=width).view(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("rule", RULES)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_block_matches_exact_rational_arithmetic(
    rule: ExponentRule, dtype: torch.dtype, data: st.DataObject
) -> None:
    """Bit patterns near one another, so that codes other than 0 occur; NaN patterns excluded."""
    mantissa_bits = {torch.bfloat16: 7, torch.float16: 10, torch.float32: 23}[dtype]
    infinity = {torch.bfloat16: 0x7F80, torch.float16: 0x7C00, torch.float32: 0x7F800000}[dtype]
    sign = 1 << (15 if dtype != torch.float32 else 31)
    top = data.draw(st.integers(0, infinity))
    pattern = st.tuples(st.integers(0, 6 << mantissa_bits), st.booleans())
    drops = data.draw(st.lists(pattern, min_size=31, max_size=31))
    patterns = [top, *(max(top - drop, 0) | (sign if negative else 0) for drop, negative in drops)]
    x = from_bits(patterns, dtype)
    quantized = quantize(x[None], rule)
    values = x.tolist()
    u = exact_exponent(max(abs(v) for v in values), rule)
    assert quantized.scales.item() == u + 127
    assert codes_of(quantized) == [exact_code(v, u) for v in values]


def test_zeros_keep_their_sign_under_the_smallest_scale() -> None:
    quantized = quantize(block_of(0.0, -0.0, 0.0, -0.0))
    assert quantized.scales.item() == 0
    assert codes_of(quantized)[:5] == [0, 8, 0, 8, 0]
    assert torch.signbit(quantized.dequantize())[0, :4].tolist() == [False, True, False, True]


@pytest.mark.parametrize("rule", RULES)
def test_a_block_with_infinity_saturates_to_the_largest_scale(rule: ExponentRule) -> None:
    quantized = quantize(block_of(math.inf, -math.inf, 1.0, -(2.0**127), dtype=torch.bfloat16), rule)
    assert quantized.scales.item() == 254
    assert codes_of(quantized)[:5] == [7, 15, 0, 10, 0]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bits", [0x7F81, 0x7FC0, 0x7FFF, 0xFF81, 0xFFFF])
def test_nan_makes_its_own_block_nan_and_no_other(rule: ExponentRule, bits: int) -> None:
    x = torch.ones(2, 96, dtype=torch.bfloat16)
    x[1, 45] = from_bits([bits], torch.bfloat16)[0]
    x[1, 46] = math.inf  # NaN outranks it
    quantized = quantize(x, rule)
    one = quantize(torch.ones(1, 32), rule).scales.item()
    assert quantized.scales.tolist() == [[one, one, one], [one, 255, one]]
    values = quantized.dequantize()
    assert values[1, 32:64].isnan().all()
    assert not values[0].isnan().any() and not values[1, :32].isnan().any() and not values[1, 64:].isnan().any()


def test_tiny_maxima_clamp_to_the_smallest_scale_without_wrapping() -> None:
    """bf16 patterns 0x0060-0x00df: u would be -128 or less. The byte turns 1 at 1.75 * 2**-125 (0x0160)."""
    patterns = [0x0001, *range(0x0060, 0x00E0), 0x015F, 0x0160]
    x = torch.zeros(len(patterns), 32, dtype=torch.bfloat16)
    x[:, 0] = from_bits(patterns, torch.bfloat16)
    scales = quantize(x).scales.flatten().tolist()
    assert scales == [0] * (len(patterns) - 1) + [1]


def test_subnormal_values_round_by_their_true_size() -> None:
    """By hand, in units of 2**-127 (bf16's subnormal step is 2**-133, so pattern p is p / 64 units)."""
    expected = {
        0x0010: 0,
        0x0011: 1,
        0x0030: 2,
        0x0060: 3,
        0x0080: 4,
        0x00DF: 5,
        0x00E0: 6,
        0x0100: 6,
        0x0121: 7,
    }
    x = from_bits([*expected, *[0] * (32 - len(expected))], torch.bfloat16)
    quantized = quantize(x[None])
    assert quantized.scales.item() == 0
    assert codes_of(quantized)[: len(expected)] == list(expected.values())


def test_the_even_k_is_in_the_low_nibble() -> None:
    assert quantize(block_of(6.0, -0.5, 1.0)).codes[0, :2].tolist() == [0x97, 0x02]


@given(st.binary(min_size=1, max_size=64))
def test_packing_inverts_unpacking(raw: bytes) -> None:
    packed = torch.tensor(list(raw), dtype=torch.uint8)
    assert torch.equal(pack_codes(unpack_codes(packed)), packed)


def test_error_and_disagreement_on_normal_data_are_the_published_ones() -> None:
    """NMSE on N(0, 1) 0.01252 / 0.01318 / 0.01329; bytes that differ from ``even`` 16.7 % and 12.2 %."""
    x = torch.randn(1024, 2048, generator=torch.Generator().manual_seed(1))
    found = {rule: quantize(x, rule) for rule in ("even", "floor", "rceil")}
    nmse = {rule: float(((q.dequantize() - x) ** 2).sum() / (x**2).sum()) for rule, q in found.items()}
    assert nmse == pytest.approx({"even": 0.01252, "floor": 0.01318, "rceil": 0.01329}, abs=4e-5)
    differ = [float((found[rule].scales != found["even"].scales).float().mean()) for rule in ("floor", "rceil")]
    assert differ == pytest.approx([0.167, 0.122], abs=0.005)


@pytest.mark.parametrize("shape", [(32,), (0, 64), (3, 64), (2, 3, 96)])
def test_leading_dimensions_are_kept(shape: tuple[int, ...]) -> None:
    quantized = quantize(torch.ones(shape, dtype=torch.bfloat16))
    assert quantized.codes.shape == (*shape[:-1], shape[-1] // 2)
    assert quantized.scales.shape == (*shape[:-1], shape[-1] // 32)
    assert torch.equal(quantized.dequantize(), torch.ones(shape))


def test_strides_do_not_matter() -> None:
    x = torch.randn(64, 40, generator=torch.Generator().manual_seed(2)).to(torch.bfloat16)
    a, b = quantize(x.T), quantize(x.T.contiguous())
    assert torch.equal(a.codes, b.codes) and torch.equal(a.scales, b.scales)


def test_row_slices_cover_every_row_once_and_bound_their_size() -> None:
    slices = list(row_slices(10_000, 1000))
    assert [i for s in slices for i in range(s.start, s.stop)] == list(range(10_000))
    assert max(s.stop - s.start for s in slices) * 1000 <= 1 << 22 and len(slices) > 1
    assert [s.stop - s.start for s in row_slices(2, 1 << 30)] == [1, 1]


def test_a_tensor_larger_than_one_slice_is_quantised_like_its_rows() -> None:
    x = torch.randn(1200, 4096, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    assert len(list(row_slices(*x.shape))) == 2
    whole, tail = quantize(x), quantize(x[1000:])
    assert torch.equal(whole.codes[1000:], tail.codes) and torch.equal(whole.scales[1000:], tail.scales)
    assert torch.equal(whole.dequantize()[1000:], tail.dequantize())


@pytest.mark.parametrize("K", [0, 16, 33, 50])
def test_rejects_a_k_that_is_no_multiple_of_the_block(K: int) -> None:
    with pytest.raises(ValueError, match=f"K={K} is not a positive multiple of 32"):
        quantize(torch.zeros(2, K))


def test_rejects_other_dtypes_and_rules() -> None:
    with pytest.raises(TypeError, match=r"float64.*use bfloat16"):
        quantize(torch.zeros(1, 32, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"'ceil'.*even, floor, rceil"):
        quantize(torch.zeros(1, 32), "ceil")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="float16"):
        quantize(torch.zeros(1, 32)).dequantize(torch.float16)


def test_a_tensor_rejects_parts_that_do_not_fit() -> None:
    codes, scales = torch.zeros(2, 32, dtype=torch.uint8), torch.zeros(2, 2, dtype=torch.uint8)
    Mxfp4Tensor(codes, scales)
    with pytest.raises(ValueError, match=r"\(2, 32\) and \(2, 1\)"):
        Mxfp4Tensor(codes, scales[:, :1])
    with pytest.raises(ValueError, match="disagree"):
        Mxfp4Tensor(codes[:, :24], scales[:, :1])
    with pytest.raises(TypeError, match=r"scales must be uint8, got torch\.int8"):
        Mxfp4Tensor(codes, scales.to(torch.int8))
