"""Which stores another wave of the same launch may read: those that were handed over to it.

Dies have L2 caches of their own, so that between workgroups only device scope counts. The rules are those of LLVM's
memory model of gfx942 (User Guide for AMDGPU Backend) and of its SIMemoryLegalizer:

    landed     a store that its wave has waited for (vmcnt) is in the L2 of its die
    write-back ``buffer_wbl2 sc1`` covers the earlier stores of its own wave, and those of other waves of its workgroup
               that had landed when all met at a barrier; it is done once it has been waited for
    publish    an atomic leaves at its address what finished write-backs of its wave cover, beside what others left
    receive    an atomic that returns gets what was there before, once it has been waited for
    acquire    ``buffer_inv sc1`` makes what was received readable for its wave, the next barrier for its workgroup

A wave may read what it stored itself, what its workgroup stored before the last barrier, and what it acquired.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from search.gfx950.simulator.state.arrays import Array

Completion = Callable[[Array], None]


class Handover:
    """What each wave may know of the stores of the others, by the clock of :class:`GlobalMemory`: 0 is nothing."""

    def __init__(self, wave_workgroup: Array, wave_in_group: Array) -> None:
        """Nothing was stored; the arrays give each wave's workgroup and its number there."""
        self._workgroup, self._place = wave_workgroup, wave_in_group
        self._each = int(wave_in_group.max()) + 1  # waves of a workgroup
        waves = len(wave_workgroup)
        self._met: Array = np.zeros(waves, np.int64)  # clock at the last barrier
        self._landed: Array = np.zeros(waves, np.int64)
        self._shared: Array = np.zeros(waves, np.int64)  # landed at the last barrier
        self._written_back: Array = np.zeros((waves, self._each), np.int64)  # of each wave of the workgroup
        self._published: dict[int, Array] = {}  # by address, of each wave
        self._received: dict[int, Array] = {}  # by wave, the same
        self._acquired: dict[int, Array] = {}

    def landing(self, clock: int) -> Completion:
        """What happens once waves have waited for stores that they made until ``clock``."""

        def land(waves: Array) -> None:
            self._landed[waves] = np.maximum(self._landed[waves], clock)

        return land

    def write_back(self, waves: Array, clock: int) -> Completion:
        """What happens once ``waves`` have waited for the write-back that they begin now."""
        cover = self._shared.reshape(-1, self._each)[self._workgroup[waves]]
        cover[np.arange(len(waves)), self._place[waves]] = clock

        def finish(done: Array) -> None:
            mine = np.isin(waves, done)
            self._written_back[waves[mine]] = np.maximum(self._written_back[waves[mine]], cover[mine])

        return finish

    def exchange(self, addresses: Array, waves: Array, *, returns: bool) -> Completion:
        """Lanes of ``waves`` [n] change ``addresses`` [n] by atomics, in this order; what happens once they waited."""
        received: dict[int, Array] = {}
        if self._published or self._written_back[waves].any():
            for address, wave in zip(addresses.tolist(), waves.tolist(), strict=True):
                there = self._published.setdefault(address, np.zeros(len(self._workgroup), np.int64))
                received[wave] = np.maximum(received.get(wave, 0), there)
                own = self._members(wave)
                there[own] = np.maximum(there[own], self._written_back[wave])

        def receive(done: Array) -> None:
            for wave in received.keys() & set(done.tolist()) if returns else ():
                self._received[wave] = np.maximum(self._received.get(wave, 0), received[wave])

        return receive

    def acquire(self, waves: Array) -> None:
        """``waves`` drop what their caches hold."""
        for wave in self._received.keys() & set(waves.tolist()):
            self._acquired[wave] = np.maximum(self._acquired.get(wave, 0), self._received[wave])

    def barrier(self, workgroups: Array, clock: int) -> None:
        """All waves of ``workgroups`` (bool [workgroups]) met."""
        here = workgroups[self._workgroup]
        self._met[here] = clock
        self._shared[here] = self._landed[here]
        for wave, acquired in list(self._acquired.items()):
            if here[wave]:
                own = self._members(wave)
                for other in range(own.start, own.stop):
                    self._acquired[other] = np.maximum(self._acquired.get(other, 0), acquired)

    def stale(self, readers: Array, writers: Array, clocks: Array) -> Array:
        """Which of the items [n, items] that ``readers`` [n] read, stored at ``clocks``, may not have reached them.

        Args:
            writers: Wave that stored each last; -1: nobody in this launch.
        """
        reading = readers[:, None]
        foreign = (writers >= 0) & (writers != reading)
        at_home = self._workgroup[writers] == self._workgroup[reading]
        seen = np.where(at_home, self._met[reading], 0)
        for reader in self._acquired.keys() & set(readers[foreign.any(axis=1)].tolist()):
            mine = reading == reader
            seen = np.where(mine, np.maximum(seen, self._acquired[reader][writers]), seen)
        return np.asarray(foreign & (clocks > seen))

    def reason(self, reader: int, writer: int, clock: int) -> str:
        """What is missing between the writer's store at ``clock`` and the reader."""
        if self._workgroup[reader] == self._workgroup[writer]:
            return "with no barrier in between"
        if any(there[writer] >= clock for there in self._published.values()):
            return "and released: acquire at device scope (buffer_inv sc1 behind the atomic, then a barrier) is missing"
        return "without release at device scope (vmcnt(0), barrier, buffer_wbl2 sc1, vmcnt(0), then the atomic)"

    def _members(self, wave: int) -> slice:
        first = wave - int(self._place[wave])
        return slice(first, first + self._each)
