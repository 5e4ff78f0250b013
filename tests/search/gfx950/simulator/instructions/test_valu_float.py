"""Float instructions: rounding, signs, NaN, denormals."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippets import run

INF, NAN = float("inf"), float("nan")
FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)


def nearest_float32(value: Fraction) -> float:
    """``value`` rounded to the nearest float32, ties to even, by comparing exact fractions."""
    guess = np.float32(float(value))
    neighbours = [np.nextafter(guess, np.float32(-INF)), guess, np.nextafter(guess, np.float32(INF))]
    finite = [x for x in neighbours if np.isfinite(x)]
    return float(min(finite, key=lambda x: (abs(Fraction(float(x)) - value), int(x.view(np.uint32)) & 1)))


@pytest.mark.parametrize(
    ("text", "inputs", "result"),
    [
        ("v_add_f32_e32 v3, v0, v1", (1.0, 2.0**-24, 0.0), 1.0),  # tie to even
        ("v_add_f32_e32 v3, v0, v1", (1.0 + 2.0**-23, 2.0**-24, 0.0), 1.0 + 2.0**-22),
        ("v_sub_f32_e32 v3, v0, v1", (2.0**-149, 2.0**-150 * 2, 0.0), 0.0),
        ("v_subrev_f32_e32 v3, v0, v1", (1.0, 3.0, 0.0), 2.0),
        ("v_mul_f32_e32 v3, v0, v1", (2.0**-126, 0.5, 0.0), 2.0**-127),  # denormal result is kept
        ("v_mul_legacy_f32_e32 v3, v0, v1", (0.0, INF, 0.0), 0.0),
        ("v_fma_f32 v3, v0, v1, v2", (1.0 + 2.0**-23, 1.0 - 2.0**-23, -1.0), -(2.0**-46)),  # one rounding
        ("v_max3_f32 v3, v0, v1, v2", (1.0, 3.0, 2.0), 3.0),
        ("v_max3_f32 v3, |v0|, |v1|, |v2|", (-5.0, 3.0, 2.0), 5.0),
        ("v_min3_f32 v3, v0, v1, v2", (1.0, NAN, 2.0), 1.0),
        ("v_med3_f32 v3, v0, v1, v2", (5.0, 1.0, 3.0), 3.0),
        ("v_max_f32_e32 v3, v0, v1", (NAN, 2.0, 0.0), 2.0),  # IEEE maxNum
        ("v_min_f32_e32 v3, v0, v1", (2.0, NAN, 0.0), 2.0),
        ("v_floor_f32_e32 v3, v0", (-1.5, 0.0, 0.0), -2.0),
        ("v_ceil_f32_e32 v3, v0", (1.25, 0.0, 0.0), 2.0),
        ("v_trunc_f32_e32 v3, v0", (-1.5, 0.0, 0.0), -1.0),
        ("v_rndne_f32_e32 v3, v0", (2.5, 0.0, 0.0), 2.0),
        ("v_rndne_f32_e32 v3, v0", (3.5, 0.0, 0.0), 4.0),
        ("v_fract_f32_e32 v3, v0", (-0.25, 0.0, 0.0), 0.75),
        ("v_frexp_mant_f32_e32 v3, v0", (12.0, 0.0, 0.0), 0.75),
        ("v_exp_f32_e32 v3, v0", (-126.0, 0.0, 0.0), 2.0**-126),
        ("v_exp_f32_e32 v3, v0", (-127.0, 0.0, 0.0), 0.0),  # denormal results are flushed
        ("v_exp_f32_e64 v3, -v0", (-3.0, 0.0, 0.0), 8.0),
        ("v_log_f32_e32 v3, v0", (8.0, 0.0, 0.0), 3.0),
        ("v_rcp_f32_e32 v3, v0", (4.0, 0.0, 0.0), 0.25),
        ("v_rcp_f32_e32 v3, v0", (-0.0, 0.0, 0.0), -INF),
        ("v_rcp_iflag_f32_e32 v3, v0", (3.0, 0.0, 0.0), float(np.float32(1 / 3))),
        ("v_rsq_f32_e32 v3, v0", (4.0, 0.0, 0.0), 0.5),
        ("v_sqrt_f32_e32 v3, v0", (9.0, 0.0, 0.0), 3.0),
        ("v_sin_f32_e32 v3, v0", (0.25, 0.0, 0.0), 1.0),  # argument in turns
        ("v_mul_f32_e64 v3, v0, v1 mul:2", (3.0, 5.0, 0.0), 30.0),
        ("v_add_f32_e64 v3, v0, v1 clamp", (3.0, 5.0, 0.0), 1.0),
        ("v_add_f32_e64 v3, -v0, |v1| clamp", (3.0, -3.25, 0.0), 0.25),
        ("v_add_f32_e64 v3, v0, v1 clamp", (NAN, 5.0, 0.0), 0.0),
        ("v_minimum3_f32 v3, v0, v1, v2", (2.0, 1.0, 3.0), 1.0),
    ],
)
def test_results(text: str, inputs: tuple[float, float, float], result: float) -> None:
    state = run(text, dict(zip(("v0", "v1", "v2"), inputs, strict=True)))
    assert state.f("v3")[0] == result
    assert np.signbit(state.f("v3")[0]) == np.signbit(result)


def test_maximum3_propagates_nan() -> None:
    assert np.isnan(run("v_maximum3_f32 v3, v0, v1, v2", {"v0": 1.0, "v1": NAN, "v2": 2.0}).f("v3")[0])


@pytest.mark.parametrize(("x", "y"), [(0.0, -0.0), (-0.0, 0.0)])
def test_zero_signs_of_max_and_min(x: float, y: float) -> None:
    state = run("v_max_f32_e32 v2, v0, v1\nv_min_f32_e32 v3, v0, v1", {"v0": x, "v1": y})
    assert not np.signbit(state.f("v2")[0])
    assert np.signbit(state.f("v3")[0])


@given(FINITE, FINITE, FINITE)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not 2.0**-120 < abs(exact) < 2.0**120:
        return
    result = float(run("v_fma_f32 v3, v0, v1, v2", {"v0": a, "v1": b, "v2": c}).f("v3")[0])
    assert result == nearest_float32(exact)


def test_fma_of_a_double_rounding_case() -> None:
    # 1 + 2^-24 + 2^-60: float64 drops the last term, and a tie would round down to 1.
    state = run("v_fma_f32 v3, v0, v1, v2", {"v0": 2.0**-30, "v1": 2.0**-30, "v2": 1.0})
    assert state.f("v3")[0] == 1.0
    tie = float(np.float32(1 + 2.0**-23)) * 2.0**-24
    state = run("v_fma_f32 v3, v0, v1, v2", {"v0": 1 + 2.0**-23, "v1": 2.0**-24, "v2": 1.0})
    assert 1.0 + tie > 1.0
    assert state.f("v3")[0] == 1.0 + 2.0**-23


def test_fmac_accumulates_in_its_destination() -> None:
    assert run("v_fmac_f32_e32 v2, v0, v1", {"v0": 3.0, "v1": 4.0, "v2": 5.0}).f("v2")[0] == 17.0


def test_ldexp_overflow_and_underflow() -> None:
    state = run("v_ldexp_f32 v1, v0, 10\nv_ldexp_f32 v2, v0, 999", {"v0": 1.5})
    assert (state.f("v1")[0], state.f("v2")[0]) == (1536.0, INF)


def test_f16_arithmetic_rounds_to_nearest_even_and_clears_the_high_half() -> None:
    one, tiny = 0x3C00, 0x1000  # 1.0 and 2^-11, half an ulp of 1.0
    state = run("v_add_f16_e32 v2, v0, v1", {"v0": 0xABCD0000 | one, "v1": tiny})
    assert state.u("v2")[0] == one


def test_division_sequence_gives_the_correctly_rounded_quotient() -> None:
    text = """
    v_div_scale_f32 v4, s[0:1], v1, v1, v0
    v_div_scale_f32 v5, vcc, v0, v1, v0
    v_rcp_f32_e32 v6, v4
    v_fma_f32 v7, -v4, v6, 1.0
    v_fmac_f32_e32 v6, v7, v6
    v_mul_f32_e32 v7, v5, v6
    v_fma_f32 v8, -v4, v7, v5
    v_fmac_f32_e32 v7, v8, v6
    v_fma_f32 v8, -v4, v7, v5
    v_div_fmas_f32 v8, v8, v6, v7
    v_div_fixup_f32 v2, v8, v1, v0
    """
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(64) * 10.0 ** rng.integers(-30, 30, 64)).astype(np.float32)
    y = (rng.standard_normal(64) * 10.0 ** rng.integers(-5, 5, 64)).astype(np.float32)
    assert np.array_equal(run(text, {"v0": x, "v1": y}).f("v2"), x / y)
