"""Private memory: each lane has its own, spills come back, bounds are checked."""

from __future__ import annotations

import numpy as np
import pytest
from snippets import LANE, run


def test_spilled_registers_come_back_lane_by_lane() -> None:
    text = """
    scratch_store_dwordx2 off, v[0:1], s0 offset:8
    scratch_load_dword v2, off, s0 offset:12
    scratch_load_dword v3, v4, off
    s_waitcnt vmcnt(0)
    """
    registers = {"s0": 16, "v0": LANE, "v1": LANE + np.array([[100], [200]]), "v4": 24}
    state = run(text, registers, waves=2, scratch_dwords=16)
    assert np.array_equal(state.u("v2", 1), LANE + 200)
    assert np.array_equal(state.u("v3", 0), LANE)
    assert state.findings == []


def test_reload_of_what_was_never_spilled_is_undefined() -> None:
    text = "scratch_load_dword v2, off, off\ns_waitcnt vmcnt(0)\nds_read_b32 v3, v2"
    assert "uninitialised_address" in run(text, {"v2": 0}, scratch_dwords=4).kinds()


def test_access_beyond_the_private_segment_is_found() -> None:
    assert run("scratch_store_dword off, v0, off offset:16", {"v0": 1}, scratch_dwords=4).kinds() == {"out_of_bounds"}


def test_bytes_and_words_share_a_dword() -> None:
    text = """
    scratch_store_dword off, v0, off
    scratch_store_byte off, v1, off offset:1
    scratch_store_short_d16_hi off, v2, off offset:2
    scratch_load_dword v3, off, off
    scratch_load_sbyte v4, off, off offset:1
    scratch_load_ushort v5, off, off offset:2
    scratch_load_ubyte_d16_hi v6, off, off
    s_waitcnt vmcnt(0)
    """
    registers = {"v0": 0x11223344, "v1": 0xFFFFFF95, "v2": 0x9ABC0000, "v6": 0x0000DEAD}
    state = run(text, registers, scratch_dwords=1)
    assert state.findings == []
    assert [state.u(name)[7] for name in ("v3", "v4", "v5", "v6")] == [0x9ABC9544, 0xFFFFFF95, 0x9ABC, 0x0044DEAD]


def test_only_the_stored_byte_becomes_defined() -> None:
    text = "scratch_store_byte off, v0, off offset:1\nscratch_load_{} v1, off, off offset:{}\ns_waitcnt vmcnt(0)\n"
    text += "ds_read_b32 v2, v1"
    assert run(text.format("ubyte", 1), {"v0": 4}, scratch_dwords=1).findings == []
    assert "uninitialised_address" in run(text.format("ushort", 0), {"v0": 4}, scratch_dwords=1).kinds()


@pytest.mark.parametrize(("name", "offset"), [("short", 1), ("byte", 4), ("short", 4)])
def test_a_byte_beyond_the_segment_or_a_word_across_is_found(name: str, offset: int) -> None:
    text = f"scratch_store_{name} off, v0, off offset:{offset}"
    assert run(text, {"v0": 1}, scratch_dwords=1).kinds() == {"out_of_bounds"}


def test_lanes_that_are_off_store_no_byte() -> None:
    text = "scratch_store_byte off, v0, off\ns_mov_b64 exec, -1\nscratch_load_ubyte v1, off, off\ns_waitcnt vmcnt(0)"
    state = run(text, {"v0": 9}, exec_mask=1, scratch_dwords=1)
    assert state.u("v1")[:2].tolist() == [9, 0]  # the private memory of these tests starts with zeros
