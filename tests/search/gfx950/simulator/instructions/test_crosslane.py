"""Moves between lanes: patterns written out by hand."""

from __future__ import annotations

import numpy as np
from snippets import LANE, run


def test_readfirstlane_takes_the_lowest_active_lane() -> None:
    state = run("v_readfirstlane_b32 s0, v0", {"v0": LANE + 100}, exec_mask=0xFF00)
    assert state.u("s0") == 108


def test_readlane_and_writelane_ignore_exec() -> None:
    text = "v_readlane_b32 s0, v0, 70\nv_writelane_b32 v1, s0, 63"
    state = run(text, {"v0": LANE + 100, "v1": 0}, exec_mask=1)
    assert state.u("s0") == 106  # lane 70 mod 64
    assert state.u("v1").nonzero()[0].tolist() == [63]
    assert state.u("v1")[63] == 106


def test_permlane32_swap_exchanges_the_upper_half_with_the_other_lower_half() -> None:
    state = run("v_permlane32_swap_b32_e32 v0, v1", {"v0": LANE, "v1": LANE + 100})
    assert state.u("v0").tolist() == [*range(32), *range(100, 132)]
    assert state.u("v1").tolist() == [*range(32, 64), *range(132, 164)]


def test_permlane16_swap_exchanges_odd_rows_with_the_others_even_rows() -> None:
    state = run("v_permlane16_swap_b32_e32 v0, v1", {"v0": LANE, "v1": LANE + 100})
    assert state.u("v0").tolist() == [*range(16), *range(100, 116), *range(32, 48), *range(132, 148)]
    assert state.u("v1").tolist() == [*range(16, 32), *range(116, 132), *range(48, 64), *range(148, 164)]


def test_swap() -> None:
    state = run("v_swap_b32 v0, v1", {"v0": 1, "v1": 2})
    assert (state.u("v0")[0], state.u("v1")[0]) == (2, 1)


def test_bpermute_pulls_from_a_byte_address() -> None:
    state = run("ds_bpermute_b32 v2, v0, v1 offset:4", {"v0": 4 * ((LANE * 3) % 64), "v1": LANE + 100})
    assert np.array_equal(state.u("v2"), (LANE * 3 + 1) % 64 + 100)


def test_bpermute_reads_zero_from_inactive_lanes() -> None:
    state = run("ds_bpermute_b32 v2, v0, v1", {"v0": 4 * (LANE ^ 1), "v1": 7, "v2": 5}, exec_mask=0b0111)
    assert state.u("v2")[:4].tolist() == [7, 7, 0, 5]


def test_permute_pushes_and_the_highest_lane_wins() -> None:
    target = np.where(LANE < 2, 5, LANE)
    state = run("ds_permute_b32 v2, v0, v1", {"v0": 4 * target, "v1": LANE + 100})
    assert state.u("v2")[:6].tolist() == [0, 0, 102, 103, 104, 105]


def test_swizzle_modes() -> None:
    reversed_quads = 0x8000 | 3 | 2 << 2 | 1 << 4 | 0 << 6
    state = run(
        f"ds_swizzle_b32 v1, v0 offset:{reversed_quads}\nds_swizzle_b32 v2, v0 offset:{0x1F | 0x10 << 10}", {"v0": LANE}
    )
    assert np.array_equal(state.u("v1"), LANE ^ 3)
    assert np.array_equal(state.u("v2"), LANE ^ 16)
