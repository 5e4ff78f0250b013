"""Atomics: every lane counts, also where lanes share an address."""

from __future__ import annotations

import numpy as np
from snippets import LANE, run

from search.gfx950.simulator import Buffer

RESOURCE = {"s2": 0x7FFFFFFE, "s3": 0x27000}


def test_float_sums_of_lanes_that_share_an_address() -> None:
    out = np.array([100.0, 200.0], np.float32)
    text = "buffer_atomic_add_f32 v1, v0, s[0:3], 0 offen"
    run(
        text,
        {"s[0:1]": "x", **RESOURCE, "v0": (LANE % 2) * 4, "v1": LANE.astype(np.float32)},
        buffers={"x": out},
        waves=2,
    )
    assert out.tolist() == [100.0 + 2 * 992, 200.0 + 2 * 1024]  # even lanes sum to 992, odd lanes to 1024


def test_returned_value_is_the_one_before_the_lanes_turn() -> None:
    out = np.array([10], np.uint32)
    text = "global_atomic_add v3, v0, v1, s[0:1] sc0\ns_waitcnt vmcnt(0)"
    state = run(text, {"s[0:1]": "x", "v0": 0, "v1": 2}, buffers={"x": out})
    assert np.array_equal(state.u("v3"), 10 + 2 * LANE)
    assert out[0] == 10 + 128


def test_packed_bf16_sum_rounds_each_half() -> None:
    out = np.array([0x3F803F80], np.uint32)  # {1, 1}
    text = "buffer_atomic_pk_add_bf16 v1, v0, s[0:3], 0 offen"
    run(text, {"s[0:1]": "x", **RESOURCE, "v0": 0, "v1": 0x40003B80}, buffers={"x": out}, exec_mask=1)  # {2, 2^-8}
    assert hex(out[0]) == hex(0x40403F80)  # 3; 1 + 2^-8 is a tie that goes to even


def test_signed_and_unsigned_extremes() -> None:
    out = np.array([5, 5], np.uint32)
    text = "global_atomic_smin v0, v1, s[0:1]\nglobal_atomic_umin v0, v1, s[0:1] offset:4"
    run(text, {"s[0:1]": "x", "v0": 0, "v1": 0xFFFFFFFF}, buffers={"x": out}, exec_mask=1)
    assert out.tolist() == [0xFFFFFFFF, 5]


def test_adding_to_memory_that_nobody_zeroed_is_found() -> None:
    buffer = Buffer(np.zeros(64, np.float32), initialised=False)
    state = run(
        "global_atomic_add_f32 v0, v1, s[0:1]", {"s[0:1]": "x", "v0": LANE * 4, "v1": 1.0}, buffers={"x": buffer}
    )
    assert state.kinds() == {"uninitialised_atomic"}


def test_out_of_range_lanes_add_nothing() -> None:
    out = np.zeros(64, np.float32)
    text = "buffer_atomic_add_f32 v1, v0, s[0:3], 0 offen"
    run(text, {"s[0:1]": "x", "s2": 8, "s3": 0x27000, "v0": LANE * 4, "v1": 1.0}, buffers={"x": out})
    assert out.sum() == 2.0
