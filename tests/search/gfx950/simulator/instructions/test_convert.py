"""Conversions: rounding, saturation, NaN, E2M1 codes and byte selection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippets import run

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("name", "value", "result"),
    [
        ("u32_f32", 3.99, 3),
        ("u32_f32", -1.0, 0),
        ("u32_f32", NAN, 0),
        ("u32_f32", 1e20, 0xFFFFFFFF),
        ("i32_f32", -3.99, 0xFFFFFFFD),
        ("i32_f32", -1e20, 0x80000000),
        ("i32_f32", INF, 0x7FFFFFFF),
        ("flr_i32_f32", -3.01, 0xFFFFFFFC),
        ("rpi_i32_f32", 2.5, 3),
        ("f16_f32", 65520.0, 0x7C00),  # rounds up past the largest f16
        ("f16_f32", 2.0**-25, 0),  # tie to even
        ("f16_f32", 1.0 + 2.0**-11, 0x3C00),
    ],
)
def test_from_float(name: str, value: float, result: int) -> None:
    assert run(f"v_cvt_{name}_e32 v1, v0", {"v0": value}).u("v1")[0] == result


@pytest.mark.parametrize(
    ("name", "bits", "result"),
    [
        ("f32_u32", 0xFFFFFFFF, 4294967296.0),
        ("f32_u32", 0x01000001, 16777216.0),  # tie to even
        ("f32_i32", 0xFFFFFFFF, -1.0),
        ("f32_ubyte0", 0x04030201, 1.0),
        ("f32_ubyte3", 0x04030201, 4.0),
        ("f32_f16", 0xABCD3C00, 1.0),
        ("f32_bf16", 0x12343FC0, 1.5),
    ],
)
def test_to_float(name: str, bits: int, result: float) -> None:
    assert run(f"v_cvt_{name}_e32 v1, v0", {"v0": bits}).f("v1")[0] == result


@pytest.mark.parametrize(
    ("bits", "result"),
    [
        (0x3F808000, 0x3F80),  # tie to even
        (0x3F818000, 0x3F82),  # tie to even
        (0x3F808001, 0x3F81),
        (0x7F7FFFFF, 0x7F80),  # rounds to infinity
        (0x7F800001, 0x7FC0),  # a NaN stays a NaN, quiet
        (0xFF800000, 0xFF80),
        (0x80000000, 0x8000),
    ],
)
def test_bf16_rounding(bits: int, result: int) -> None:
    state = run("v_cvt_pk_bf16_f32 v2, v0, v1", {"v0": bits, "v1": 0x3F800000})
    assert hex(state.u("v2")[0]) == hex(0x3F800000 | result)


def test_pkrtz_rounds_toward_zero() -> None:
    state = run("v_cvt_pkrtz_f16_f32 v2, v0, v1", {"v0": 1.0 + 2.0**-11 + 2.0**-12, "v1": -70000.0})
    assert hex(state.u("v2")[0]) == hex(0xFBFF3C00)  # -65504, the largest magnitude


E2M1_CASES = [
    (0.0, 0), (-0.0, 8), (0.25, 0), (0.2500001, 1), (0.5, 1), (0.75, 2), (1.25, 2), (1.3, 3), (1.75, 4), (2.5, 4),
    (2.6, 5), (3.5, 6), (4.9, 6), (5.0, 6), (5.1, 7), (6.0, 7), (1e30, 7), (INF, 7), (-INF, 15), (-3.0, 13), (1e-40, 0),
]  # fmt: skip


@pytest.mark.parametrize(("value", "code"), E2M1_CASES)
def test_e2m1_codes_of_the_scaled_conversion(value: float, code: int) -> None:
    state = run("v_cvt_scalef32_pk_fp4_f32 v3, v0, v1, v2", {"v0": value, "v1": 2.0, "v2": 1.0, "v3": 0})
    assert state.u("v3")[0] == code | 4 << 4


def test_e2m1_ignores_all_but_the_exponent_of_the_scale() -> None:
    state = run("v_cvt_scalef32_pk_fp4_f32 v3, v0, v1, v2", {"v0": 12.0, "v1": -8.0, "v2": 3.9, "v3": 0})
    assert state.u("v3")[0] == 7 | 14 << 4  # divided by 2: 6 and -4


def test_e2m1_with_the_smallest_scale() -> None:
    state = run(
        "v_cvt_scalef32_pk_fp4_f32 v3, v0, v1, v2", {"v0": 0x00400000, "v1": 0x00800000, "v2": 0x00400000, "v3": 0}
    )
    assert state.u("v3")[0] == 2 | 4 << 4  # exponent field 0 stands for 2^-127: 1 and 2


@pytest.mark.parametrize(("selects", "byte"), [("0,0", 0), ("1,0", 1), ("0,1", 2), ("1,1", 3)])
def test_scaled_conversion_writes_one_byte_and_keeps_the_others(selects: str, byte: int) -> None:
    text = f"v_cvt_scalef32_pk_fp4_f32 v3, v0, v1, v2 op_sel:[0,0,{selects}]"
    state = run(text, {"v0": 1.0, "v1": 2.0, "v2": 1.0, "v3": 0xEEEEEEEE})
    expected = 0xEEEEEEEE & ~(0xFF << 8 * byte) | 0x42 << 8 * byte
    assert hex(state.u("v3")[0]) == hex(expected)


def test_scaled_conversion_from_a_bf16_pair() -> None:
    state = run("v_cvt_scalef32_pk_fp4_bf16 v3, v0, v2", {"v0": 0xC0403F80, "v2": 1.0, "v3": 0})  # {-3.0, 1.0}
    assert state.u("v3")[0] == 2 | 13 << 4


@pytest.mark.parametrize(("selects", "expected"), [("0,0", (0.5, 6.0)), ("1,0", (-1.0, 3.0)), ("0,1", (4.0, -0.0))])
def test_expansion_of_one_byte(selects: str, expected: tuple[float, float]) -> None:
    source = 0x00_86_5A_71
    text = f"v_cvt_scalef32_pk_f32_fp4 v[4:5], v0, v1 op_sel:[{selects},0]"
    state = run(text, {"v0": source, "v1": 2.0})
    assert (state.f("v4")[0] / 2, state.f("v5")[0] / 2) == expected


def test_expansion_to_bf16_with_the_largest_scale_overflows_to_infinity() -> None:
    state = run("v_cvt_scalef32_pk_bf16_fp4 v2, v0, v1", {"v0": 0x72, "v1": 0x7F000000})  # {6, 1} * 2^127
    assert hex(state.u("v2")[0]) == hex(0x7F807F00)


@given(st.floats(width=32, allow_nan=False, min_value=-8, max_value=8), st.integers(1, 254))
def test_e2m1_is_the_nearest_value_with_ties_to_the_even_code(value: float, exponent: int) -> None:
    grid = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    scaled = float(np.float64(value) * 2.0 ** (exponent - 127))
    if not 2.0**-126 <= abs(scaled) < 2.0**127:
        return
    registers = {"v0": scaled, "v1": 0.0, "v2": exponent << 23, "v3": 0}
    code = int(run("v_cvt_scalef32_pk_fp4_f32 v3, v0, v1, v2", registers).u("v3")[0]) & 15
    nearest = min(range(8), key=lambda c: (abs(grid[c] - abs(value)), c & 1))
    assert code & 7 == nearest
    assert code >> 3 == int(np.signbit(value))


def test_double_conversions() -> None:
    state = run(
        "v_cvt_f64_f32_e32 v[2:3], v0\nv_cvt_f32_f64_e32 v4, v[2:3]\nv_cvt_i32_f64_e32 v5, v[2:3]", {"v0": -2.5}
    )
    assert state.pair("v[2:3]").view(np.float64)[0] == -2.5
    assert state.f("v4")[0] == -2.5
    assert state.u("v5")[0] == 0xFFFFFFFE
