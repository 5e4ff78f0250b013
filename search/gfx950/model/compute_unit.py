"""One compute unit that runs resident workgroups: every wave issues in order, units are shared, time is in clocks.

An event goes when the wave's own instructions allow it (see :mod:`search.gfx950.model.issue`), its unit is free and its
waits are over. Each SIMD has a vector unit and a matrix core; the LDS, the vector memory path and the bytes in flight
are the compute unit's. A stretch of arithmetic takes its SIMD's units as a whole, so the older wave goes first, as the
hardware's arbiter prefers it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from search.gfx950.model.constants import CONSTANTS, Constants
from search.gfx950.model.issue import Kind
from search.gfx950.model.stream import Event, WaveStream

SIMDS = 4
FOREVER = float("inf")
SETTLED = 3  # last trips of a loop whose mean is taken for the trips that were cut


@dataclass(frozen=True)
class Supply:
    """What memory gives to one compute unit.

    Args:
        latency: Clocks of a load from each buffer; of all others ``other_latency``.
        other_latency: Clocks.
        load_bytes_per_clk: Bytes that arrive.
        store_bytes_per_clk: Bytes that leave.
        mfma_stretch: Factor of the clocks of an MFMA: a device that draws its full power slows down.
    """

    latency: Mapping[str, float]
    other_latency: float
    load_bytes_per_clk: float
    store_bytes_per_clk: float
    mfma_stretch: float = 1.0


class Span(NamedTuple):
    """A wave or a unit that is busy, for pictures.

    Args:
        lane: ``mfma``, ``valu``, ``lds``, ``vmem``, ``wait memory``, ``wait lds``, ``wait barrier``.
        place: SIMD of a unit, or number of a wave.
    """

    lane: str
    place: int
    start: float
    end: float


@dataclass(frozen=True)
class UnitTime:
    """How long the workgroups took.

    Args:
        clks: Until the last one ended, with the trips that were cut from loops.
        first_clks: Until the first one ended, the same.
        busy: Clocks of each unit: the mean SIMD for ``mfma`` and ``valu``, and ``lds``, ``vmem``.
        waited: Clocks of the mean wave by cause: ``memory``, ``lds``, ``barrier``.
        spans: What the units and waves did, where this was asked for.
    """

    clks: float
    first_clks: float
    busy: Mapping[str, float]
    waited: Mapping[str, float]
    spans: tuple[Span, ...] = ()


@dataclass(eq=False, slots=True)
class _Wave:
    stream: WaveStream
    workgroup: int
    simd: int
    number: int
    position: int = 0
    memory: list[float] = field(default_factory=list)  # clocks at which its vector memory operations are done
    local: list[float] = field(default_factory=list)  # the same of LDS and scalar loads
    trips: list[float] = field(default_factory=list)  # clocks at which the trips of its cut loop began


class ComputeUnit:
    """Runs workgroups.

    Args:
        workgroup: Its waves; all workgroups are alike.
    """

    def __init__(
        self, workgroup: Sequence[WaveStream], supply: Supply, constants: Constants = CONSTANTS, *, watch: bool = False
    ) -> None:
        self.workgroup, self.supply, self.constants = workgroup, supply, constants
        self.spans: list[Span] | None = [] if watch else None
        self._ready: list[tuple[float, int, _Wave]] = []
        self._order = 0
        self._valu, self._mfma = [0.0] * SIMDS, [0.0] * SIMDS  # clocks at which units are free
        self._lds = self._path = self._arriving = self._leaving = 0.0
        self._in_flight: deque[tuple[float, float]] = deque()
        self._flying = 0.0
        self._meeting: dict[int, list[tuple[float, _Wave]]] = {}
        self._alive: dict[int, int] = {}
        self._ends: dict[int, float] = {}
        self._cut = 0.0
        self._busy = dict.fromkeys(("mfma", "valu", "lds", "vmem"), 0.0)
        self._waited = dict.fromkeys(("memory", "lds", "barrier"), 0.0)
        self._run = {
            Kind.LOAD: self._load, Kind.STORE: self._store, Kind.LDS: self._local, Kind.WAIT: self._wait,
            Kind.SCALAR_LOAD: self._scalar_load,
        }  # fmt: skip

    def run(self, count: int, resident: int) -> UnitTime:
        """Run ``count`` workgroups, ``resident`` at a time."""
        self._left = count
        gap = SIMDS * 8 * self.constants.dispatch_clks  # until the turn is at this compute unit of its XCD again
        for number in range(min(count, resident)):
            self._start(number * gap)
        while self._ready:
            now, _, wave = heapq.heappop(self._ready)
            self._advance(now, wave)
        simulated = max(self._ends.values())
        clks = simulated + -(-count // resident) * self._cut
        waves = count * len(self.workgroup)
        longer = clks / simulated if simulated else 1.0  # trips that were cut wait as the others do
        return UnitTime(
            clks=clks,
            first_clks=min(self._ends.values()) + self._cut,
            busy={name: clks / (SIMDS if name in ("mfma", "valu") else 1) for name, clks in self._busy.items()},
            waited={name: longer * clks / waves for name, clks in self._waited.items()},
            spans=tuple(self.spans or ()),
        )

    def _start(self, now: float) -> None:
        workgroup = len(self._alive)
        self._left -= 1
        self._alive[workgroup] = len(self.workgroup)
        self._meeting[workgroup] = []
        for offset, stream in enumerate(self.workgroup):
            number = workgroup * len(self.workgroup) + offset
            self._push(now, _Wave(stream, workgroup, number % SIMDS, number))

    def _push(self, now: float, wave: _Wave) -> None:
        self._order += 1
        heapq.heappush(self._ready, (now, self._order, wave))

    def _advance(self, now: float, wave: _Wave) -> None:
        """Run ``wave`` until another one is behind it, or it stops."""
        horizon = self._ready[0][0] if self._ready else FOREVER
        events, marks, run = wave.stream.events, wave.stream.marks, self._run
        while now <= horizon:
            if wave.position in marks:
                wave.trips.append(now)
            event = events[wave.position]
            wave.position += 1
            if event.clks:
                now = self._arithmetic(now, wave, event)
            if event.kind is Kind.BARRIER:
                return self._meet(now, wave)
            if event.kind is Kind.END:
                return self._end(now, wave)
            if event.kind:
                now = run[event.kind](now, wave, event)
        return self._push(now, wave)

    def _arithmetic(self, now: float, wave: _Wave, event: Event) -> float:
        done = now + event.clks
        if event.valu:
            free = max(self._valu[wave.simd], now) + event.valu
            self._valu[wave.simd] = free
            self._busy["valu"] += event.valu
            done = max(done, free - self.constants.issue_clks)
            self._see("valu", wave.simd, free - event.valu, free)
        if event.mfma:
            clks = event.mfma * self.supply.mfma_stretch
            free = max(self._mfma[wave.simd], now) + clks
            self._mfma[wave.simd] = free
            self._busy["mfma"] += clks
            done = max(done, free - event.tail * self.supply.mfma_stretch)
            self._see("mfma", wave.simd, free - clks, free)
        return done

    def _see(self, lane: str, place: int, start: float, end: float) -> None:
        if self.spans is not None and end > start:
            self.spans.append(Span(lane, place, start, end))

    def _load(self, now: float, wave: _Wave, event: Event) -> float:
        start = self._on_path(self._room(now, event.size), event)
        done = start + self.supply.latency.get(event.buffer, self.supply.other_latency)
        if event.size:
            done = self._arriving = max(done, self._arriving) + event.size / self.supply.load_bytes_per_clk
            self._in_flight.append((done, event.size))
            self._flying += event.size
        wave.memory.append(max(done, wave.memory[-1]) if wave.memory else done)
        return start + self.constants.issue_clks

    def _room(self, now: float, size: float) -> float:
        """When ``size`` more bytes may be in flight."""
        while self._flying + size > self.constants.in_flight_bytes and self._in_flight:
            done, landed = self._in_flight.popleft()
            self._flying -= landed
            now = max(now, done)
        return now

    def _on_path(self, now: float, event: Event) -> float:
        start = max(now, self._path)
        self._path = start + event.path
        self._busy["vmem"] += event.path
        self._see("vmem", 0, start, self._path)
        return start

    def _store(self, now: float, wave: _Wave, event: Event) -> float:
        queued = self._leaving - self.constants.in_flight_bytes / self.supply.store_bytes_per_clk
        start = self._on_path(max(now, queued), event)
        self._leaving = max(start, self._leaving) + event.size / self.supply.store_bytes_per_clk
        done = max(start + self.constants.store_latency_clks, self._leaving)
        wave.memory.append(max(done, wave.memory[-1]) if wave.memory else done)
        return start + self.constants.issue_clks

    def _local(self, now: float, wave: _Wave, event: Event) -> float:
        start = max(now, self._lds)
        self._lds = start + event.path
        self._busy["lds"] += event.path
        self._see("lds", 0, start, self._lds)
        done = self._lds + self.constants.lds_latency_clks
        wave.local.append(max(done, wave.local[-1]) if wave.local else done)
        return start + self.constants.issue_clks

    def _scalar_load(self, now: float, wave: _Wave, event: Event) -> float:
        done = now + self.constants.scalar_load_clks
        wave.local.append(max(done, wave.local[-1]) if wave.local else done)
        return now + self.constants.issue_clks

    def _wait(self, now: float, wave: _Wave, event: Event) -> float:
        now = self._waited_for(now, wave, wave.memory, int(event.path), "memory")
        now = self._waited_for(now, wave, wave.local, int(event.size), "lds")
        return now + self.constants.issue_clks

    def _waited_for(self, now: float, wave: _Wave, done: Sequence[float], left: int, cause: str) -> float:
        if left < 0 or len(done) <= left or done[-1 - left] <= now:
            return now
        self._waited[cause] += done[-1 - left] - now
        self._see(f"wait {cause}", wave.number, now, done[-1 - left])
        return done[-1 - left]

    def _meet(self, now: float, wave: _Wave) -> None:
        self._meeting[wave.workgroup].append((now, wave))
        self._release(wave.workgroup)

    def _release(self, workgroup: int) -> None:
        """Let the waves at a barrier go on if no other one is still to come."""
        waiting = self._meeting[workgroup]
        if not waiting or len(waiting) < self._alive[workgroup]:
            return
        self._meeting[workgroup] = []
        met = max(now for now, _ in waiting) + self.constants.barrier_clks
        for now, wave in waiting:
            self._waited["barrier"] += met - now
            self._see("wait barrier", wave.number, now, met)
            self._push(met, wave)

    def _end(self, now: float, wave: _Wave) -> None:
        done = max(now, wave.memory[-1]) if wave.memory else now
        self._ends[wave.workgroup] = max(done, self._ends.get(wave.workgroup, 0.0))
        if wave.stream.cut:
            for name, clks in wave.stream.trip.items():
                self._busy[name] += wave.stream.cut * clks * (self.supply.mfma_stretch if name == "mfma" else 1.0)
            trip = (wave.trips[-1] - wave.trips[-1 - SETTLED]) / SETTLED
            self._cut = max(self._cut, trip * wave.stream.cut)
        self._alive[wave.workgroup] -= 1
        self._release(wave.workgroup)
        if not self._alive[wave.workgroup] and self._left:
            self._start(now)
