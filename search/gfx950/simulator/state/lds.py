"""Local data share of all simulated workgroups: values, who wrote each byte, and what is still in flight.

Shadow byte of each LDS byte: 0 settled, 1…32 written by that wave (plus one) since the last barrier, 0x80 an LDS-direct
load that nobody has waited for, 0xFF never written. A second array holds the last wave (plus one) that read each byte
since the last barrier, so that a write which overtakes another wave's read is found too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from search.gfx950.simulator.state.arrays import WORDS, Array, word_index

IN_FLIGHT = 0x80
NEVER_WRITTEN = 0xFF
_POISON_DWORD = 0xFFFFDEAD


@dataclass(eq=False)
class LdsWrite:
    """One write instruction of some waves that later barriers have to settle.

    Args:
        waves: Wave ids [waves].
        active: Lanes that wrote [waves, 64]; None: all.
        width: Bytes of a word.
        index: Words of the lanes [waves, 64, …], or [n, …] of those that wrote.
        direct: A load into LDS, whose bytes are in flight until it is finished.
        finished: Waves that have waited for the write [waves].
        settled: Waves whose bytes a barrier made visible to all [waves].
    """

    waves: Array
    active: Array | None
    width: int
    index: Array
    direct: bool
    finished: Array
    settled: Array

    def lanes(self, chosen: Array) -> tuple[Array, Array]:
        """Words [n, …] that the ``chosen`` waves (bool [waves]) wrote, and positions of their waves [n]."""
        rows = np.arange(len(self.waves)) if self.active is None else self.active.nonzero()[0]
        if chosen.all():
            return self.index, rows
        mine = chosen[rows]
        return self.index[mine], rows[mine]


class LocalMemory:
    """LDS of ``workgroups`` workgroups in one flat byte array."""

    def __init__(self, workgroups: int, size_bytes: int, wave_workgroup: Array, wave_in_group: Array) -> None:
        """Poisoned LDS of ``size_bytes`` a workgroup; the arrays give each wave's workgroup and its number there."""
        self.size = size_bytes
        self.stride = max(16, (size_bytes + 15) & ~15)
        total = workgroups * self.stride
        self.data: Array = np.full(total // 4, _POISON_DWORD, np.uint32).view(np.uint8)
        self.shadow: Array = np.full(total, NEVER_WRITTEN, np.uint8)
        self.base: Array = (wave_workgroup * self.stride).astype(np.int64)
        self._workgroup = wave_workgroup
        self._code = (wave_in_group + 1).astype(np.uint8)
        self._data_words = {width: self.data.view(kind) for width, kind in WORDS.items()}
        self._shadow_words = {width: self.shadow.view(kind) for width, kind in WORDS.items()}
        self._unsettled: list[LdsWrite] = []
        self._readers: Array = np.zeros(total, np.uint8)
        self._reader_words = {width: self._readers.view(kind) for width, kind in WORDS.items()}
        self._reads: list[tuple[Array, int, Array]] = []

    def read(self, offsets: Array, size: int) -> tuple[Array, Array]:
        """``size`` bytes at flat ``offsets`` (int64, any shape), and their shadow, both uint8 [*shape, size]."""
        width, index = word_index(offsets, size)
        values = self._data_words[width].take(index)
        shadow = self._shadow_words[width].take(index)
        shape = (*offsets.shape, size)
        return values.view(np.uint8).reshape(shape), shadow.view(np.uint8).reshape(shape)

    def note_read(self, waves: Array, offsets: Array, active: Array, size: int) -> None:
        """Remember that ``waves`` read ``size`` bytes at flat ``offsets`` [waves, 64] where ``active``."""
        if not active.all():
            offsets, waves = offsets[active], waves[active.nonzero()[0]]
        width, index = word_index(offsets, size)
        self._reader_words[width][index] = _beside(_spread(self._code[waves], width), index)
        self._reads.append((index, width, self._workgroup[waves]))

    def foreign_reader(self, waves: Array, offsets: Array, active: Array, size: int) -> tuple[Array, int] | None:
        """Lanes [waves, 64] whose bytes another wave read since the last barrier, and such a wave; None: no lane."""
        width, index = word_index(np.where(active, offsets, self.base[waves][:, None]), size)
        found = self._reader_words[width].take(index).view(np.uint8).reshape(*active.shape, size)
        if not found.any():
            return None
        foreign = (found != 0) & (found != self._code[waves][:, None, None]) & active[:, :, None]
        return (foreign.any(axis=2), int(found[foreign][0]) - 1) if foreign.any() else None

    def write(self, waves: Array, offsets: Array, values: Array, active: Array, direct: bool = False) -> LdsWrite:
        """Write uint8 ``values`` [waves, 64, size] at flat ``offsets`` [waves, 64] where ``active``.

        Args:
            offsets: Flat byte offsets, int64.
            values: Bytes of each lane.
            active: Lanes that write, bool [waves, 64].
            direct: An LDS-direct load: its bytes stay in flight until the covering wait.

        Returns:
            The record to finish when the operation has been waited for.
        """
        code = np.full(len(waves), IN_FLIGHT, np.uint8) if direct else self._code[waves]
        everywhere = bool(active.all())
        if not everywhere:
            offsets, values, code = offsets[active], values[active], code[active.nonzero()[0]]
        width, index = word_index(offsets, values.shape[-1])
        self._data_words[width][index] = np.ascontiguousarray(values).view(WORDS[width]).reshape(index.shape)
        self._shadow_words[width][index] = _beside(_spread(code, width), index)
        blank = np.zeros(len(waves), np.bool_)
        record = LdsWrite(waves, None if everywhere else active, width, index, direct, blank, blank.copy())
        self._unsettled.append(record)
        return record

    def overwrite(self, offsets: Array, values: Array) -> None:
        """Write uint8 ``values`` [n, size] at flat ``offsets`` [n] without touching the shadow."""
        width, index = word_index(offsets, values.shape[-1])
        self._data_words[width][index] = np.ascontiguousarray(values).view(WORDS[width]).reshape(index.shape)

    def mark(self, offsets: Array, undefined: Array, active: Array) -> None:
        """Make the bytes that ``undefined`` (uint8, non-zero) marks count as never written."""
        flat = (offsets[..., None] + np.arange(undefined.shape[-1]))[active]
        self.shadow[flat[undefined[active] != 0]] = NEVER_WRITTEN

    def finish(self, record: LdsWrite, waves: Array) -> None:
        """The operation of ``record`` has been waited for by ``waves``; LDS-direct bytes now belong to their wave."""
        mine = np.ones(len(waves), np.bool_) if waves is record.waves else np.isin(record.waves, waves)
        record.finished |= mine
        if record.direct:
            index, rows = record.lanes(mine)
            code = _beside(self._code[record.waves][rows], index)[..., None]
            self._change(record.width, index, lambda shadow: np.where(shadow == IN_FLIGHT, code, shadow))

    def _change(self, width: int, index: Array, change: Callable[[Array], Array]) -> None:
        """Replace the shadow of words by what ``change`` makes of its bytes, uint8 [*index, width]."""
        words = self._shadow_words[width]
        shadow = words.take(index).view(np.uint8).reshape(*index.shape, width)
        words[index] = change(shadow).view(words.dtype)[..., 0]

    def barrier(self, workgroups: Array) -> None:
        """All waves of ``workgroups`` (bool [workgroups]) met: finished writes become visible to all of them.

        Reads count as done at the barrier even where nobody has waited for them: LDS serves instructions in the order
        of issue. A write that is not waited for stays the writer's own, as LLVM inserts that wait itself.
        """
        reads, self._reads = self._reads, []
        for index, width, owners in reads:
            met = workgroups[owners]
            if met.all():
                self._reader_words[width][index] = 0
            else:
                self._reader_words[width][index[met]] = 0
                self._reads.append((index[~met], width, owners[~met]))
        for record in self._unsettled:
            now = record.finished & workgroups[self._workgroup[record.waves]] & ~record.settled
            if now.any():
                index, _ = record.lanes(now)
                self._change(record.width, index, lambda shadow: np.where(shadow < IN_FLIGHT, np.uint8(0), shadow))
                record.settled |= now
        self._unsettled = [record for record in self._unsettled if not record.settled.all()]


def _spread(code: Array, width: int) -> Array:
    """Each byte of ``code`` as all ``width`` bytes of a word."""
    return np.repeat(code, width).view(WORDS[width])


def _beside(rows: Array, index: Array) -> Array:
    """``rows`` [n], one for each of the first dimension of ``index``."""
    return rows.reshape(-1, *(1,) * (index.ndim - 1))
