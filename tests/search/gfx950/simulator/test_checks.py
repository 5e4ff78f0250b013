"""Undefined bits and waits: what is reported, and what must not be."""

from __future__ import annotations

import numpy as np
import pytest
from snippets import LANE, run

RESOURCE = {"s2": 0x7FFFFFFE, "s3": 0x27000}
WORDS = np.arange(256, dtype=np.uint32)
USE = "\nds_read_b32 v9, v8"  # v8 as an address


@pytest.mark.parametrize(
    ("text", "undefined"),
    [
        ("v_mov_b32_e32 v8, v0", "v0"),
        ("v_add_u32_e32 v8, v0, v1", "v1"),
        ("v_and_b32_e32 v8, 0xff, v0", "v0"),
        ("v_cndmask_b32_e32 v8, v0, v1, vcc", "vcc"),
        ("v_readfirstlane_b32 s0, v0\nv_mov_b32_e32 v8, s0", "v0"),
        ("v_cmp_eq_u32_e32 vcc, 0, v0\nv_cndmask_b32_e64 v8, 0, 4, vcc", "v0"),
        ("s_add_u32 s1, s0, 4\nv_mov_b32_e32 v8, s1", "s0"),
        ("s_cselect_b32 s1, 0, 4\nv_mov_b32_e32 v8, s1", "scc"),
        ("v_perm_b32 v8, v0, v1, s0", "v0"),
        ("ds_bpermute_b32 v8, v1, v0\ns_waitcnt lgkmcnt(0)", "v0"),
        ("v_mad_u64_u32 v[8:9], s[4:5], v1, v1, v[2:3]", "v2"),
        ("v_permlane32_swap_b32_e32 v0, v1\nv_mov_b32_e32 v8, v1", "v0"),
        ("v_lshlrev_b32_e32 v8, 24, v0\nv_lshrrev_b32_e32 v8, 24, v8", "v0"),
    ],
)
def test_undefined_values_are_followed_to_their_use(text: str, undefined: str) -> None:
    registers = {"v0": 0, "v1": 0, "v2": 0, "v3": 0, "s0": 0x07060504, "vcc": 0, "scc": 0}
    assert "uninitialised_address" in run(text + USE, registers, undefined=undefined).kinds()


@pytest.mark.parametrize(
    ("text", "undefined"),
    [
        ("v_and_b32_e32 v8, 0, v0", "v0"),
        ("v_or_b32_e32 v8, -1, v0\nv_and_b32_e32 v8, 0, v8", "v0"),
        ("v_perm_b32 v8, v0, v1, s0", "v1"),  # selects bytes of v0 only
        ("v_mov_b32_e32 v0, 0\nv_mov_b32_e32 v8, v0", "v0"),
        ("v_mad_u64_u32 v[8:9], s[4:5], v1, v1, v[2:3]", "v3"),  # the low half does not need it
        ("v_lshlrev_b64 v[8:9], 2, v[2:3]", "v3"),
        ("v_writelane_b32 v0, s1, 3\nv_readlane_b32 s1, v0, 3\nv_mov_b32_e32 v8, s1", "v0"),
        ("v_lshlrev_b16_e32 v8, 2, v1", ""),
        ("v_cvt_scalef32_pk_fp4_f32 v0, v1, v1, v2\nv_and_b32_e32 v8, 0xff, v0", "v0"),
        ("v_lshrrev_b32_e32 v8, 24, v1\nv_bfe_u32 v8, v1, 0, 8", ""),
    ],
)
def test_bits_that_do_not_reach_the_result_are_no_finding(text: str, undefined: str) -> None:
    registers = {"v0": 0, "v1": 0, "v2": 0, "v3": 0, "s0": 0x07060504, "s1": 0}
    assert not run(text + USE, registers, undefined=undefined).findings or "uninit" not in str(
        run(text + USE, registers, undefined=undefined).kinds()
    )


def test_only_active_lanes_count() -> None:
    text = "v_mov_b32_e32 v8, 0\ns_mov_b64 exec, -1" + USE
    assert run(text, {"v8": 0}, undefined="v8", exec_mask=0xF).kinds() == {"uninitialised_address"}
    text = "v_mov_b32_e32 v8, 0" + USE
    assert run(text, {"v8": 0}, undefined="v8", exec_mask=0xF).findings == []


def test_a_store_reads_only_its_own_bytes() -> None:
    text = (
        "v_cvt_scalef32_pk_fp4_f32 v0, v1, v1, v2\nglobal_store_byte v3, v0, s[0:1]\nglobal_store_short v3, v0, s[0:1]"
    )
    out = np.zeros(256, np.uint8)
    state = run(text, {"v1": 0, "v2": 1.0, "v3": LANE * 2, "s[0:1]": "x"}, undefined="v0", buffers={"x": out})
    assert [finding.line for finding in state.findings] == [3]
    assert state.kinds() == {"uninitialised_store"}


def test_a_store_of_lanes_out_of_range_reads_nothing() -> None:
    registers = {"s[0:1]": "x", "s2": 0, "s3": 0x27000, "v1": LANE * 4}
    state = run("buffer_store_dword v0, v1, s[0:3], 0 offen", registers, undefined="v0", buffers={"x": WORDS.copy()})
    assert state.findings == []


def test_undefined_matrix_operands_are_found() -> None:
    registers = {f"v{r}": 0 for r in range(32, 44)}
    text = "v_mfma_f32_16x16x32_bf16 v[0:3], v[32:35], v[40:43], 0"
    assert run(text, registers, undefined="v41").kinds() == {"uninitialised_mfma"}
    assert run(text, registers, undefined="v0 v1 v2 v3").findings == []


def test_undefined_branch_conditions_are_found() -> None:
    from snippets import kernel

    from search.gfx950.simulator import SimulatedLaunch, simulate

    subject = kernel("s_cbranch_scc1 end\nend:\ns_endpgm")
    result = simulate(subject, SimulatedLaunch({"x": np.zeros(4, np.uint32)}, (1, 1, 1), (64, 1, 1)))
    assert [finding.kind.value for finding in result.findings] == ["uninitialised_branch"]


LOAD = "buffer_load_dword v4, v0, s[0:3], 0 offen\n"
BUFFER = {"s[0:1]": "x", **RESOURCE, "v0": LANE * 4, "v1": LANE * 4, "v4": 0, "v5": 0}


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (LOAD + "v_mov_b32_e32 v6, v4", {"read_before_wait"}),
        (LOAD + "v_mov_b32_e32 v4, 0", {"write_before_wait"}),
        (LOAD + "s_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v6, v4", {"read_before_wait"}),  # the wrong counter
        (LOAD + "s_waitcnt vmcnt(0)\nv_mov_b32_e32 v6, v4", set()),
        (LOAD + "buffer_load_dword v5, v1, s[0:3], 0 offen\ns_waitcnt vmcnt(1)\nv_mov_b32_e32 v6, v4", set()),
        (
            LOAD + "buffer_load_dword v5, v1, s[0:3], 0 offen\ns_waitcnt vmcnt(1)\nv_mov_b32_e32 v6, v5",
            {"read_before_wait"},
        ),
        (LOAD + "buffer_store_dword v5, v1, s[0:3], 0 offen\ns_waitcnt vmcnt(1)\nv_mov_b32_e32 v6, v4", set()),
        (LOAD + "v_mov_b32_e32 v0, 0", set()),  # the address was read at issue
        (LOAD + "buffer_load_short_d16_hi v4, v1, s[0:3], 0 offen\ns_waitcnt vmcnt(0)\nv_mov_b32_e32 v6, v4", set()),
        ("ds_write_b32 v0, v1\nds_read_b32 v4, v0\nv_mov_b32_e32 v6, v4", {"read_before_wait"}),
        ("ds_write_b32 v0, v1\nds_read_b32 v4, v0\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v6, v4", set()),
    ],
)
def test_waits(text: str, kinds: set[str]) -> None:
    assert run(text, BUFFER, buffers={"x": WORDS.copy()}).kinds() == kinds


SDWA = "dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{} src1_sel:DWORD"


@pytest.mark.parametrize(
    ("text", "undefined", "found"),
    [
        # The low half of v0 stays undefined: a byte above it is defined, a byte below it is not.
        ("v_and_or_b32 v0, v0, s0, 0\nv_or_b32_sdwa v8, v0, v1 " + SDWA.format("BYTE_3"), "v0", False),
        ("v_and_or_b32 v0, v0, s0, 0\nv_or_b32_sdwa v8, v0, v1 " + SDWA.format("BYTE_1"), "v0", True),
        ("v_pk_add_f32 v[4:5], v[2:3], v[2:3] op_sel_hi:[0,0]\nv_mov_b32_e32 v8, v5", "v3", False),
        ("v_pk_add_f32 v[4:5], v[2:3], v[2:3]\nv_mov_b32_e32 v8, v4", "v3", False),
        ("v_pk_add_f32 v[4:5], v[2:3], v[2:3]\nv_mov_b32_e32 v8, v5", "v3", True),
        ("v_cvt_pk_bf16_f32 v4, v1, v0\nv_and_b32_e32 v8, 0xffff, v4", "v0", False),
        ("v_cvt_pk_bf16_f32 v4, v0, v1\nv_and_b32_e32 v8, 0xffff, v4", "v0", True),
        ("v_cndmask_b32_e64 v8, v0, v1, s[4:5]", "v0", False),  # the mask is all ones: v1
        ("v_cndmask_b32_e64 v8, v1, v0, s[4:5]", "v0", True),
    ],
)  # fmt: skip
def test_undefined_bits_through_modifiers_and_packed_math(text: str, undefined: str, found: bool) -> None:
    registers = {f"v{n}": 0 for n in range(6)} | {"s0": 0x0000FFFF, "s[4:5]": 0xFFFFFFFFFFFFFFFF}
    assert ("uninitialised_address" in run(text + USE, registers, undefined=undefined).kinds()) is found


@pytest.mark.parametrize(("later", "kinds"), [(62, {"read_before_wait"}), (63, set())])
def test_a_counter_cannot_hold_more_than_63_loads(later: int, kinds: set[str]) -> None:
    text = LOAD + "buffer_store_dword v5, v1, s[0:3], 0 offen\n" * later + "v_mov_b32_e32 v6, v4"
    assert run(text, BUFFER, buffers={"x": WORDS.copy()}).kinds() == kinds
