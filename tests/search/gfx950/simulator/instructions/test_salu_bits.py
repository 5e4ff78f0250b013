"""Scalar bit operations against values worked out from the ISA's definitions."""

from __future__ import annotations

import pytest
from snippets import run


@pytest.mark.parametrize(
    ("text", "inputs", "result", "scc"),
    [
        ("s_lshl_b32 s2, s0, s1", (1, 33), 2, True),  # only five bits of the count
        ("s_lshr_b32 s2, s0, s1", (0x80000000, 31), 1, True),
        ("s_lshr_b32 s2, s0, s1", (1, 1), 0, False),
        ("s_ashr_i32 s2, s0, s1", (0x80000000, 31), 0xFFFFFFFF, True),
        ("s_and_b32 s2, s0, s1", (0xF0, 0x0F), 0, False),
        ("s_andn2_b32 s2, s0, s1", (0xFF, 0x0F), 0xF0, True),
        ("s_orn2_b32 s2, s0, s1", (0, 0xFFFFFFFE), 1, True),
        ("s_xnor_b32 s2, s0, s1", (0xFFFFFFFF, 0), 0, False),
        ("s_nand_b32 s2, s0, s1", (0xFFFFFFFF, 0xFFFFFFFF), 0, False),
        ("s_not_b32 s2, s0", (0xFFFFFFFF, 0), 0, False),
        ("s_bfe_u32 s2, s0, s1", (0xABCD1234, 8 | 12 << 16), 0xD12, True),
        ("s_bfe_u32 s2, s0, s1", (0xABCD1234, 0), 0, False),  # width 0
        ("s_bfe_u32 s2, s0, s1", (0xABCD1234, 28 | 32 << 16), 0xA, True),
        ("s_bfe_i32 s2, s0, s1", (0x00000F00, 8 | 4 << 16), 0xFFFFFFFF, True),
        ("s_bfe_i32 s2, s0, s1", (0x00000700, 8 | 4 << 16), 7, True),
        ("s_bcnt1_i32_b32 s2, s0", (0xF0F0, 0), 8, True),
    ],
)
def test_results_and_scc(text: str, inputs: tuple[int, int], result: int, scc: bool) -> None:
    state = run(text, {"s0": inputs[0], "s1": inputs[1]})
    assert (state.u("s2"), state.scc) == (result, scc)


@pytest.mark.parametrize(
    ("text", "inputs", "result"),
    [
        ("s_bfm_b32 s2, s0, s1", (4, 8), 0xF00),
        ("s_brev_b32 s2, s0", (0x00000003, 0), 0xC0000000),
        ("s_ff1_i32_b32 s2, s0", (0x00000100, 0), 8),
        ("s_ff1_i32_b32 s2, s0", (0, 0), 0xFFFFFFFF),
        ("s_flbit_i32_b32 s2, s0", (0x00000100, 0), 23),
        ("s_sext_i32_i8 s2, s0", (0x180, 0), 0xFFFFFF80),
        ("s_sext_i32_i16 s2, s0", (0x17FFF, 0), 0x7FFF),
        ("s_pack_ll_b32_b16 s2, s0, s1", (0x11112222, 0x33334444), 0x44442222),
        ("s_pack_lh_b32_b16 s2, s0, s1", (0x11112222, 0x33334444), 0x33332222),
        ("s_pack_hh_b32_b16 s2, s0, s1", (0x11112222, 0x33334444), 0x33331111),
    ],
)
def test_results(text: str, inputs: tuple[int, int], result: int) -> None:
    assert run(text, {"s0": inputs[0], "s1": inputs[1]}).u("s2") == result


def test_bit_tests() -> None:
    assert run("s_bitcmp1_b32 s0, 39", {"s0": 0x80}).scc  # 39 mod 32 = 7
    assert run("s_bitcmp0_b32 s0, 6", {"s0": 0x80}).scc
    assert not run("s_bitcmp0_b32 s0, 7", {"s0": 0x80}).scc


def test_64_bit_shifts_use_six_bits_of_the_count() -> None:
    registers = {"s[0:1]": 0x8000000000000001, "s2": 65}
    assert run("s_lshl_b64 s[4:5], s[0:1], s2", registers).pair("s[4:5]") == 2
    assert run("s_lshr_b64 s[4:5], s[0:1], s2", registers).pair("s[4:5]") == 0x4000000000000000
    assert run("s_ashr_i64 s[4:5], s[0:1], s2", registers).pair("s[4:5]") == 0xC000000000000000


def test_saveexec_returns_the_old_mask_and_masks_later_writes() -> None:
    state = run("s_and_saveexec_b64 s[2:3], s[0:1]\nv_mov_b32_e32 v0, 7", {"s[0:1]": 0xF, "v0": 1})
    assert state.pair("s[2:3]") == 0xFFFFFFFFFFFFFFFF
    assert state.u("v0")[:5].tolist() == [7, 7, 7, 7, 1]


def test_a_mask_changed_by_the_scalar_unit_is_seen_by_the_vector_unit() -> None:
    text = """
    v_cmp_eq_u32_e64 s[2:3], 0, v0
    v_cndmask_b32_e64 v1, 1, 2, s[2:3]
    s_not_b64 s[2:3], s[2:3]
    v_cndmask_b32_e64 v2, 1, 2, s[2:3]
    """
    state = run(text, {"v0": [0, *range(1, 64)]})
    assert state.u("v1")[:2].tolist() == [2, 1]
    assert state.u("v2")[:2].tolist() == [1, 2]
