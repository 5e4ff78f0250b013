"""What an execution leaves for whoever times it: the blocks that each wave ran, and what its memory accesses touched.

Addresses are looked at once for each instruction, at its first execution that reaches memory: the later ones follow the
same pattern, and looking at each would cost more than executing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from search.gfx950.simulator.state.arrays import Array

Block = tuple[int, int]  # first instruction, one past the last
LINE_BYTES = 128  # of a cache line (CDNA 4 ISA guide)
BANK_BYTES = 4
BANKS = 64  # of the LDS of gfx950 (CDNA 4 ISA guide)
PATH_BYTES = 128  # that the LDS moves in a clock


@dataclass(eq=False)
class Footprint:
    """What one instruction touched at its first execution, and who reached memory with it.

    Args:
        buffer: Name of the global buffer; empty for the LDS.
        lane_bytes: Bytes of an active lane.
        waves: Ids of the waves that executed it together.
        lanes: Active lanes of each of these.
        units: Distinct cache lines of the wave with most active lanes, or the clocks that the LDS needs for it.
        reached: Ids of the waves of each execution in which some lane reached memory.
    """

    buffer: str
    lane_bytes: int
    waves: Array
    lanes: Array
    units: int
    reached: list[Array] = field(default_factory=list)

    def bytes_of(self, wave: int) -> float:
        """Bytes that ``wave`` moves each time; the mean of the others where it was not among them."""
        mine = self.lanes[self.waves == wave]
        return self.lane_bytes * float(mine[0] if len(mine) else self.lanes.mean())


@dataclass(eq=False)
class Recording:
    """Written by the machine and by the memory instructions while they execute.

    Args:
        blocks: (first instruction, one past the last, ids of the waves) in order of execution.
        footprints: By the statement that was executed.
    """

    instructions: Sequence[Any] = ()  # of decode.op.Instruction, a floor above
    blocks: list[tuple[int, int, Array]] = field(default_factory=list)
    footprints: dict[object, Footprint] = field(default_factory=dict)

    def effort(self) -> Array:
        """Instructions of each wave, and bytes that it moved in the first executions it had a part in: [2, waves]."""
        found = np.zeros((2, 1 + max(int(waves.max()) for _, _, waves in self.blocks)))
        for first, end, waves in self.blocks:
            found[0, waves] += end - first
        for footprint in self.footprints.values():
            found[1, footprint.waves] += footprint.lane_bytes * footprint.lanes
        return found

    def stream(self, wave: int) -> tuple[Block, ...]:
        """The blocks that ``wave`` executed, in order."""
        inside = _membership(wave, (waves for _, _, waves in self.blocks))
        return tuple((first, end) for first, end, waves in self.blocks if inside[id(waves)])

    def times_reached(self, statement: object, wave: int) -> int:
        """In how many executions of ``statement`` by ``wave`` (and its companions) some lane reached memory."""
        found = self.footprints.get(statement)
        if found is None:
            return 0
        inside = _membership(wave, found.reached)
        return sum(inside[id(waves)] for waves in found.reached)

    def note_global(
        self, statement: object, buffer: str, waves: Array, address: Array, active: Array | None, size: int
    ) -> None:
        """Remember a global access of ``size`` bytes at ``address`` [waves, 64] where ``active`` (None: everywhere)."""
        found = self.footprints.get(statement)
        if found is None:
            lanes = np.full(len(waves), address.shape[1]) if active is None else active.sum(axis=1)
            first = int(lanes.argmax())
            own = address[first] if active is None else address[first][active[first]]
            lines = len({*(own // LINE_BYTES).tolist(), *((own + size - 1) // LINE_BYTES).tolist()})
            found = self.footprints[statement] = Footprint(buffer, size, waves, lanes, lines)
        found.reached.append(waves)

    def note_local(self, statement: object, waves: Array, offsets: Array, active: Array, size: int) -> None:
        """Remember an LDS access of ``size`` bytes at ``offsets`` [waves, 64] where ``active``."""
        where = np.broadcast_to(active, offsets.shape)
        lanes = where.sum(axis=1)
        first = int(lanes.argmax())
        clocks = bank_clocks(offsets[first], where[first], size)
        self.footprints[statement] = Footprint("", size, waves, lanes, clocks)


def _membership(wave: int, groups: Iterable[Array]) -> dict[int, bool]:
    """Whether ``wave`` is in each of ``groups``, by the id of the array: few arrays come many times."""
    return {key: bool((waves == wave).any()) for key, waves in {id(waves): waves for waves in groups}.items()}


def bank_clocks(offsets: Array, active: Array, size: int) -> int:
    """Clocks that the LDS needs for one wave: a bank serves one dword a clock, lanes of one dword share it.

    Args:
        offsets: Byte offsets of the lanes, int64 [64].
        active: Lanes that access, bool [64].
        size: Bytes of a lane.
    """
    dwords = -(-size // BANK_BYTES)
    together = max(1, PATH_BYTES // (BANK_BYTES * dwords))  # lanes of one clock
    words = offsets[:, None] // BANK_BYTES + np.arange(dwords)
    clock = np.arange(len(offsets)) // together
    distinct = np.unique(((clock[:, None] << 32) | words)[active])
    used = np.bincount((distinct >> 32) * BANKS + distinct % BANKS, minlength=(int(clock[-1]) + 1) * BANKS)
    return int(used.reshape(-1, BANKS).max(axis=1).sum())
