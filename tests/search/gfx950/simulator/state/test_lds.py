"""Who may read which bytes of the LDS: writes in flight, waited for, and behind a barrier."""

from __future__ import annotations

import numpy as np
import pytest

from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.lds import IN_FLIGHT, NEVER_WRITTEN, LdsWrite, LocalMemory

LANES = 64
EVERYWHERE = np.ones((1, LANES), np.bool_)
FIRST_HALF = np.arange(LANES)[None, :] < 32
MET = np.array([True])


@pytest.fixture
def lds() -> LocalMemory:
    """One workgroup of two waves."""
    return LocalMemory(1, 4096, np.array([0, 0]), np.array([0, 1]))


def offsets(size: int) -> Array:
    """Lane i at byte i * size."""
    return np.arange(LANES, dtype=np.int64)[None, :] * size


def write(lds: LocalMemory, wave: int, size: int, active: Array = EVERYWHERE, *, direct: bool = False) -> LdsWrite:
    values = np.full((1, LANES, size), wave + 7, np.uint8)
    return lds.write(np.array([wave]), offsets(size), values, active, direct)


def shadow(lds: LocalMemory, size: int) -> Array:
    """Shadow bytes of the lanes, [64, size]."""
    return np.asarray(lds.read(offsets(size), size)[1][0])


@pytest.mark.parametrize("size", [1, 2, 4, 8, 12, 16])
@pytest.mark.parametrize("active", [EVERYWHERE, FIRST_HALF], ids=["all lanes", "half"])
def test_a_write_is_the_waves_own_until_it_is_waited_for_and_a_barrier_is_passed(size: int, active: Array) -> None:
    lds = LocalMemory(1, 4096, np.array([0, 0]), np.array([0, 1]))
    record = write(lds, 1, size, active)
    written = np.broadcast_to(active[0][:, None], (LANES, size))
    assert np.array_equal(shadow(lds, size), np.where(written, 2, NEVER_WRITTEN))
    lds.barrier(MET)  # nobody has waited for the write
    assert np.array_equal(shadow(lds, size), np.where(written, 2, NEVER_WRITTEN))
    lds.finish(record, np.array([1]))
    lds.barrier(MET)
    assert np.array_equal(shadow(lds, size), np.where(written, 0, NEVER_WRITTEN))


@pytest.mark.parametrize("size", [4, 12, 16])
@pytest.mark.parametrize("active", [EVERYWHERE, FIRST_HALF], ids=["all lanes", "half"])
def test_a_load_into_lds_is_in_flight_until_it_is_waited_for(size: int, active: Array) -> None:
    lds = LocalMemory(1, 4096, np.array([0, 0]), np.array([0, 1]))
    record = write(lds, 0, size, active, direct=True)
    written = np.broadcast_to(active[0][:, None], (LANES, size))
    assert np.array_equal(shadow(lds, size), np.where(written, IN_FLIGHT, NEVER_WRITTEN))
    lds.finish(record, np.array([1]))  # another wave's wait does not cover it
    assert np.array_equal(shadow(lds, size), np.where(written, IN_FLIGHT, NEVER_WRITTEN))
    lds.finish(record, np.array([0]))
    assert np.array_equal(shadow(lds, size), np.where(written, 1, NEVER_WRITTEN))


def test_the_wait_for_an_older_write_does_not_end_the_flight_of_a_load(lds: LocalMemory) -> None:
    older = write(lds, 0, 16)
    write(lds, 0, 16, direct=True)
    lds.finish(older, np.array([0]))
    assert (shadow(lds, 16) == IN_FLIGHT).all()


def test_the_end_of_a_load_leaves_what_another_wave_wrote_since(lds: LocalMemory) -> None:
    load = write(lds, 0, 16, direct=True)
    write(lds, 1, 16, FIRST_HALF)
    lds.finish(load, np.array([0]))
    assert (shadow(lds, 16)[:32] == 2).all() and (shadow(lds, 16)[32:] == 1).all()


@pytest.mark.parametrize("size", [4, 12, 16])
def test_a_write_over_what_another_wave_read_is_found_until_a_barrier(lds: LocalMemory, size: int) -> None:
    lds.note_read(np.array([1]), offsets(size), FIRST_HALF, size)
    reader = lds.foreign_reader(np.array([0]), offsets(size), EVERYWHERE, size)
    assert reader is not None and reader[1] == 1
    assert np.array_equal(reader[0], FIRST_HALF)
    assert lds.foreign_reader(np.array([1]), offsets(size), EVERYWHERE, size) is None  # its own reads
    lds.barrier(MET)
    assert lds.foreign_reader(np.array([0]), offsets(size), EVERYWHERE, size) is None


def test_a_barrier_of_one_workgroup_settles_nothing_of_another() -> None:
    lds = LocalMemory(2, 1024, np.array([0, 1]), np.array([0, 0]))
    waves = np.array([0, 1])
    where = lds.base[:, None] + offsets(4)
    record = lds.write(waves, where, np.zeros((2, LANES, 4), np.uint8), np.ones((2, LANES), np.bool_))
    lds.finish(record, waves)
    lds.barrier(np.array([False, True]))
    assert [set(row.reshape(-1).tolist()) for row in lds.read(where, 4)[1]] == [{1}, {0}]
