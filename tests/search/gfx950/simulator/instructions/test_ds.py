"""LDS instructions: widths, offsets, transposes, alignment, range, races, early reads."""

from __future__ import annotations

import numpy as np
import pytest
from snippets import LANE, run

from search.gfx950.simulator import UnknownInstructionError
from search.gfx950.simulator.instructions.ds import swizzle_pattern

STORE = "ds_write_b32 v0, v1\ns_waitcnt lgkmcnt(0)\n"


def test_narrow_writes_and_reads_extend_as_named() -> None:
    text = """
    ds_write_b8 v0, v1
    ds_write_b8 v0, v1 offset:1
    ds_write_b8_d16_hi v0, v1 offset:2
    ds_write_b8 v0, v1 offset:3
    s_waitcnt lgkmcnt(0)
    ds_read_u8 v2, v0
    ds_read_i8 v3, v0
    ds_read_i16 v4, v0 offset:2
    ds_read_b32 v5, v0
    ds_read_u8_d16_hi v6, v0
    s_waitcnt lgkmcnt(0)
    """
    state = run(text, {"v0": LANE * 4, "v1": 0x00110085, "v6": 0xABCD1234})
    assert state.u("v2")[0] == 0x85
    assert state.u("v3")[0] == 0xFFFFFF85
    assert state.u("v4")[0] == 0xFFFF8511
    assert state.u("v5")[0] == 0x85118585
    assert state.u("v6")[0] == 0x00851234
    assert state.findings == []


def test_wide_reads_return_consecutive_dwords() -> None:
    text = """
    ds_write_b64 v0, v[2:3]
    ds_write_b64 v0, v[4:5] offset:8
    s_waitcnt lgkmcnt(0)
    ds_read_b128 v[8:11], v0
    ds_read_b96 v[12:14], v0
    s_waitcnt lgkmcnt(0)
    """
    state = run(text, {"v0": LANE * 16, "v2": LANE, "v3": LANE + 100, "v4": LANE + 200, "v5": LANE + 300})
    assert [int(state.u(f"v{r}")[5]) for r in range(8, 15)] == [5, 105, 205, 305, 5, 105, 205]


@pytest.mark.parametrize(("name", "size", "stride"), [("2", 4, 4), ("2st64", 4, 256)])
def test_two_address_forms_scale_their_offsets(name: str, size: int, stride: int) -> None:
    text = f"""
    ds_write{name}_b32 v0, v1, v2 offset0:1 offset1:3
    s_waitcnt lgkmcnt(0)
    ds_read_b32 v4, v0 offset:{stride}
    ds_read_b32 v5, v0 offset:{3 * stride}
    ds_read{name}_b32 v[6:7], v0 offset0:3 offset1:1
    s_waitcnt lgkmcnt(0)
    """
    state = run(text, {"v0": LANE * 16, "v1": 11, "v2": 22}, exec_mask=1)
    assert [int(state.u(f"v{r}")[0]) for r in (4, 5, 6, 7)] == [11, 22, 22, 11]


@pytest.mark.parametrize(("bits", "rows"), [(16, 4), (8, 8), (4, 16)])
def test_transposing_read_gives_each_lane_a_column(bits: int, rows: int) -> None:
    """16 lanes hold ``rows`` rows of 16 elements in lane order; lane l receives column l."""
    rng = np.random.default_rng(bits)
    matrix = rng.integers(0, 1 << bits, (4, rows, 16))
    row_words = [sum(int(v) << bits * i for i, v in enumerate(row)) for block in matrix for row in block]
    data = b"".join(word.to_bytes(16 * bits // 8, "little") for word in row_words)
    lanes = np.frombuffer(data, np.uint32).reshape(64, 2)
    text = f"ds_write_b64 v0, v[2:3]\ns_waitcnt lgkmcnt(0)\nds_read_b64_tr_b{bits} v[4:5], v0\ns_waitcnt lgkmcnt(0)"
    state = run(text, {"v0": LANE * 8, "v2": lanes[:, 0], "v3": lanes[:, 1]})
    for lane in range(64):
        column = sum(int(v) << bits * i for i, v in enumerate(matrix[lane // 16, :, lane % 16]))
        assert int(state.pair("v[4:5]")[lane]) == column


def test_misaligned_access_is_found() -> None:
    state = run("ds_write_b32 v0, v1", {"v0": LANE * 4 + 2, "v1": 0})
    assert state.kinds() == {"misaligned_lds"}


def test_access_beyond_the_allocation_is_found() -> None:
    state = run("ds_write_b32 v0, v1 offset:4", {"v0": LANE * 4, "v1": 0}, lds_bytes=256)
    assert state.kinds() == {"lds_out_of_range"}
    assert "256…259 of 256" in state.findings[0].detail


def test_inactive_lanes_may_hold_any_address() -> None:
    state = run("ds_write_b32 v0, v1", {"v0": np.where(LANE == 0, 0, 0xFFFFFFF1), "v1": 0}, exec_mask=1)
    assert state.findings == []


def test_what_was_never_written_is_found_when_it_is_used() -> None:
    text = "ds_read_b32 v1, v0\ns_waitcnt lgkmcnt(0)\nds_read_b32 v2, v1"
    assert run(text, {"v0": LANE * 4}).kinds() >= {"uninitialised_address"}


def test_undefined_bits_pass_through_lds() -> None:
    text = STORE + "ds_read_b32 v2, v0\ns_waitcnt lgkmcnt(0)\nds_read_b32 v3, v2"
    state = run(text, {"v0": LANE * 4, "v1": 0}, undefined="v1")
    assert state.kinds() == {"uninitialised_address"}


def test_reading_another_waves_bytes_without_a_barrier_is_a_race() -> None:
    own = np.stack([LANE * 4, LANE * 4 + 256])
    text = STORE + "v_xor_b32_e32 v0, 0x100, v0\nds_read_b32 v2, v0\ns_waitcnt lgkmcnt(0)"
    state = run(text, {"v0": own, "v1": LANE}, waves=2)
    assert state.kinds() == {"lds_race"}


def test_reading_the_own_bytes_is_no_race() -> None:
    own = np.stack([LANE * 4, LANE * 4 + 256])
    state = run(STORE + "ds_read_b32 v2, v0\ns_waitcnt lgkmcnt(0)", {"v0": own, "v1": LANE}, waves=2)
    assert state.findings == []


def test_read_modify_write() -> None:
    text = """
    ds_write_b32 v0, v1
    s_waitcnt lgkmcnt(0)
    ds_add_u32 v0, v2
    ds_add_rtn_u32 v3, v0, v2
    s_waitcnt lgkmcnt(0)
    ds_read_b32 v4, v0
    s_waitcnt lgkmcnt(0)
    """
    state = run(text, {"v0": 0, "v1": 1000, "v2": LANE})
    assert state.u("v4")[0] == 1000 + 2 * 2016  # 0 + 1 + … + 63 = 2016
    assert state.u("v3")[:3].tolist() == [3016, 3016, 3017]


@pytest.mark.parametrize(
    ("macro", "number"),
    [
        # LLVM AMDGPUOperandSyntax, "swizzle": and-mask in bits 0-4, or-mask in 5-9, xor-mask in 10-14.
        ("swizzle(SWAP,16)", 0x401F), ("swizzle(REVERSE,8)", 0x1C1F), ("swizzle(BROADCAST,4,2)", 0x005C),
        ("swizzle(QUAD_PERM,3,2,1,0)", 0x801B),
    ],
)  # fmt: skip
def test_a_swizzle_may_be_written_as_one_of_llvms_macros(macro: str, number: int) -> None:
    assert swizzle_pattern(macro) == number


def test_an_unknown_swizzle_is_refused() -> None:
    with pytest.raises(UnknownInstructionError, match="SHUFFLE"):
        swizzle_pattern("swizzle(SHUFFLE,1)")
