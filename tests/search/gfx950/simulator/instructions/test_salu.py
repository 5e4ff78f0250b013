"""Scalar arithmetic against values worked out from the ISA's definitions."""

from __future__ import annotations

import pytest
from snippets import run


@pytest.mark.parametrize(
    ("text", "inputs", "result", "scc"),
    [
        ("s_add_u32 s2, s0, s1", (0xFFFFFFFF, 2), 1, True),  # carry out of bit 31
        ("s_add_u32 s2, s0, s1", (0x7FFFFFFF, 1), 0x80000000, False),
        ("s_add_i32 s2, s0, s1", (0x7FFFFFFF, 1), 0x80000000, True),  # signed overflow
        ("s_add_i32 s2, s0, s1", (0xFFFFFFFF, 1), 0, False),  # -1 + 1
        ("s_sub_u32 s2, s0, s1", (1, 2), 0xFFFFFFFF, True),  # borrow
        ("s_sub_i32 s2, s0, s1", (0x80000000, 1), 0x7FFFFFFF, True),
        ("s_sub_i32 s2, s0, s1", (1, 2), 0xFFFFFFFF, False),
        ("s_abs_i32 s2, s0", (0x80000000, 0), 0x80000000, True),  # has no positive twin
        ("s_abs_i32 s2, s0", (0xFFFFFFFB, 0), 5, True),
        ("s_abs_i32 s2, s0", (0, 0), 0, False),
        ("s_min_i32 s2, s0, s1", (0xFFFFFFFF, 1), 0xFFFFFFFF, True),  # -1 < 1
        ("s_min_u32 s2, s0, s1", (0xFFFFFFFF, 1), 1, False),
        ("s_max_i32 s2, s0, s1", (5, 5), 5, False),  # equal: not chosen strictly
        ("s_lshl2_add_u32 s2, s0, s1", (0x40000000, 3), 3, True),  # the shifted-out bit is the carry
        ("s_lshl1_add_u32 s2, s0, s1", (5, 3), 13, False),
    ],
)
def test_sums_set_scc_as_the_isa_says(text: str, inputs: tuple[int, int], result: int, scc: bool) -> None:
    state = run(text, {"s0": inputs[0], "s1": inputs[1], "scc": 0})
    assert (state.u("s2"), state.scc) == (result, scc)


@pytest.mark.parametrize(
    ("text", "inputs", "result"),
    [
        ("s_mul_i32 s2, s0, s1", (0xFFFFFFFF, 3), 0xFFFFFFFD),
        ("s_mul_hi_u32 s2, s0, s1", (0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFE),
        ("s_mul_hi_i32 s2, s0, s1", (0xFFFFFFFF, 0xFFFFFFFF), 0),  # (-1) * (-1)
        ("s_movk_i32 s2, 0x8000", (0, 0), 0xFFFF8000),
        ("s_mov_b32 s2, -16", (0, 0), 0xFFFFFFF0),
        ("s_mov_b32 s2, 1.0", (0, 0), 0x3F800000),
    ],
)
def test_results_without_scc(text: str, inputs: tuple[int, int], result: int) -> None:
    state = run(text, {"s0": inputs[0], "s1": inputs[1], "scc": 1})
    assert state.u("s2") == result
    assert state.scc  # untouched


def test_64_bit_add_through_the_carry() -> None:
    state = run(
        "s_add_u32 s4, s0, s2\ns_addc_u32 s5, s1, s3",
        {"s0": 0xFFFFFFFF, "s1": 1, "s2": 1, "s3": 0xFFFFFFFE},
    )
    assert (state.u("s4"), state.u("s5"), state.scc) == (0, 0, True)


def test_64_bit_subtract_through_the_borrow() -> None:
    state = run("s_sub_u32 s4, s0, s2\ns_subb_u32 s5, s1, s3", {"s0": 0, "s1": 5, "s2": 1, "s3": 5})
    assert (state.u("s4"), state.u("s5"), state.scc) == (0xFFFFFFFF, 0xFFFFFFFF, True)


def test_addk_sign_extends_and_reports_overflow() -> None:
    state = run("s_addk_i32 s0, 0xffff", {"s0": 0x80000000})  # -2^31 - 1
    assert (state.u("s0"), state.scc) == (0x7FFFFFFF, True)


@pytest.mark.parametrize(
    ("text", "inputs", "scc"),
    [
        ("s_cmp_lt_i32 s0, s1", (0xFFFFFFFF, 0), True),
        ("s_cmp_lt_u32 s0, s1", (0xFFFFFFFF, 0), False),
        ("s_cmp_ge_u32 s0, s1", (7, 7), True),
        ("s_cmp_lg_u32 s0, s1", (7, 7), False),
        ("s_cmpk_lt_i32 s0, 0xfff0", (0xFFFFFFEF, 0), True),  # -17 < -16
        ("s_cmpk_lt_u32 s0, 0xfff0", (0xFFFFFFEF, 0), False),  # the immediate is zero-extended
        ("s_cmp_eq_u64 s[0:1], s[0:1]", (3, 4), True),
    ],
)
def test_compares(text: str, inputs: tuple[int, int], scc: bool) -> None:
    assert run(text, {"s0": inputs[0], "s1": inputs[1]}).scc is scc


def test_select_follows_scc_of_each_wave() -> None:
    state = run("s_cmp_eq_u32 s0, 1\ns_cselect_b32 s2, 10, 20", {"s0": [[1], [2]]}, waves=2)
    assert (state.u("s2", 0), state.u("s2", 1)) == (10, 20)


def test_select_of_64_bits_takes_minus_one_as_all_ones() -> None:
    state = run("s_cmp_eq_u32 s0, 1\ns_cselect_b64 s[2:3], -1, 0", {"s0": 1})
    assert state.pair("s[2:3]") == 0xFFFFFFFFFFFFFFFF
