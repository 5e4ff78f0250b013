"""Private memory: each lane has its own, spills come back, bounds are checked."""

from __future__ import annotations

import numpy as np
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
