"""search.gfx950.model.compute_unit: what must hold of simulated times whatever was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.gfx950.model.compute_unit import ComputeUnit, Supply, UnitTime
from search.gfx950.model.constants import CONSTANTS
from search.gfx950.model.issue import Kind
from search.gfx950.model.stream import Event, WaveStream

SUPPLY = Supply({}, 400.0, 32.0, 16.0)
END = Event(Kind.END, 0, 0, 0, 0)
LOAD = Event(Kind.LOAD, 0, 0, 0, 0, path=16, size=1024, buffer="a")
WAIT = Event(Kind.WAIT, 0, 0, 0, 0, path=0, size=-1)
BARRIER = Event(Kind.BARRIER, 0, 0, 0, 0)


def arithmetic(clks: float, mfma: float = 0) -> Event:
    return Event(Kind.NOTHING, clks, clks, mfma, mfma)


def local(path: float) -> Event:
    return Event(Kind.LDS, 0, 0, 0, 0, path=path)


def stream(*events: Event) -> WaveStream:
    return WaveStream((*events, END), frozenset(), 0, {})


def ran(waves: Sequence[WaveStream], count: int = 1, resident: int = 1, supply: Supply = SUPPLY) -> UnitTime:
    return ComputeUnit(waves, supply).run(count, resident)


def test_eight_waves_on_four_simds_take_both_waves_time_of_the_vector_unit() -> None:
    one, two = ran([stream(arithmetic(1000))] * 4), ran([stream(arithmetic(1000))] * 8)
    assert (one.clks, two.clks) == (1000, 2000 - CONSTANTS.issue_clks)


def test_nothing_computes_before_its_load_has_arrived() -> None:
    time = ran([stream(LOAD, WAIT, arithmetic(1000))])
    assert time.clks == pytest.approx(400 + 1024 / 32 + CONSTANTS.issue_clks + 1000)


def test_twice_the_traffic_on_the_lds_takes_twice_its_time() -> None:
    once, twice = ran([stream(*[local(100)] * 50)] * 4), ran([stream(*[local(100)] * 100)] * 4)
    assert twice.busy["lds"] == 2 * once.busy["lds"] == 2 * 4 * 50 * 100
    assert twice.clks - once.clks == pytest.approx(4 * 50 * 100)


def test_what_is_in_flight_is_limited() -> None:
    loads = [LOAD] * 100  # 100 KiB: more than twice what a unit waits for at once
    supply = replace(SUPPLY, other_latency=5000.0, load_bytes_per_clk=1e9)
    assert ran([stream(*loads, WAIT)], supply=supply).clks > 2 * 5000
    assert ran([stream(*loads[:40], WAIT)], supply=supply).clks < 2 * 5000


def test_a_barrier_joins_the_waves_of_a_workgroup_and_of_no_other() -> None:
    slow, fast = stream(arithmetic(5000), BARRIER), stream(arithmetic(100), BARRIER)
    assert ran([slow, fast]).waited["barrier"] == pytest.approx((4900 + 2 * CONSTANTS.barrier_clks) / 2)


def test_a_wave_that_has_ended_is_not_waited_for() -> None:
    assert ran([stream(BARRIER, arithmetic(10)), stream(arithmetic(100))]).clks < 200


def test_a_further_round_takes_as_long_again() -> None:
    waves = [stream(LOAD, WAIT, arithmetic(1000))] * 4
    assert ran(waves, count=2, resident=1).clks == pytest.approx(2 * ran(waves).clks, rel=0.02)


def test_a_matrix_core_slowed_down_takes_longer() -> None:
    waves = [stream(*[arithmetic(16, 16)] * 100)]
    assert ran(waves, supply=replace(SUPPLY, mfma_stretch=1.5)).busy["mfma"] == 1.5 * ran(waves).busy["mfma"]


def test_watched_spans_lie_within_the_time_and_do_not_change_it() -> None:
    waves = [stream(LOAD, WAIT, arithmetic(100), local(20), WAIT, BARRIER)] * 4
    unit = ComputeUnit(waves, SUPPLY, watch=True).run(2, 2)
    assert unit.clks == ran(waves, 2, 2).clks
    assert all(0 <= span.start < span.end <= unit.clks + CONSTANTS.lds_latency_clks for span in unit.spans)
    assert {span.lane for span in unit.spans} >= {"valu", "vmem", "lds", "wait memory"}


EVENTS = st.lists(
    st.sampled_from([LOAD, WAIT, arithmetic(40), arithmetic(32, 16), local(16), BARRIER]), min_size=1, max_size=40
)


@given(EVENTS)
def test_removing_a_wait_never_makes_a_wave_slower(events: list[Event]) -> None:
    without = [event for event in events if event.kind is not Kind.WAIT]
    assert ran([stream(*without)]).clks <= ran([stream(*events)]).clks + 1e-6


@given(EVENTS, st.integers(1, 8), st.integers(1, 3))
def test_time_is_at_least_that_of_the_busiest_unit_and_finite(events: list[Event], waves: int, resident: int) -> None:
    time = ran([stream(*events)] * waves, resident, resident)
    assert max(time.busy["lds"], time.busy["vmem"]) <= time.clks + 64 < float("inf")
    assert max(time.busy["valu"], time.busy["mfma"]) <= time.clks + 64
