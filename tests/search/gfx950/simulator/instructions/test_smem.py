"""Scalar loads: addresses, widths, waits."""

from __future__ import annotations

import numpy as np
from snippets import run

WORDS = np.arange(64, dtype=np.uint32)


def test_addresses_and_widths() -> None:
    text = """
    s_load_dword s8, s[0:1], 0x10
    s_load_dwordx4 s[12:15], s[0:1], s2
    s_load_dwordx2 s[16:17], s[0:1], s2 offset:0x8
    s_waitcnt lgkmcnt(0)
    """
    state = run(text, {"s[0:1]": "x", "s2": 32}, buffers={"x": WORDS.copy()})
    assert [state.u(f"s{n}") for n in (8, 12, 15, 16, 17)] == [4, 8, 11, 10, 11]
    assert state.findings == []


def test_buffer_form_gives_zero_beyond_num_records() -> None:
    text = "s_buffer_load_dwordx2 s[8:9], s[0:3], 0x8\ns_waitcnt lgkmcnt(0)"
    state = run(text, {"s[0:1]": "x", "s2": 12, "s3": 0}, buffers={"x": WORDS.copy()})
    assert (state.u("s8"), state.u("s9")) == (2, 0)


def test_a_partial_wait_does_not_cover_scalar_loads() -> None:
    text = "s_load_dword s8, s[0:1], 0x0\ns_load_dword s9, s[0:1], 0x4\ns_waitcnt lgkmcnt(1)\ns_mov_b32 s4, s8"
    state = run(text, {"s[0:1]": "x"}, buffers={"x": WORDS.copy()})
    assert state.kinds() == {"read_before_wait"}


def test_out_of_bounds_is_found() -> None:
    state = run("s_load_dword s8, s[0:1], 0x100", {"s[0:1]": "x"}, buffers={"x": WORDS.copy()})
    assert state.kinds() == {"out_of_bounds"}
