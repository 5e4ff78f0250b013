"""Packed and 16-bit instructions against values worked out from the ISA's definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippets import run

WORD = st.integers(0, 0xFFFFFFFF)


@pytest.mark.parametrize(
    ("text", "inputs", "result"),
    [
        ("v_pk_add_u16 v3, v0, v1", (0xFFFF0001, 0x00020003, 0), 0x00010004),
        ("v_pk_add_u16 v3, v0, v1 clamp", (0xFFFF0001, 0x00020003, 0), 0xFFFF0004),
        (
            "v_pk_sub_u16 v3, v0, 2 clamp",
            (0x00050001, 0, 0),
            0x00050000,
        ),  # a small inline constant has a zero high half
        ("v_pk_sub_i16 v3, v0, v1 clamp", (0x80000005, 0x00010003, 0), 0x80000002),
        ("v_pk_mul_lo_u16 v3, v0, v1", (0x01000003, 0x01000005, 0), 0x0000000F),
        ("v_pk_mad_u16 v3, v0, v1, v2", (0x00020003, 0x00040005, 0x00010001), 0x00090010),
        ("v_pk_max_i16 v3, v0, v1", (0xFFFF0005, 0x0000FFFE, 0), 0x00000005),
        ("v_pk_min_u16 v3, v0, v1", (0xFFFF0005, 0x0000FFFE, 0), 0x00000005),
        ("v_pk_lshlrev_b16 v3, v0, v1", (0x00010011, 0x80018001, 0), 0x00020002),  # counts 1 and 17 mod 16
        ("v_pk_ashrrev_i16 v3, v0, v1", (0x00040004, 0x80007000, 0), 0xF8000700),
        ("v_pk_add_u16 v3, v0, v1 op_sel:[1,0] op_sel_hi:[0,1]", (0x00100001, 0x02000300, 0), 0x02010310),
        ("v_add_u16_e32 v3, v0, v1", (0xAAAAFFFF, 0xBBBB0002, 0), 0x00000001),
        ("v_sub_u16_e64 v3, v0, v1 clamp", (0x00000001, 0x00000002, 0), 0),
        ("v_lshlrev_b16_e32 v3, v0, v1", (8, 0xABCD12FF, 0), 0xFF00),
        ("v_lshrrev_b16_e32 v3, v0, v1", (4, 0xABCD1234, 0), 0x0123),
        ("v_ashrrev_i16_e32 v3, v0, v1", (4, 0x00008000, 0), 0xF800),
        ("v_max_i16_e32 v3, v0, v1", (0x0000FFFF, 0x00000001, 0), 1),
        ("v_mul_lo_u16_e32 v3, v0, v1", (0x0101, 0x0101, 0), 0x0201),
    ],
)
def test_results(text: str, inputs: tuple[int, int, int], result: int) -> None:
    state = run(text, dict(zip(("v0", "v1", "v2"), inputs, strict=True)))
    assert hex(state.u("v3")[0]) == hex(result)


def test_packed_f32_selects_registers_of_each_pair() -> None:
    registers = {"v0": 2.0, "v1": 3.0, "v2": 5.0, "v3": 7.0, "s0": 10.0, "s1": 20.0}
    state = run("v_pk_mul_f32 v[4:5], v[0:1], v[2:3] op_sel_hi:[0,1]\nv_pk_add_f32 v[6:7], v[0:1], s[0:1]", registers)
    assert [state.f(f"v{n}")[0] for n in (4, 5, 6, 7)] == [10.0, 14.0, 12.0, 23.0]


def test_packed_f32_negation() -> None:
    registers = {"v0": 2.0, "v1": 3.0, "v2": 5.0, "v3": 7.0}
    state = run("v_pk_fma_f32 v[4:5], v[0:1], v[2:3], v[0:1] neg_lo:[1,0,0] neg_hi:[0,0,1]", registers)
    assert (state.f("v4")[0], state.f("v5")[0]) == (-8.0, 18.0)


def test_packed_result_may_overlap_its_sources() -> None:
    state = run("v_pk_add_f32 v[0:1], v[0:1], v[0:1] op_sel:[1,0] op_sel_hi:[0,1]", {"v0": 1.0, "v1": 10.0})
    assert (state.f("v0")[0], state.f("v1")[0]) == (11.0, 11.0)


def test_packed_move_takes_one_register_of_each_pair() -> None:
    state = run("v_pk_mov_b32 v[4:5], v[0:1], v[2:3] op_sel:[1,0]", {"v0": 1, "v1": 2, "v2": 3, "v3": 4})
    assert (state.u("v4")[0], state.u("v5")[0]) == (2, 3)


@given(st.integers(0, 255), WORD, WORD, WORD)
def test_bitop3_is_its_truth_table_bit_by_bit(code: int, x: int, y: int, z: int) -> None:
    result = int(run(f"v_bitop3_b32 v3, v0, v1, v2 bitop3:{code:#x}", {"v0": x, "v1": y, "v2": z}).u("v3")[0])
    for bit in range(32):
        row = (x >> bit & 1) << 2 | (y >> bit & 1) << 1 | (z >> bit & 1)
        assert result >> bit & 1 == code >> row & 1


def test_bitop3_of_16_bits_leaves_the_high_half() -> None:
    state = run("v_bitop3_b16 v3, v0, v1, v2 bitop3:0xfe", {"v0": 0xF0001, "v1": 2, "v2": 4, "v3": 0xABCD0000})
    assert state.u("v3")[0] == 0xABCD0007


def test_dot2c_adds_to_its_destination() -> None:
    state = run("v_dot2c_f32_bf16_e32 v3, v0, v1", {"v0": 0x40003F80, "v1": 0x40404080, "v3": 0.5})  # {2, 1}, {3, 4}
    assert state.f("v3")[0] == np.float32(1 * 4 + 2 * 3 + 0.5)
    state = run("v_dot2c_f32_f16_e32 v3, v0, v1", {"v0": 0x40003C00, "v1": 0x42004400, "v3": -1.0})
    assert state.f("v3")[0] == np.float32(1 * 4 + 2 * 3 - 1)


def test_dot2_of_bf16_pairs() -> None:
    pair = 0x40003F80  # {2.0, 1.0}
    state = run("v_dot2_f32_bf16 v3, v0, v1, v2", {"v0": pair, "v1": 0x40404080, "v2": 0.5})  # {3.0, 4.0}
    assert state.f("v3")[0] == np.float32(1 * 4 + 2 * 3 + 0.5)
