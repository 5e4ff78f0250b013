"""Vector moves, logic, shifts and byte selection against values worked out from the ISA's definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippets import LANE, run

WORD = st.integers(0, 0xFFFFFFFF)


@pytest.mark.parametrize(
    ("text", "inputs", "result"),
    [
        ("v_lshlrev_b32_e32 v3, v0, v1", (33, 1, 0), 2),  # five bits of the count
        ("v_lshrrev_b32_e32 v3, v0, v1", (63, 0x80000000, 0), 1),
        ("v_ashrrev_i32_e32 v3, v0, v1", (36, 0x80000000, 0), 0xF8000000),
        ("v_sub_u32_e32 v3, v0, v1", (1, 2, 0), 0xFFFFFFFF),
        ("v_subrev_u32_e32 v3, v0, v1", (1, 2, 0), 1),
        ("v_max_i32_e32 v3, v0, v1", (0xFFFFFFFF, 1, 0), 1),
        ("v_max_u32_e32 v3, v0, v1", (0xFFFFFFFF, 1, 0), 0xFFFFFFFF),
        ("v_not_b32_e32 v3, v0", (0x0F0F0F0F, 0, 0), 0xF0F0F0F0),
        ("v_bfrev_b32_e32 v3, 1", (0, 0, 0), 0x80000000),
        ("v_add3_u32 v3, v0, v1, v2", (0xFFFFFFFF, 1, 5), 5),
        ("v_lshl_add_u32 v3, v0, v1, v2", (3, 34, 1), 13),
        ("v_add_lshl_u32 v3, v0, v1, v2", (1, 2, 36), 48),
        ("v_lshl_or_b32 v3, v0, v1, v2", (1, 4, 3), 0x13),
        ("v_and_or_b32 v3, v0, v1, v2", (0xFF, 0x0F, 0x100), 0x10F),
        ("v_or3_b32 v3, v0, v1, v2", (1, 2, 4), 7),
        ("v_xad_u32 v3, v0, v1, v2", (5, 3, 10), 16),
        ("v_bfi_b32 v3, v0, v1, v2", (0x0000FFFF, 0x11112222, 0x33334444), 0x33332222),
        ("v_bfe_u32 v3, v0, v1, v2", (0xABCD1234, 8, 12), 0xD12),
        ("v_bfe_u32 v3, v0, v1, v2", (0xABCD1234, 8, 0), 0),
        ("v_bfe_i32 v3, v0, v1, v2", (0x00000F00, 8, 4), 0xFFFFFFFF),
        ("v_bfe_i32 v3, v0, v1, v2", (0x00000002, 1, 1), 0xFFFFFFFF),  # one bit: its own sign
        ("v_bfm_b32 v3, v0, v1", (4, 8, 0), 0xF00),
        ("v_alignbit_b32 v3, v0, v1, v2", (0x12345678, 0x9ABCDEF0, 8), 0x789ABCDE),
        ("v_alignbyte_b32 v3, v0, v1, v2", (0x12345678, 0x9ABCDEF0, 5), 0x789ABCDE),  # 5 mod 4 = 1 byte
        ("v_bcnt_u32_b32 v3, v0, v1", (0xFF, 5, 0), 13),
        ("v_ffbh_u32_e32 v3, v0", (0x00FFFFFF, 0, 0), 8),
        ("v_ffbh_u32_e32 v3, v0", (0, 0, 0), 0xFFFFFFFF),
        ("v_ffbl_b32_e32 v3, v0", (0xFFFFFF00, 0, 0), 8),
        ("v_perm_b32 v3, v0, v1, v2", (0x77665544, 0x33221100, 0x07060504), 0x77665544),
        ("v_perm_b32 v3, v0, v1, v2", (0x77665544, 0x33221100, 0x00040105), 0x00441155),
        ("v_perm_b32 v3, v0, v1, v2", (0x80665544, 0x33228100, 0x0B08090C), 0xFFFF0000),  # signs, then 0
        ("v_perm_b32 v3, v0, v1, v2", (0, 0, 0x0D0CFF0C), 0xFF00FF00),  # 13 and above: 0xFF
    ],
)
def test_results(text: str, inputs: tuple[int, int, int], result: int) -> None:
    state = run(text, dict(zip(("v0", "v1", "v2"), inputs, strict=True)))
    assert set(state.u("v3").tolist()) == {result}


@given(WORD, WORD, st.lists(st.integers(0, 13), min_size=4, max_size=4))
def test_perm_with_a_scalar_selector_equals_perm_with_a_vector_selector(high: int, low: int, picks: list[int]) -> None:
    selector = int.from_bytes(bytes(picks), "little")
    registers = {"v0": high, "v1": low, "s0": selector, "v2": selector}
    state = run("v_perm_b32 v3, v0, v1, s0\nv_perm_b32 v4, v0, v1, v2", registers)
    assert state.u("v3")[0] == state.u("v4")[0]


def test_inactive_lanes_keep_their_value() -> None:
    state = run("v_add_u32_e32 v0, 1, v0", {"v0": LANE}, exec_mask=0x5)
    expected = LANE.copy()
    expected[[0, 2]] += 1
    assert np.array_equal(state.u("v0"), expected)


def test_64_bit_shifts() -> None:
    registers = {"v[0:1]": 0x8000000000000001, "v2": 65}
    assert run("v_lshlrev_b64 v[4:5], v2, v[0:1]", registers).pair("v[4:5]")[0] == 2
    assert run("v_lshrrev_b64 v[4:5], v2, v[0:1]", registers).pair("v[4:5]")[0] == 0x4000000000000000
    assert run("v_ashrrev_i64 v[4:5], v2, v[0:1]", registers).pair("v[4:5]")[0] == 0xC000000000000000


def test_cndmask_picks_the_second_source_where_the_mask_is_set() -> None:
    state = run("v_cndmask_b32_e32 v2, v0, v1, vcc", {"v0": 10, "v1": 20, "vcc": 0x2})
    assert state.u("v2")[:3].tolist() == [10, 20, 10]


def test_accumulator_moves() -> None:
    text = "v_accvgpr_write_b32 a3, v0\nv_accvgpr_mov_b32 a4, a3\nv_accvgpr_read_b32 v1, a4"
    assert np.array_equal(run(text, {"v0": LANE}).u("v1"), LANE)


def test_64_bit_move_of_overlapping_pairs() -> None:
    state = run("v_mov_b64_e32 v[1:2], v[0:1]", {"v0": LANE, "v1": 7, "v2": 9})
    assert np.array_equal(state.u("v1"), LANE)
    assert set(state.u("v2").tolist()) == {7}
