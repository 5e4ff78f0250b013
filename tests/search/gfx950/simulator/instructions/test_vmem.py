"""Global, buffer and LDS-direct accesses: addresses, range checks, bounds, undefined memory."""

from __future__ import annotations

import numpy as np
from snippets import LANE, run

from search.gfx950.simulator import SimulatedBuffer

RESOURCE = {"s2": 0x7FFFFFFE, "s3": 0x27000}
WORDS = np.arange(1024, dtype=np.uint32)


def test_global_load_through_a_vector_and_a_scalar_base() -> None:
    text = """
    v_lshl_add_u64 v[4:5], s[0:1], 0, v[2:3]
    global_load_dword v6, v[4:5], off offset:-4
    global_load_dwordx2 v[8:9], v2, s[0:1] offset:8
    flat_load_ushort v10, v[4:5]
    s_waitcnt vmcnt(0) lgkmcnt(0)
    """
    state = run(text, {"s[0:1]": "x", "v2": LANE * 4 + 4, "v3": 0}, buffers={"x": WORDS.copy()})
    assert np.array_equal(state.u("v6"), LANE)
    assert np.array_equal(state.u("v8"), LANE + 3)
    assert np.array_equal(state.u("v9"), LANE + 4)
    assert np.array_equal(state.u("v10"), LANE + 1)


def test_narrow_loads_extend() -> None:
    text = """
    global_load_sbyte v4, v2, s[0:1]
    global_load_ubyte v5, v2, s[0:1]
    global_load_short_d16_hi v6, v2, s[0:1]
    s_waitcnt vmcnt(0)
    """
    state = run(text, {"s[0:1]": "x", "v2": 0, "v6": 0x1111}, buffers={"x": np.array([0x85, 0x93], np.uint8)})
    assert (state.u("v4")[0], state.u("v5")[0], state.u("v6")[0]) == (0xFFFFFF85, 0x85, 0x93851111)


def test_buffer_address_is_base_plus_all_offsets() -> None:
    text = "buffer_load_dword v4, v0, s[0:3], s4 offen offset:8\ns_waitcnt vmcnt(0)"
    state = run(text, {"s[0:1]": "x", **RESOURCE, "s4": 400, "v0": LANE * 4}, buffers={"x": WORDS.copy()})
    assert np.array_equal(state.u("v4"), LANE + 102)


def test_buffer_index_is_scaled_by_the_stride() -> None:
    text = "s_or_b32 s1, s1, 0x100000\nbuffer_load_dword v4, v0, s[0:3], 0 idxen\ns_waitcnt vmcnt(0)"
    state = run(text, {"s[0:1]": "x", **RESOURCE, "v0": LANE}, buffers={"x": WORDS.copy()})
    assert np.array_equal(state.u("v4"), LANE * 4)


def test_loads_out_of_the_descriptor_give_zero_dword_by_dword() -> None:
    text = "buffer_load_dwordx2 v[4:5], v0, s[0:3], 0 offen\ns_waitcnt vmcnt(0)"
    registers = {"s[0:1]": "x", "s2": 12, "s3": 0x27000, "v0": LANE * 4, "v4": 9, "v5": 9}
    state = run(text, registers, buffers={"x": WORDS + 1})
    assert state.u("v4")[:5].tolist() == [1, 2, 3, 0, 0]
    assert state.u("v5")[:5].tolist() == [2, 3, 0, 0, 0]
    assert state.findings == []


def test_stores_out_of_the_descriptor_vanish() -> None:
    out = np.zeros(64, np.uint32)
    text = "buffer_store_dwordx2 v[4:5], v0, s[0:3], 0 offen"
    run(text, {"s[0:1]": "x", "s2": 12, "s3": 0x27000, "v0": LANE * 8, "v4": 1, "v5": 2}, buffers={"x": out})
    assert out[:5].tolist() == [1, 2, 1, 0, 0]


def test_masked_lanes_of_triton_use_a_huge_offset() -> None:
    offset = np.where(LANE < 4, LANE * 4, 0x80000000)
    state = run(
        "buffer_load_dword v4, v0, s[0:3], 0 offen", {"s[0:1]": "x", **RESOURCE, "v0": offset}, buffers={"x": WORDS + 1}
    )
    assert state.u("v4")[:6].tolist() == [1, 2, 3, 4, 0, 0]


def test_access_outside_every_array_is_found() -> None:
    text = "global_load_dword v4, v0, s[0:1]\nglobal_store_dword v0, v4, s[0:1] offset:4"
    state = run(
        text, {"s[0:1]": "x", "v0": LANE * 4, "v4": 0}, buffers={"x": np.zeros(64, np.uint32)}, exec_mask=1 << 63
    )
    assert state.kinds() == {"out_of_bounds", "read_before_wait"}
    assert "byte 256 of x (256 bytes)" in state.findings[-1].detail


def test_inactive_lanes_access_nothing() -> None:
    out = np.zeros(64, np.uint32)
    run(
        "global_store_dword v0, v1, s[0:1]",
        {"s[0:1]": "x", "v0": LANE * 4, "v1": 5},
        buffers={"x": out},
        exec_mask=0b101,
    )
    assert out.nonzero()[0].tolist() == [0, 2]


def test_uninitialised_memory_is_found_when_its_value_is_used() -> None:
    text = "global_load_dword v4, v0, s[0:1]\ns_waitcnt vmcnt(0)\nv_add_u32_e32 v5, 1, v4\n"
    text += "global_store_dword v0, v5, s[2:3]"
    buffers = {"x": SimulatedBuffer(np.zeros(64, np.uint32), initialised=False), "y": np.zeros(64, np.uint32)}
    state = run(text, {"s[0:1]": "x", "s[2:3]": "y", "v0": LANE * 4}, buffers=buffers)
    assert state.kinds() == {"uninitialised_store"}


def test_memory_that_the_kernel_wrote_is_initialised() -> None:
    text = """
    global_store_dword v0, v1, s[0:1]
    global_load_dword v4, v0, s[0:1]
    s_waitcnt vmcnt(0)
    global_store_dword v0, v4, s[2:3]
    """
    buffers = {"x": SimulatedBuffer(np.zeros(64, np.uint32), initialised=False), "y": np.zeros(64, np.uint32)}
    state = run(text, {"s[0:1]": "x", "s[2:3]": "y", "v0": LANE * 4, "v1": LANE}, buffers=buffers)
    assert state.findings == []


def test_only_the_lanes_that_store_to_an_operand_are_found_and_do_not_store() -> None:
    operand, out = np.zeros(4, np.uint32), np.zeros(64, np.uint32)
    text = "global_store_dword v0, v1, s[0:1]\nglobal_store_dword v0, v1, s[2:3]"
    buffers = {"x": SimulatedBuffer(operand, writable=False), "y": out}
    registers = {"s[0:1]": "x", "s[2:3]": "y", "v0": LANE % 4 * 4, "v1": LANE % 4 + 1}
    state = run(text, registers, buffers=buffers)
    assert state.kinds() == {"read_only_store"}
    assert operand.tolist() == [0, 0, 0, 0] and out[:5].tolist() == [1, 2, 3, 4, 0]


def test_direct_load_writes_lane_after_lane_from_m0() -> None:
    text = """
    s_mov_b32 m0, 512
    buffer_load_dword v0, s[0:3], 0 offen offset:16 lds
    s_waitcnt vmcnt(0)
    ds_read_b32 v5, v4 offset:528
    s_waitcnt lgkmcnt(0)
    """
    registers = {"s[0:1]": "x", **RESOURCE, "v0": LANE[::-1] * 4, "v4": LANE * 4}
    state = run(text, registers, buffers={"x": WORDS.copy()})
    assert np.array_equal(state.u("v5"), LANE[::-1] + 4)
    assert state.findings == []


def test_direct_load_of_16_bytes_reaches_beyond_64_kilobytes() -> None:
    text = """
    s_mov_b32 m0, 0x20000
    global_load_lds_dwordx4 v[0:1], off
    s_waitcnt vmcnt(0)
    ds_read_b32 v5, v4
    s_waitcnt lgkmcnt(0)
    """
    program = "v_lshl_add_u64 v[0:1], s[0:1], 0, v[2:3]\n" + text.strip()
    registers = {"s[0:1]": "x", "v2": LANE * 16, "v3": 0, "v4": 0x20000 + LANE * 16}
    state = run(program, registers, buffers={"x": WORDS.copy()}, lds_bytes=160 * 1024)
    assert np.array_equal(state.u("v5"), LANE * 4)


def test_reading_a_direct_load_before_its_wait_is_found() -> None:
    text = "s_mov_b32 m0, 0\nbuffer_load_dword v0, s[0:3], 0 offen lds\nds_read_b32 v5, v0"
    state = run(text, {"s[0:1]": "x", **RESOURCE, "v0": LANE * 4}, buffers={"x": WORDS.copy()})
    assert state.kinds() == {"lds_read_before_wait"}


def test_bytes_moved_are_counted() -> None:
    text = "global_load_dwordx4 v[4:7], v0, s[0:1]\ns_waitcnt vmcnt(0)\nglobal_store_dword v0, v4, s[0:1]"
    state = run(text, {"s[0:1]": "x", "v0": LANE * 16}, buffers={"x": WORDS.copy()}, exec_mask=0xF)
    assert (state.group.env.global_read_bytes, state.group.env.global_written_bytes) == (64, 16)
