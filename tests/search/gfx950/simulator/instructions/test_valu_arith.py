"""Carries, products and saturation against values worked out from the ISA's definitions."""

from __future__ import annotations

import pytest
from snippets import run


@pytest.mark.parametrize(
    ("text", "inputs", "result"),
    [
        ("v_mul_lo_u32 v3, v0, v1", (0x10001, 0x10001, 0), 0x20001),
        ("v_mul_hi_u32 v3, v0, v1", (0xFFFFFFFF, 0xFFFFFFFF, 0), 0xFFFFFFFE),
        ("v_mul_hi_i32 v3, v0, v1", (0xFFFFFFFF, 2, 0), 0xFFFFFFFF),  # -1 * 2
        ("v_mul_u32_u24_e32 v3, v0, v1", (0xFF000003, 5, 0), 15),  # the top byte is not read
        ("v_mul_i32_i24_e32 v3, v0, v1", (0x00FFFFFF, 5, 0), 0xFFFFFFFB),  # -1 * 5
        ("v_mad_u32_u24 v3, v0, v1, v2", (0xFF000003, 5, 0xFFFFFFFF), 14),
        ("v_mad_i32_i24 v3, v0, v1, v2", (0x00FFFFFF, 5, 6), 1),
        ("v_sub_u32_e64 v3, v0, v1 clamp", (1, 2, 0), 0),
        ("v_add_u32_e64 v3, v0, v1 clamp", (0xFFFFFFFF, 2, 0), 0xFFFFFFFF),
        ("v_add_i32 v3, v0, v1 clamp", (0x7FFFFFFF, 2, 0), 0x7FFFFFFF),
        ("v_add_i32 v3, v0, v1", (0x7FFFFFFF, 2, 0), 0x80000001),
        ("v_sub_i32 v3, v0, v1 clamp", (0x80000000, 2, 0), 0x80000000),
        ("v_max3_i32 v3, v0, v1, v2", (0xFFFFFFFF, 3, 2), 3),
        ("v_min3_u32 v3, v0, v1, v2", (0xFFFFFFFF, 3, 2), 2),
        ("v_med3_i32 v3, v0, v1, v2", (0xFFFFFFFF, 3, 2), 2),
    ],
)
def test_results(text: str, inputs: tuple[int, int, int], result: int) -> None:
    state = run(text, dict(zip(("v0", "v1", "v2"), inputs, strict=True)))
    assert set(state.u("v3").tolist()) == {result}


def test_64_bit_sum_through_the_carry_mask() -> None:
    text = "v_add_co_u32_e32 v4, vcc, v0, v2\nv_addc_co_u32_e32 v5, vcc, v1, v3, vcc"
    state = run(text, {"v0": [0xFFFFFFFF] + [1] * 63, "v1": 1, "v2": 1, "v3": 2})
    assert state.pair("v[4:5]")[:2].tolist() == [0x4_00000000, 0x3_00000002]
    assert state.pair("vcc") == 0


def test_64_bit_difference_through_the_borrow_mask() -> None:
    text = "v_sub_co_u32_e32 v4, vcc, v0, v2\nv_subb_co_u32_e32 v5, vcc, v1, v3, vcc"
    state = run(text, {"v0": 0, "v1": 0, "v2": 1, "v3": 0})
    assert state.pair("v[4:5]")[0] == 0xFFFFFFFFFFFFFFFF
    assert state.pair("vcc") == 0xFFFFFFFFFFFFFFFF


def test_carry_is_zero_in_inactive_lanes() -> None:
    state = run("v_add_co_u32_e32 v1, vcc, v0, v0", {"v0": 0xFFFFFFFF, "vcc": 0}, exec_mask=0xF)
    assert state.pair("vcc") == 0xF


def test_mad_u64_u32_keeps_64_bits_and_reports_the_carry() -> None:
    registers = {"v0": 0xFFFFFFFF, "v1": 0xFFFFFFFF, "v[2:3]": 0xFFFFFFFFFFFFFFFF}
    state = run("v_mad_u64_u32 v[4:5], s[0:1], v0, v1, v[2:3]", registers)
    assert state.pair("v[4:5]")[0] == (0xFFFFFFFF**2 + 0xFFFFFFFFFFFFFFFF) & 0xFFFFFFFFFFFFFFFF
    assert state.pair("s[0:1]") == 0xFFFFFFFFFFFFFFFF


def test_mad_i64_i32_multiplies_signed() -> None:
    state = run("v_mad_i64_i32 v[4:5], s[0:1], v0, v1, v[2:3]", {"v0": -3, "v1": 5, "v[2:3]": 1})
    assert state.pair("v[4:5]").view("int64")[0] == -14


def test_lshl_add_u64_shifts_at_most_seven() -> None:
    state = run("v_lshl_add_u64 v[4:5], v[0:1], 3, v[2:3]", {"v[0:1]": 0x80000000, "v[2:3]": 5})
    assert state.pair("v[4:5]")[0] == 0x400000005
