"""The events of each wave of an executed workgroup, with loops of many trips cut short."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from search.gfx950.model.constants import CONSTANTS, LDS_BYTES_PER_CLK, PATH_BYTES_PER_CLK, Constants
from search.gfx950.model.issue import Kind, Stretch, issue_block, timing_of
from search.gfx950.simulator.state.recording import Block, Footprint, Recording

TRIPS = 6  # of a loop that are simulated; each of the rest takes as long as the last of these
MIN_PATH_CLKS = 4.0  # of a wave on the vector memory path or the LDS: 16 lanes a clock
QUARTER_BYTES_PER_CLK = 64.0  # of the LDS, in whose clocks the simulator counts
SCRATCH = "scratch"
MEMORY = (Kind.LOAD, Kind.STORE, Kind.LDS)
Issue = Callable[[Block], tuple[Stretch, ...]]


class Event(NamedTuple):
    """A stretch of arithmetic and the operation that ends it, with what the operation moves.

    Args:
        clks: From its first instruction to the operation, see :class:`~search.gfx950.model.issue.Stretch`.
        valu: Clocks of the vector unit.
        mfma: Clocks of the matrix core.
        tail: Of these, those of the last MFMA.
        path: Clocks on the LDS or on the vector memory path; of a wait, vector memory operations that may be left.
        size: Bytes; of a wait, LDS and scalar memory operations that may be left. -1: any number.
        buffer: What a memory operation touches.
    """

    kind: Kind
    clks: float
    valu: float
    mfma: float
    tail: float
    path: float = 0.0
    size: float = 0.0
    buffer: str = ""


@dataclass(frozen=True, eq=False)
class WaveStream:
    """What one wave does.

    Args:
        marks: Events at which the trips of the loop that was cut begin, and the one behind it.
        cut: Trips that were left out of ``events``.
        moved: Bytes of all trips, by kind of the operation and buffer.
    """

    events: tuple[Event, ...]
    marks: frozenset[int]
    cut: int
    moved: Mapping[tuple[Kind, str], float]

    @cached_property
    def trip(self) -> Mapping[str, float]:
        """Clocks that a trip of the loop that was cut holds each unit; 0 of all where none was."""
        *_, start, end = (0, 0, *sorted(self.marks))
        events = self.events[start:end]
        return {
            "mfma": sum(event.mfma for event in events),
            "valu": sum(event.valu for event in events),
            "lds": sum(event.path for event in events if event.kind is Kind.LDS),
            "vmem": sum(event.path for event in events if event.kind in (Kind.LOAD, Kind.STORE)),
        }


@dataclass(frozen=True, eq=False)
class Executed:
    """A launch that the simulator executed."""

    recording: Recording
    waves: int


def wave_streams(executed: Executed, constants: Constants = CONSTANTS) -> tuple[WaveStream, ...]:
    """The waves of the executed workgroup that has most to do."""
    issued: dict[Block, tuple[Stretch, ...]] = {}

    def issue(block: Block) -> tuple[Stretch, ...]:
        if block not in issued:
            issued[block] = issue_block(executed.recording.instructions, block, constants)
        return issued[block]

    return tuple(_Wave(executed, wave, stream, issue).stream() for wave, stream in _longest(executed))


def _longest(executed: Executed) -> list[tuple[int, tuple[Block, ...]]]:
    """(wave, what it executed) of the workgroup with most instructions, of several alike the one with most bytes."""
    effort = (
        executed.recording.effort().reshape(2, -1, executed.waves).sum(axis=2)
    )  # [instructions or bytes, workgroup]
    start = executed.waves * int(np.lexsort((effort[1], effort[0]))[-1])
    return [(wave, executed.recording.stream(wave)) for wave in range(start, start + executed.waves)]


class _Wave:
    """One executed wave on its way to events."""

    def __init__(self, executed: Executed, wave: int, blocks: Sequence[Block], issue: Issue) -> None:
        self.executed, self.wave, self.issue = executed, wave, issue
        self.short = shorten(blocks)
        self.left_out = Counter(blocks) - Counter(self.short.blocks)
        self.moved: dict[tuple[Kind, str], float] = defaultdict(float)
        self.operations: dict[int, _Operation] = {}

    def stream(self) -> WaveStream:
        """Its events."""
        events: list[Event] = []
        marks = []
        for position, block in enumerate(self.short.blocks):
            if position in self.short.marks:
                marks.append(len(events))
            events += self._events(block)
        return WaveStream(tuple(events), frozenset(marks), self.short.cut, self.moved)

    def _events(self, block: Block) -> Iterator[Event]:
        for stretch in self.issue(block):
            if stretch.kind is Kind.NOTHING:
                yield Event(*stretch[:5])
                continue
            operation = self.operations.get(stretch.at)
            if operation is None:
                operation = self.operations[stretch.at] = self._operation(stretch, self.left_out[block])
            yield operation.next()

    def _operation(self, stretch: Stretch, left_out: int) -> _Operation:
        """What the instruction of ``stretch`` does each time."""
        instruction = self.executed.recording.instructions[stretch.at]
        event = Event(*stretch[:5])
        if stretch.kind is Kind.WAIT:
            waits = dict(instruction.waits)
            return _Operation(event._replace(path=waits.get("vm", -1), size=waits.get("lgkm", -1)))
        if stretch.kind not in MEMORY:
            return _Operation(event)
        timing = timing_of(instruction)
        if timing.scratch:
            return _Operation(event._replace(path=timing.path, buffer=SCRATCH))
        statement = instruction.statement
        footprint = self.executed.recording.footprints.get(statement)
        if footprint is None:
            return _Operation(event._replace(path=MIN_PATH_CLKS))
        if stretch.kind is Kind.LDS:
            units = max(MIN_PATH_CLKS, footprint.units)
            return _Operation(event._replace(path=units * QUARTER_BYTES_PER_CLK / LDS_BYTES_PER_CLK))
        return self._global(event, footprint, self.executed.recording.times_reached(statement, self.wave), left_out)

    def _global(self, event: Event, footprint: Footprint, times: int, left_out: int) -> _Operation:
        size = footprint.bytes_of(self.wave)
        self.moved[event.kind, footprint.buffer] += size * times
        path = max(MIN_PATH_CLKS, size / PATH_BYTES_PER_CLK, footprint.units)
        outside = event._replace(path=MIN_PATH_CLKS)
        return _Operation(event._replace(path=path, size=size, buffer=footprint.buffer), outside, times - left_out)


@dataclass
class _Operation:
    """An operation that reaches memory ``times`` times, and then is ``outside``: loads ahead beyond the end of K."""

    inside: Event
    outside: Event | None = None
    times: int = 0

    def next(self) -> Event:
        """Its next execution."""
        self.times -= 1
        return self.inside if self.outside is None or self.times >= 0 else self.outside


@dataclass(frozen=True)
class ShortStream:
    """Blocks of a wave with its longest loop cut.

    Args:
        marks: Positions in these at which trips of the loop begin, and the one behind it.
        cut: Trips that were left out.
    """

    blocks: tuple[Block, ...]
    marks: frozenset[int] = frozenset()
    cut: int = 0


def shorten(blocks: Sequence[Block]) -> ShortStream:
    """``blocks`` with the loop that saves most cut to :data:`TRIPS` trips."""
    start, period, trips = max(_loops(blocks), key=lambda loop: (loop[2] - TRIPS) * loop[1], default=(0, 0, 0))
    if trips <= TRIPS:
        return ShortStream(tuple(blocks))
    marks = frozenset(range(start, start + TRIPS * period + 1, period))
    kept = (*blocks[: start + TRIPS * period], *blocks[start + trips * period :])
    return ShortStream(kept, marks, trips - TRIPS)


def _loops(blocks: Sequence[Block]) -> Iterator[tuple[int, int, int]]:
    """(first block, blocks of a trip, trips) of each loop, told by a block that comes again."""
    seen: dict[Block, int] = {}
    position = 0
    while position < len(blocks):
        start = seen.get(blocks[position])
        seen[blocks[position]] = position
        if start is not None:
            period = position - start
            trips = _trips(blocks, start, period)
            if trips > 1:
                yield start, period, trips
                position = start + trips * period - 1
                seen.clear()
        position += 1


def _trips(blocks: Sequence[Block], start: int, period: int) -> int:
    """How often the ``period`` blocks from ``start`` on come one after the other."""
    unit = blocks[start : start + period]
    trips = 1
    while blocks[start + trips * period : start + (trips + 1) * period] == unit:
        trips += 1
    return trips
