"""search.gfx950.model.launch_time: rounds, sharing, what memory gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from search.gfx950.machine import COLD, GPUMODE, MI355X, Machine
from search.gfx950.model.constants import CONSTANTS
from search.gfx950.model.issue import Kind
from search.gfx950.model.launch_time import LaunchWork, Sharing, launch_time, supply_of
from search.gfx950.model.stream import SCRATCH, Event, WaveStream

WHOLE = Sharing({}, {})


def work(
    workgroups: int, resident: int = 1, *, loads: int = 8, clks: float = 4000, sharing: Sharing = WHOLE
) -> LaunchWork:
    load = Event(Kind.LOAD, 0, 0, 0, 0, path=16, size=1024, buffer="b")
    wait = Event(Kind.WAIT, 0, 0, 0, 0, path=0, size=-1)
    events = (*[load] * loads, wait, Event(Kind.NOTHING, clks, clks, 0, 0), Event(Kind.END, 0, 0, 0, 0))
    stream = WaveStream(events, frozenset(), 0, {(Kind.LOAD, "b"): 1024.0 * loads})
    return LaunchWork("k", (stream,) * 4, workgroups, resident, sharing, 4096.0 * loads * workgroups)


def clks(one: LaunchWork, machine: Machine = MI355X, *, warm: bool = False) -> float:
    return launch_time(one, machine, warm=warm).work_us * machine.clock_mhz


def test_time_never_falls_as_the_grid_grows() -> None:
    for resident in (1, 2, 4):
        times = [clks(work(count, resident)) for count in (1, 64, 256, 257, 384, 448, 512, 513, 1024, 2048, 5000)]
        assert times == sorted(times)


def test_rounds_that_are_not_simulated_take_as_long_as_those_that_are() -> None:
    four, eight = clks(work(4 * 256)), clks(work(8 * 256))
    assert eight == pytest.approx(2 * four, rel=0.1)


def test_a_piece_that_all_workgroups_read_is_read_from_memory_once() -> None:
    own, shared = work(256, loads=64), work(256, loads=64, sharing=Sharing({"b": 1 / 256}, {"b": 8 / 256}))
    slow = Machine(harness=replace(COLD, hbm_tbs=((1, 0.5),)))
    assert supply_of(own, slow, CONSTANTS, warm=False).load_bytes_per_clk == pytest.approx(0.5e6 / 2400 / 256)
    assert supply_of(shared, slow, CONSTANTS, warm=False).load_bytes_per_clk == CONSTANTS.unit_bytes_per_clk


def test_each_die_reads_its_own_copy() -> None:
    spread = work(256, sharing=Sharing({"b": 1 / 256}, {"b": 1.0}))
    kept = work(256, sharing=Sharing({"b": 1 / 256}, {"b": 8 / 256}))
    narrow = replace(CONSTANTS, cache_tbs=2.0)
    rates = [supply_of(one, MI355X, narrow, warm=False).load_bytes_per_clk for one in (spread, kept)]
    assert rates[0] < rates[1]


def test_few_workgroups_reach_less_of_a_cold_memory() -> None:
    machine = Machine(harness=GPUMODE)
    few = supply_of(work(32), machine, CONSTANTS, warm=False).load_bytes_per_clk
    assert few == pytest.approx(1.53e6 / 2400 / 32)


def test_operands_in_the_cache_come_sooner_and_expose_nothing() -> None:
    cold, warm = (launch_time(work(64), MI355X, warm=flag) for flag in (False, True))
    assert warm.work_us < cold.work_us
    assert (warm.memory_us, cold.memory_us > 0) == (0.0, True)


def test_what_an_earlier_launch_wrote_and_spilled_registers_have_latencies_of_their_own() -> None:
    supply = supply_of(replace(work(64), handed=frozenset({"b"})), MI355X, CONSTANTS, warm=False)
    assert supply.latency == {"b": CONSTANTS.handed_latency_clks, SCRATCH: CONSTANTS.scratch_latency_clks}


def test_spilled_code_is_slower() -> None:
    reload = Event(Kind.LOAD, 0, 0, 0, 0, path=4, buffer=SCRATCH)
    wait = Event(Kind.WAIT, 0, 0, 0, 0, path=0, size=-1)
    plain = work(64)
    (stream, *_) = plain.workgroup
    spilled = replace(stream, events=(*[reload, wait] * 10, *stream.events))
    slower = replace(plain, workgroup=(spilled,) * 4)
    assert clks(slower) - clks(plain) > 9 * CONSTANTS.scratch_latency_clks  # each reload waits a round trip


def test_matrix_cores_slow_down_with_the_units_that_work_and_not_for_zeros() -> None:
    stretch = [
        supply_of(replace(work(count), full_rows=rows), MI355X, CONSTANTS, warm=False).mfma_stretch - 1
        for count, rows in ((256, 1.0), (64, 1.0), (256, 0.25))
    ]
    assert stretch == pytest.approx([CONSTANTS.mfma_throttle * part for part in (1, 0.25, 0.25)])


def test_a_grid_that_nearly_fills_a_second_round_crowds_the_busiest_unit() -> None:
    half, nearly = clks(work(384, resident=4)), clks(work(448, resident=4))
    assert nearly - half > 0.25 * CONSTANTS.crowding * 4000  # part of a third workgroup's arithmetic
