"""SDWA, DPP and op_sel: selections and lane patterns written out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from snippets import LANE, run

from search.gfx950.simulator import UnknownInstructionError

FULL = "row_mask:0xf bank_mask:0xf"


@pytest.mark.parametrize(
    ("select", "result"),
    [("BYTE_0", 0x88), ("BYTE_1", 0x77), ("BYTE_2", 0x66), ("BYTE_3", 0x95), ("WORD_0", 0x7788), ("WORD_1", 0x9566),
     ("DWORD", 0x95667788)],
)  # fmt: skip
def test_sdwa_source_select(select: str, result: int) -> None:
    text = f"v_add_u32_sdwa v2, v0, v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{select} src1_sel:DWORD"
    assert run(text, {"v0": 0x95667788, "v1": 0}).u("v2")[0] == result


def test_sdwa_sign_extension() -> None:
    text = "v_add_u32_sdwa v2, sext(v0), v1 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_3 src1_sel:DWORD"
    assert run(text, {"v0": 0x95667788, "v1": 0}).u("v2")[0] == 0xFFFFFF95


@pytest.mark.parametrize(
    ("select", "unused", "result"),
    [
        ("BYTE_1", "UNUSED_PAD", 0x00008500),
        ("BYTE_1", "UNUSED_PRESERVE", 0xAABB85DD),
        ("BYTE_1", "UNUSED_SEXT", 0xFFFF8500),
        ("WORD_1", "UNUSED_PAD", 0x12850000),
        ("WORD_1", "UNUSED_PRESERVE", 0x1285CCDD),
        ("WORD_0", "UNUSED_SEXT", 0x00001285),
    ],
)
def test_sdwa_destination(select: str, unused: str, result: int) -> None:
    text = f"v_or_b32_sdwa v2, v0, v1 dst_sel:{select} dst_unused:{unused} src0_sel:DWORD src1_sel:DWORD"
    assert hex(run(text, {"v0": 0x1285, "v1": 0, "v2": 0xAABBCCDD}).u("v2")[0]) == hex(result)


def test_sdwa_compare_selects_bytes() -> None:
    text = "v_cmp_eq_u16_sdwa vcc, v0, v1 src0_sel:BYTE_3 src1_sel:DWORD"
    assert run(text, {"v0": 0x05000000, "v1": 5}).pair("vcc") == 0xFFFFFFFFFFFFFFFF


@pytest.mark.parametrize(
    ("control", "source"),
    [
        ("quad_perm:[2,3,0,1]", LANE ^ 2),
        ("quad_perm:[1,1,1,1]", (LANE & ~3) + 1),
        ("row_ror:4", (LANE & ~15) + ((LANE - 4) & 15)),
        ("row_mirror", LANE ^ 15),
        ("row_half_mirror", LANE ^ 7),
        ("row_newbcast:3", (LANE & ~15) + 3),
    ],
)
def test_dpp_patterns(control: str, source: np.ndarray) -> None:
    state = run(f"v_mov_b32_dpp v1, v0 {control} {FULL}", {"v0": LANE + 100, "v1": 0})
    assert np.array_equal(state.u("v1"), source + 100)


def test_dpp_shift_with_bound_control_reads_zero_outside_the_row() -> None:
    state = run(f"v_mov_b32_dpp v1, v0 row_shr:1 {FULL} bound_ctrl:1", {"v0": LANE + 100, "v1": 7})
    assert state.u("v1")[:3].tolist() == [0, 100, 101]
    assert state.u("v1")[16:18].tolist() == [0, 116]


def test_dpp_shift_without_bound_control_keeps_the_destination_outside_the_row() -> None:
    state = run(f"v_mov_b32_dpp v1, v0 row_shl:1 {FULL}", {"v0": LANE + 100, "v1": 7})
    assert state.u("v1")[14:17].tolist() == [115, 7, 117]


def test_dpp_masks_switch_rows_and_banks_off() -> None:
    state = run("v_mov_b32_dpp v1, v0 quad_perm:[0,1,2,3] row_mask:0x5 bank_mask:0x3", {"v0": LANE + 100, "v1": 0})
    written = ((LANE // 16) % 2 == 0) & (LANE % 16 < 8)
    assert np.array_equal(state.u("v1"), np.where(written, LANE + 100, 0))


def test_dpp_on_an_arithmetic_instruction_permutes_the_first_source_only() -> None:
    state = run(f"v_add_u32_dpp v2, v0, v1 quad_perm:[1,0,3,2] {FULL}", {"v0": LANE, "v1": LANE * 1000})
    assert np.array_equal(state.u("v2"), (LANE ^ 1) + LANE * 1000)


def test_op_sel_of_16_bit_instructions() -> None:
    text = "v_mad_u16 v3, v0, v1, v2 op_sel:[1,0,1,1]"
    state = run(text, {"v0": 0x00030000, "v1": 0x00000005, "v2": 0x00070000, "v3": 0xAAAABBBB})
    assert hex(state.u("v3")[0]) == hex(0x0016BBBB)


@pytest.mark.parametrize(
    "text",
    [
        "v_add_f32_e64 v0, v1, v2 mul:3",
        "v_mov_b32_dpp v0, v1 row_warp:1 row_mask:0xf bank_mask:0xf",
        "v_add_u32_e32 v0, v1",
        "v_add_u32_e32 v0, v1, v[2:3]",
        "v_imagine_b32 v0, v1",
        "v_mul_lo_u32 v0, v1, v2 clamp",
        "buffer_load_dword v0, v1, s[0:3], 0 offen tfe",
        "s_waitcnt depctr_va_vdst(0)",
        "v_mov_b32_e32 v0, src_shared_base",
    ],
)
def test_what_is_not_modelled_is_an_error_that_names_its_line(text: str) -> None:
    with pytest.raises(UnknownInstructionError, match="line 2:"):
        run(f"s_nop 0\n{text}")
