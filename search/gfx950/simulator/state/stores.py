"""Who stored what in one buffer during a launch: stores of several waves that disagree, and where all stores went."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from search.gfx950.simulator.state.arrays import Array, lazy_zeros


@dataclass(frozen=True)
class Clash:
    """A store of other bytes than those that another wave stored there in the same launch.

    Args:
        lane: Position of the lane among those that store.
    """

    lane: int
    wave: int


@dataclass(frozen=True, eq=False)
class StoredRuns:
    """Where the stores and atomics of one launch went in one buffer, one entry a lane and instruction.

    Args:
        offset: First byte [n].
        size: Bytes [n].
        wave: Which wave it was [n].
        before: The dword that an atomic found there [n]; 0 of a store.
    """

    offset: Array
    size: Array
    wave: Array
    before: Array


@dataclass(eq=False)
class StoreLog:
    """Stores into one buffer of ``items`` elements of ``item_bytes``.

    The order of waves is the hardware's secret, so two that store different values at one place leave the result to
    chance, whichever came last here.
    """

    items: int
    item_bytes: int
    _writers: Array | None = None  # wave + 1 of each item, 0: nobody
    _runs: list[tuple[Array, int, Array, Array | None]] = field(default_factory=list)
    _clocks: list[int] = field(default_factory=list)  # of each run
    _latest: Array | None = None  # (wave + 1, clock) of the last change of each item
    _looked_at: int = 0  # runs that are in _latest

    def note(self, offsets: Array, size: int, waves: Array, clock: int, before: Array | None = None) -> None:
        """Remember that ``waves`` [n] stored ``size`` bytes each at ``offsets`` [n], ``before`` until then."""
        self._runs.append((offsets, size, waves, before))
        self._clocks.append(clock)

    @property
    def is_changed(self) -> bool:
        """Whether anybody stored or added anything."""
        return bool(self._runs)

    def latest(self, offsets: Array, size: int) -> tuple[Array, Array]:
        """(wave, clock) of the last change of the items of ``size`` bytes at each of ``offsets`` [n]; -1, 0: none.

        Both are [n, items].
        """
        if self._latest is None:
            self._latest = lazy_zeros((2, self.items), np.int32)
        for run in range(self._looked_at, len(self._runs)):
            there, width, waves, _ = self._runs[run]
            index = self._index(there, width)
            self._latest[0][index] = waves[:, None] + 1
            self._latest[1][index] = self._clocks[run]
        self._looked_at = len(self._runs)
        index = self._index(offsets, size)
        return self._latest[0].take(index) - 1, self._latest[1].take(index)

    def earlier_clash(self, offsets: Array, waves: Array, stored: Array, values: Array) -> Clash | None:
        """A lane whose ``values`` uint8 [n, size] differ from what another wave left ``stored`` there, or None."""
        before = self._owners().take(self._index(offsets, values.shape[1]))
        if not before.any():
            return None
        return self._clash((before != 0) & (before != waves[:, None] + 1), before, stored, values)

    def own(self, offsets: Array, waves: Array, size: int) -> Array:
        """Make ``waves`` the writers of their bytes; the writers there now [n, items], of which the last lane won."""
        index = self._index(offsets, size)
        owners = self._owners()
        owners[index] = waves[:, None] + 1
        return owners.take(index)

    def later_clash(self, owners: Array, waves: Array, stored: Array, values: Array) -> Clash | None:
        """A lane of this very store whose bytes another wave's lane replaced by others, or None."""
        return self._clash(owners != waves[:, None] + 1, owners, stored, values)

    def runs(self) -> StoredRuns:
        """All stores so far."""
        parts = [(none := np.zeros(0, np.int64), none, none, none)]
        for offset, size, wave, before in self._runs:
            found = np.zeros(len(offset), np.int64) if before is None else before
            parts.append((offset, np.full(len(offset), size, np.int64), wave, found))
        return StoredRuns(*map(np.concatenate, zip(*parts, strict=True)))

    def _owners(self) -> Array:
        if self._writers is None:
            self._writers = lazy_zeros(self.items, np.uint32)
        return self._writers

    def _index(self, offsets: Array, size: int) -> Array:
        first = offsets // self.item_bytes
        return np.asarray(first[:, None] + np.arange(max(size // self.item_bytes, 1)))

    def _clash(self, foreign: Array, owners: Array, stored: Array, values: Array) -> Clash | None:
        if not foreign.any():
            return None
        shape = (*foreign.shape, -1)
        wrong = foreign & (stored.reshape(shape) != values.reshape(shape)).any(axis=2)
        lanes = np.flatnonzero(wrong.any(axis=1))
        if not len(lanes):
            return None
        lane = int(lanes[0])
        return Clash(lane, int(owners[lane, int(wrong[lane].argmax())]) - 1)
