"""Counters that workgroups of one launch agree by, zero between launches: who owns them, and when they are cleared.

A launch takes tickets from them and leaves zeros. So launches that follow one another may share them, and such that may
run at once must not: every stream has counters of its own, for all plans. A replayed graph runs on the stream that it
was captured for (:mod:`kernels.runtime.graphs`) and shares the counters of that stream. Where nothing is known of the
order, as of a graph that the caller captures, which may be replayed on any stream, a call has counters of its own,
cleared as a part of it.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

import torch
from triton.runtime import driver

Place = tuple[int, int]  # GPU, handle of the stream


class Streams(Protocol):
    """Tells which calls follow one another: the GPU's runtime, or a stand-in for tests."""

    def current(self, index: int) -> int | None:
        """Handle of the current stream of GPU ``index`` (-1: none); None where calls now may run in any order."""

    def zeros(self, like: torch.Tensor, size: int) -> torch.Tensor:
        """``size`` cleared bytes on the device of ``like``, to be kept and used on the current stream."""


@dataclass(frozen=True)
class GpuStreams:
    """Those of torch."""

    def current(self, index: int) -> int | None:
        """The handle; None without a GPU and while the caller captures a graph."""
        if index < 0 or torch.cuda.is_current_stream_capturing():
            return None
        handle: int = driver.active.get_current_stream(index)
        return handle

    def zeros(self, like: torch.Tensor, size: int) -> torch.Tensor:
        """Allocated in a thread of its own.

        While torch warms up for a graph of a compiled model, what the calling thread allocates goes to a pool in which
        nothing may outlive the step (torch._inductor.cudagraph_trees).
        """
        stream = torch.cuda.current_stream(like.device)

        def make() -> torch.Tensor:
            with torch.cuda.stream(stream):
                return like.new_zeros(size)

        with ThreadPoolExecutor(1) as thread:
            return thread.submit(make).result()


@dataclass(eq=False)
class Tickets:
    """The counters of one dispatcher, made when they are first needed. Safe to share between threads."""

    streams: Streams = field(default_factory=GpuStreams)
    _held: dict[Place, torch.Tensor] = field(default_factory=dict)
    _doubtful: set[Place] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def counters(self, size: int, like: torch.Tensor) -> torch.Tensor | None:
        """At least ``size`` zero bytes on the device of ``like`` for a launch on the current stream; None for no bytes.

        Hold on to them until the launch is enqueued.
        """
        if not size:
            return None
        index = like.get_device()
        stream = self.streams.current(index)
        if stream is None:
            return like.new_zeros(size)
        place = (index, stream)
        held = self._held.get(place)
        if held is None or held.numel() < size or place in self._doubtful:
            held = self._cleared(place, size, like)
        return held

    def doubt(self, like: torch.Tensor) -> None:
        """A launch on the current stream failed: clear its counters before the next one, in the order of the stream."""
        index = like.get_device()
        stream = self.streams.current(index)
        if stream is not None:
            self._doubtful.add((index, stream))

    def _cleared(self, place: Place, size: int, like: torch.Tensor) -> torch.Tensor:
        with self._lock:
            held = self._held.get(place)  # another thread may have been faster
            if held is None or held.numel() < size:
                held = self._held[place] = self.streams.zeros(like, size)
            elif place in self._doubtful:
                held.zero_()
            self._doubtful.discard(place)  # last: a thread that finds it missing may launch at once
            return held
