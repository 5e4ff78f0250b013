"""Which register bits were never written, and which loads have not been waited for.

``suspect`` names every register that an ordinary instruction must not touch unseen. The machine tests one set
intersection per instruction and looks closer only where it is not empty, so tracking is nearly free.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from search.gfx950.simulator.state.arrays import Array

# A wave is held back where its counter would overflow, so older operations are complete, and LLVM counts on it. Width
# of the fields of S_WAITCNT, MI300 ISA guide: 6 bits and 4 bits.
COUNTER_MAX: Mapping[str, int] = MappingProxyType({"vm": 63, "lgkm": 15})
ALL_BITS = np.full((1, 1), 0xFFFFFFFF, np.uint32)


@dataclass(slots=True, eq=False)
class Entry:
    """What one operation still has to do for some waves.

    Args:
        registers: Destination registers.
        waves: Ids of the waves that issued it.
        complete: Called with the ids of waves whose covering wait has passed; None: nothing to do.
    """

    registers: tuple[int, ...]
    waves: Array
    complete: Callable[[Array], None] | None = None


@dataclass(slots=True, eq=False)
class Pending:
    """One memory operation that has been issued and not yet been waited for.

    Args:
        entries: One per group of waves that joined since it was issued.
        ordered: False for scalar loads, which return out of order.
        into_lds: Whether it is a load into LDS.
    """

    entries: tuple[Entry, ...]
    ordered: bool = True
    into_lds: bool = False


@dataclass(eq=False)
class Tracking:
    """Undefined bits and outstanding operations of one group of waves.

    Args:
        undefined: Register to a uint32 mask of undefined bits, broadcastable to the register's row.
        queues: Outstanding operations by counter, oldest first.
        waiting: Register to the number of outstanding operations that write it.
        suspect: Registers in ``undefined`` or ``waiting``.
    """

    undefined: dict[int, Array] = field(default_factory=dict)
    queues: dict[str, deque[Pending]] = field(default_factory=lambda: {"vm": deque(), "lgkm": deque()})
    waiting: dict[int, int] = field(default_factory=dict)
    suspect: set[int] = field(default_factory=set)

    def mark_undefined(self, registers: Iterable[int]) -> None:
        """Make every bit of ``registers`` undefined."""
        for register in registers:
            self.undefined[register] = ALL_BITS
            self.suspect.add(register)

    def set_undefined(self, register: int, bits: Array | None) -> None:
        """Replace the undefined bits of ``register``; None or all zero: defined."""
        if bits is not None and bits.any():
            self.undefined[register] = bits
            self.suspect.add(register)
        elif register in self.undefined:
            del self.undefined[register]
            if register not in self.waiting:
                self.suspect.discard(register)

    def issue(self, counter: str, operation: Pending) -> None:
        """Put an operation in its queue and mark its destinations."""
        self.queues[counter].append(operation)
        waiting = self.waiting
        for entry in operation.entries:
            for register in entry.registers:
                waiting[register] = waiting.get(register, 0) + 1
            self.suspect.update(entry.registers)
        if len(self.queues[counter]) > COUNTER_MAX[counter]:
            self.wait(counter, COUNTER_MAX[counter])

    def wait(self, counter: str, outstanding: int) -> None:
        """Complete the oldest operations until at most ``outstanding`` are left.

        Scalar loads return out of order: while one is in the queue, only a wait for 0 covers anything.
        """
        queue = self.queues[counter]
        if outstanding and not all(operation.ordered for operation in queue):
            return
        while len(queue) > outstanding:
            for entry in queue.popleft().entries:
                for register in entry.registers:
                    self.release(register)
                if entry.complete is not None:
                    entry.complete(entry.waves)

    def release(self, register: int) -> None:
        """One operation less writes ``register``."""
        left = self.waiting.get(register, 0) - 1
        if left > 0:
            self.waiting[register] = left
            return
        self.waiting.pop(register, None)
        if register not in self.undefined:
            self.suspect.discard(register)

    def forget(self, register: int) -> None:
        """Stop waiting for ``register`` (after its finding was reported once)."""
        self.waiting.pop(register, None)
        if register not in self.undefined:
            self.suspect.discard(register)

    @staticmethod
    def assemble(parts: Sequence[tuple[Tracking, Array, Array]]) -> Tracking:
        """Tracking of the waves at positions ``keep`` of each (tracking, keep, wave ids), in order.

        Wait counters count from the newest operation, so queues of unequal length are aligned at their end.
        """
        result = Tracking()
        for register in {r for part, _, _ in parts for r in part.undefined}:
            rows = [_rows(part.undefined.get(register), keep, len(waves)) for part, keep, waves in parts]
            width = max(row.shape[1] for row in rows)
            bits = np.concatenate([np.broadcast_to(row, (row.shape[0], width)) for row in rows])
            result.set_undefined(register, bits)
        for counter in result.queues:
            longest = max(len(part.queues[counter]) for part, _, _ in parts)
            for age in range(longest, 0, -1):
                result.issue(counter, _joined(counter, age, parts))
        return result


def _rows(bits: Array | None, keep: Array, count: int) -> Array:
    if bits is None:
        return np.zeros((len(keep), 1), np.uint32)
    return np.broadcast_to(bits, (count, bits.shape[1]))[keep]


def _joined(counter: str, age: int, parts: Sequence[tuple[Tracking, Array, Array]]) -> Pending:
    entries: list[Entry] = []
    ordered, into_lds = True, False
    for part, keep, waves in parts:
        queue = part.queues[counter]
        if len(queue) < age:
            continue
        ordered = ordered and queue[-age].ordered
        into_lds = into_lds or queue[-age].into_lds
        for entry in queue[-age].entries:
            left = np.intersect1d(entry.waves, waves[keep])
            if len(left):
                entries.append(Entry(entry.registers, left, entry.complete))
    return Pending(tuple(entries), ordered, into_lds)
