"""Which stores another wave may read: hand-derived histories of two workgroups of two waves, 0 and 1, 2 and 3."""

from __future__ import annotations

import numpy as np
import pytest

from search.gfx950.simulator.state.handover import Handover

BOTH = np.array([True, True])
PLACE = 4096  # address of the counter


@pytest.fixture
def handover() -> Handover:
    return Handover(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))


def waves(*numbers: int) -> np.ndarray:
    return np.array(numbers)


def is_stale(handover: Handover, reader: int, writer: int, clock: int) -> bool:
    return bool(handover.stale(waves(reader), np.array([[writer]]), np.array([[clock]]))[0, 0])


def release(handover: Handover, wave: int, clock: int) -> None:
    handover.write_back(waves(wave), clock)(waves(wave))
    handover.exchange(waves(PLACE), waves(wave), returns=True)(waves(wave))


def acquire(handover: Handover, wave: int) -> None:
    handover.exchange(waves(PLACE), waves(wave), returns=True)(waves(wave))
    handover.acquire(waves(wave))


def test_a_wave_reads_its_own_stores_and_what_nobody_stored(handover: Handover) -> None:
    assert not is_stale(handover, reader=0, writer=0, clock=1)
    assert not is_stale(handover, reader=0, writer=-1, clock=0)


def test_a_workgroup_reads_its_own_stores_behind_a_barrier(handover: Handover) -> None:
    assert is_stale(handover, reader=1, writer=0, clock=1)
    handover.barrier(BOTH, 1)
    assert not is_stale(handover, reader=1, writer=0, clock=1)
    assert is_stale(handover, reader=1, writer=0, clock=2)  # stored behind it


def test_a_barrier_alone_hands_nothing_to_another_workgroup(handover: Handover) -> None:
    handover.barrier(BOTH, 1)
    assert is_stale(handover, reader=2, writer=0, clock=1)
    assert "without release" in handover.reason(2, 0, 1)


def test_a_wave_hands_over_its_own_stores_up_to_the_write_back(handover: Handover) -> None:
    release(handover, 0, clock=1)
    acquire(handover, 2)
    assert not is_stale(handover, reader=2, writer=0, clock=1)
    assert is_stale(handover, reader=2, writer=0, clock=2)


def test_stores_of_a_companion_count_once_they_landed_before_a_barrier(handover: Handover) -> None:
    handover.barrier(BOTH, 1)  # wave 1 has not waited for its store
    release(handover, 0, clock=1)
    acquire(handover, 2)
    assert is_stale(handover, reader=2, writer=1, clock=1)
    handover.landing(1)(waves(1))
    release(handover, 0, clock=1)
    acquire(handover, 2)
    assert is_stale(handover, reader=2, writer=1, clock=1)  # no barrier tells wave 0
    handover.barrier(BOTH, 1)
    release(handover, 0, clock=1)
    acquire(handover, 2)
    assert not is_stale(handover, reader=2, writer=1, clock=1)


def test_a_write_back_that_is_not_waited_for_is_not_published(handover: Handover) -> None:
    finish = handover.write_back(waves(0), 1)
    handover.exchange(waves(PLACE), waves(0), returns=True)
    finish(waves(0))
    acquire(handover, 2)
    assert is_stale(handover, reader=2, writer=0, clock=1)


def test_only_the_wave_that_acquired_may_read_until_the_next_barrier(handover: Handover) -> None:
    release(handover, 0, clock=1)
    acquire(handover, 2)
    assert is_stale(handover, reader=3, writer=0, clock=1)
    assert "acquire at device scope" in handover.reason(3, 0, 1)
    handover.barrier(BOTH, 1)
    assert not is_stale(handover, reader=3, writer=0, clock=1)
    assert is_stale(handover, reader=1, writer=2, clock=1)


def test_nothing_is_acquired_without_an_invalidation_behind_the_atomics_return(handover: Handover) -> None:
    release(handover, 0, clock=1)
    arrived = handover.exchange(waves(PLACE), waves(2), returns=True)
    handover.acquire(waves(2))
    arrived(waves(2))
    assert is_stale(handover, reader=2, writer=0, clock=1)
    handover.acquire(waves(2))
    assert not is_stale(handover, reader=2, writer=0, clock=1)


def test_an_atomic_that_returns_nothing_or_changes_another_place_receives_nothing(handover: Handover) -> None:
    release(handover, 0, clock=1)
    handover.exchange(waves(PLACE), waves(2), returns=False)(waves(2))
    handover.exchange(waves(PLACE + 4), waves(2), returns=True)(waves(2))
    handover.acquire(waves(2))
    assert is_stale(handover, reader=2, writer=0, clock=1)


def test_lanes_of_one_atomic_take_turns(handover: Handover) -> None:
    handover.write_back(waves(0, 2), 2)(waves(0, 2))
    handover.exchange(waves(PLACE, PLACE), waves(0, 2), returns=True)(waves(0, 2))
    handover.acquire(waves(0, 2))
    assert not is_stale(handover, reader=2, writer=0, clock=2)  # wave 0 came first
    assert is_stale(handover, reader=0, writer=2, clock=2)
