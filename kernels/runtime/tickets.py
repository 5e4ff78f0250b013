"""Counters that workgroups of one launch agree by, zero between launches: who owns them, and when they are cleared.

A launch takes tickets from them and leaves zeros. So launches that follow one another may share them, and such that may
run at once must not: every stream has counters of its own, for all plans. A replayed graph runs on the stream that it
was captured for (:mod:`kernels.runtime.graphs`) and shares the counters of that stream. A graph that the caller
captures may be replayed on any stream: each of its calls has counters of its own, for good, from a reserve that is
filled before, as clearing some would be one node of the graph more; it is that where the reserve is used up.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import torch
from triton.runtime import driver

Place = tuple[int, int]  # GPU, handle of the stream
RESERVE_BYTES: Final = 1 << 20  # filled up at once: a few thousand captured calls
MOST_RESERVE_BYTES: Final = 32 << 20  # of a GPU, ever: a caller may capture again and again
ALIGNMENT_BYTES: Final = 256  # whole cache lines


@dataclass(frozen=True)
class GpuStreams:
    """Tells which calls follow one another, by torch's streams."""

    def current(self, index: int) -> int:
        """Handle of the current stream of GPU ``index``, as Triton asks for it."""
        handle: int = driver.active.get_current_stream(index)
        return handle

    def capturing(self) -> bool:
        """Whether the caller captures a graph on it."""
        return torch.cuda.is_current_stream_capturing()

    def zeros(self, like: torch.Tensor, size: int) -> torch.Tensor:
        """``size`` cleared bytes on the device of ``like``, to be kept, ready for every stream.

        They are allocated in a thread of its own: while torch warms up for a graph of a compiled model, what the
        calling thread allocates goes to a pool in which nothing may outlive the step (torch._inductor.cudagraph_trees).
        """
        stream = torch.cuda.current_stream(like.device)

        def make() -> torch.Tensor:
            with torch.cuda.stream(stream):
                memory = like.new_zeros(size, dtype=torch.uint8)
            stream.synchronize()
            return memory

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(make).result()


@dataclass(eq=False)
class _Reserve:
    """Cleared bytes of one GPU for calls to be captured.

    Args:
        made: Bytes so far, used ones included.
    """

    memory: torch.Tensor
    made: int
    used: int = 0

    @property
    def is_low(self) -> bool:
        """Whether more may be made, and should be."""
        return self.used > RESERVE_BYTES // 2 and self.made < MOST_RESERVE_BYTES

    def take(self, size: int) -> torch.Tensor | None:
        """Some that nobody had; None where there are not enough."""
        first, self.used = self.used, self.used + -(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        return self.memory[first : self.used] if self.used <= self.memory.numel() else None


@dataclass(eq=False)
class Tickets:
    """The counters of one dispatcher, made when they are first needed. Safe to share between threads.

    It must outlive the graphs that callers capture.
    """

    streams: GpuStreams = field(default_factory=GpuStreams)
    _held: dict[Place, torch.Tensor] = field(default_factory=dict)
    _doubtful: set[Place] = field(default_factory=set)
    _reserves: dict[int, _Reserve] = field(default_factory=dict)
    _kept: list[torch.Tensor] = field(default_factory=list)  # of reserves: graphs know their addresses
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def counters(self, size: int, like: torch.Tensor) -> torch.Tensor | None:
        """At least ``size`` zero bytes on the device of ``like`` for a launch on the current stream; None for no bytes.

        Hold on to them until the launch is enqueued.
        """
        if not size:
            return None
        index = like.get_device()
        if index < 0:  # nothing orders the calls of several threads there
            return _cleared(like, size)
        if self.streams.capturing():
            return self._reserved(index, size, like)
        place = (index, self.streams.current(index))
        held = self._held.get(place)
        if held is None or held.numel() < size or place in self._doubtful or self._reserves[index].is_low:
            held = self._settle(place, size, like)
        return held

    def doubt(self, like: torch.Tensor) -> None:
        """A launch on the current stream failed: clear its counters before the next one, in the order of the stream."""
        index = like.get_device()
        if index >= 0 and not self.streams.capturing():
            self._doubtful.add((index, self.streams.current(index)))

    def _reserved(self, index: int, size: int, like: torch.Tensor) -> torch.Tensor:
        with self._lock:
            reserve = self._reserves.get(index)
            taken = None if reserve is None else reserve.take(size)
        return _cleared(like, size) if taken is None else taken

    def _settle(self, place: Place, size: int, like: torch.Tensor) -> torch.Tensor:
        """The stream's counters, and a reserve of its GPU."""
        with self._lock:
            self._fill(place[0], like)
            held = self._held.get(place)  # another thread may have been faster
            if held is None or held.numel() < size:
                held = self._held[place] = self.streams.zeros(like, size)
            elif place in self._doubtful:
                held.zero_()
            self._doubtful.discard(place)  # last: a thread that finds it missing may launch at once
            return held

    def _fill(self, index: int, like: torch.Tensor) -> None:
        reserve = self._reserves.get(index)
        if reserve is None or reserve.is_low:
            made = RESERVE_BYTES + (0 if reserve is None else reserve.made)
            self._kept.append(self.streams.zeros(like, RESERVE_BYTES))
            self._reserves[index] = _Reserve(self._kept[-1], made)


def _cleared(like: torch.Tensor, size: int) -> torch.Tensor:
    return like.new_zeros(size, dtype=torch.uint8)
