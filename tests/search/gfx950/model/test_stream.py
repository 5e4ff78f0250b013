"""search.gfx950.model.stream: executed waves as events, and loops cut short."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from snippets import kernel

from search.gfx950.model.compute_unit import ComputeUnit, Supply
from search.gfx950.model.issue import Kind
from search.gfx950.model.stream import TRIPS, Executed, shorten, wave_streams
from search.gfx950.simulator import SimulatedLaunch, simulate

BODY, TAIL = (3, 9), (9, 12)
SUPPLY = Supply({}, 400.0, 32.0, 16.0)
LOOP = """
    s_load_dwordx2 s[4:5], s[0:1], 0x0
    s_load_dword s6, s[0:1], 0x8
    v_lshlrev_b32_e32 v0, 2, v0
    v_mov_b32_e32 v2, 0
    s_waitcnt lgkmcnt(0)
loop:
    global_load_dword v1, v0, s[4:5]
    s_waitcnt vmcnt(0)
    v_add_u32_e32 v2, v2, v1
    s_sub_u32 s6, s6, 1
    s_cmp_lg_u32 s6, 0
    s_cbranch_scc1 loop
    global_store_dword v0, v2, s[4:5]
    s_endpgm
"""


def executed(trips: int, waves: int = 1) -> Executed:
    data = np.zeros(64 * waves, np.uint32)
    result = simulate(kernel(LOOP), SimulatedLaunch({"x": data, "n": trips}, (1, 1, 1), (64 * waves, 1, 1)))
    assert result.clean
    return Executed(result.recording, waves)


def clks(trips: int) -> float:
    return ComputeUnit(wave_streams(executed(trips)), SUPPLY).run(1, 1).clks


def test_a_short_loop_stays_whole() -> None:
    blocks = ((0, 3), *[BODY] * TRIPS, TAIL)
    assert shorten(blocks).blocks == blocks
    assert shorten(blocks).cut == 0


def test_a_long_loop_keeps_its_first_trips_and_what_is_around_it() -> None:
    short = shorten(((0, 3), *[BODY, TAIL] * 100, (12, 13)))
    assert short.blocks == ((0, 3), *[BODY, TAIL] * TRIPS, (12, 13))
    assert short.cut == 100 - TRIPS
    assert sorted(short.marks) == [1 + 2 * trip for trip in range(TRIPS + 1)]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(4, 6)), max_size=60))
def test_cutting_loses_no_kind_of_block_and_counts_what_it_cuts(blocks: list[tuple[int, int]]) -> None:
    short = shorten(blocks)
    assert set(short.blocks) == set(blocks)
    assert (len(blocks) - len(short.blocks)) % max(1, short.cut) == 0


def test_bytes_are_those_of_all_trips() -> None:
    (stream,) = wave_streams(executed(50))
    assert stream.moved == {(Kind.LOAD, "x"): 50 * 256, (Kind.STORE, "x"): 256}
    assert sum(event.kind is Kind.LOAD for event in stream.events) == 1 + TRIPS  # the first is of the block before
    assert stream.cut == 49 - TRIPS


def test_trips_that_were_cut_take_as_long_as_those_that_were_simulated() -> None:
    a_trip = clks(9) - clks(8)
    assert clks(100) == pytest.approx(clks(9) + 91 * a_trip, rel=0.01)


def test_the_workgroup_that_executed_most_is_taken() -> None:
    one = executed(20, waves=2)
    assert len(wave_streams(one)) == 2
    assert all(stream.cut == 19 - TRIPS for stream in wave_streams(one))
