"""Replay of captured launches, for shapes whose time is the launching: opt-in, bounded, freed with the weight.

A captured product belongs to one weight, whose memory its kernels read in place, and to one stream, on which the
input is copied in, the graph replayed and the result copied out: the caller's work before and after is ordered by
that stream alone, and two streams never share the buffers.

While a product is captured, CUDA refuses other threads that synchronise the whole device, and torch those that draw
random numbers on the GPU. ``Dispatcher.prepare(..., graph=True)`` captures ahead of time.
"""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch

from kernels.weights import PackedWeight

LOGGER = logging.getLogger(__name__)
MAX_GRAPHS = 1024  # of one dispatcher: three batch sizes of a model with 300 layers; the least recently used goes first
MAX_ROWS = 64  # above, the kernels take longer than their launches and the two copies cost more than they save


class CaptureError(Exception):
    """The launches could not be captured; a plain launch is still possible."""


class GraphBackend(Protocol):
    """What captures and replays: the GPU's runtime, or a stand-in for tests."""

    def available(self, device: torch.device) -> bool:
        """Whether replay is possible on ``device`` now; not while the caller captures a graph of its own."""

    def stream(self, device: torch.device) -> int:
        """Handle of the caller's current stream."""

    def capture(self, launch: Callable[[], None], device: torch.device) -> Callable[[], None]:
        """Capture what ``launch`` launches, without running it; the result replays it on the current stream.

        Raises:
            CaptureError: The runtime refused.
        """


@dataclass(frozen=True)
class CudaGraphs:
    """CUDA and HIP graphs through torch.

    Torch hands out its 32 streams of a priority in turn, so a new stream for each capture would soon be one that
    another thread works on. Captures therefore keep one stream a device, of the priority that callers rarely use.
    """

    _streams: dict[torch.device, torch.cuda.Stream] = field(default_factory=dict)

    def available(self, device: torch.device) -> bool:
        """Whether ``device`` is a GPU and the caller is not capturing a graph of its own."""
        return device.type == "cuda" and not torch.cuda.is_current_stream_capturing()

    def stream(self, device: torch.device) -> int:
        """Handle of the caller's current stream."""
        return torch.cuda.current_stream(device).cuda_stream

    def capture(self, launch: Callable[[], None], device: torch.device) -> Callable[[], None]:
        """Capture on a stream of its own; other threads may go on launching and allocating meanwhile.

        Raises:
            CaptureError: The runtime refused.
        """
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(self._streams[device]):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    launch()
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            raise CaptureError(str(error)) from error
        replay: Callable[[], None] = graph.replay
        return replay


@dataclass(frozen=True, eq=False)
class Static:
    """Buffers with the addresses that graphs were captured with, shared by the graphs of one shape and stream.

    Args:
        a: [M, K] bfloat16.
        out: [M, N] bfloat16.
        workspace: Bytes, may be empty.
        lock: Held from copying the input in to copying the result out: threads may share a stream.
    """

    a: torch.Tensor
    out: torch.Tensor
    workspace: torch.Tensor
    lock: threading.Lock = field(default_factory=threading.Lock)


class Recorder(Protocol):
    """Knows the launches of a product."""

    def allocate(self, M: int, weight: PackedWeight) -> Static:
        """Buffers for M rows, taken on the current stream."""

    def launch(self, static: Static, weight: PackedWeight) -> None:
        """Launch the product of ``static.a`` and ``weight`` into ``static.out``."""


@dataclass(eq=False)
class _Captured:
    """A graph of one weight, M and stream; ``static`` is None where the capture failed: it is not tried again."""

    addresses: tuple[int, int]  # of the weight's tensors when captured
    static: Static | None
    replay: Callable[[], None] | None
    used: int = 0

    def run(self, a: torch.Tensor, out: torch.Tensor) -> bool:
        if self.static is None or self.replay is None:
            return False
        with self.static.lock:
            self.static.a.copy_(a)
            self.replay()
            out.copy_(self.static.out)
        return True


Key = tuple[int, int]  # M and the stream's handle


@dataclass(frozen=True, eq=False)
class GraphCache:
    """Captured products by weight, M and stream; at most ``limit`` of them.

    Args:
        backend: What captures.
        limit: Graphs kept.
    """

    backend: GraphBackend = field(default_factory=CudaGraphs)
    limit: int = MAX_GRAPHS
    _by_weight: weakref.WeakKeyDictionary[PackedWeight, dict[Key, _Captured]] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    _statics: weakref.WeakValueDictionary[tuple[int, ...], Static] = field(default_factory=weakref.WeakValueDictionary)
    _clock: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __len__(self) -> int:
        """Graphs held now."""
        with self._lock:
            return sum(len(graphs) for graphs in self._by_weight.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of the buffers that the graphs hold; graphs of one shape and stream share theirs."""
        with self._lock:
            statics = list(self._statics.values())
        return sum(t.numel() * t.element_size() for static in statics for t in (static.a, static.out, static.workspace))

    def run(self, recorder: Recorder, weight: PackedWeight, a: torch.Tensor, out: torch.Tensor) -> bool:
        """Compute ``out`` by replay, capturing first if need be.

        Args:
            recorder: What to capture.
            weight: Whose memory the kernels read in place.
            a: [M, K], copied.
            out: [M, N], copied to.

        Returns:
            False where replay is no option and nothing was done: more than ``MAX_ROWS`` rows, no GPU, the caller
            captures a graph of its own, or the capture failed, now or before.
        """
        if a.shape[0] > MAX_ROWS or not self.backend.available(a.device):
            return False
        key = (a.shape[0], self.backend.stream(a.device))
        addresses = (weight.data.data_ptr(), weight.scale.data_ptr())
        captured = self._by_weight.get(weight, {}).get(key)
        if captured is None or captured.addresses != addresses:
            captured = self._capture(recorder, weight, key, addresses)
        captured.used = next(self._clock)
        return captured.run(a, out)

    def _capture(self, recorder: Recorder, weight: PackedWeight, key: Key, addresses: tuple[int, int]) -> _Captured:
        with self._lock:
            graphs = self._by_weight.setdefault(weight, {})
            captured = graphs.get(key)
            if captured is None or captured.addresses != addresses:  # no other thread was faster
                captured = graphs[key] = self._captured(recorder, weight, key, addresses)
                captured.used = next(self._clock)
                self._evict()
            return captured

    def _captured(self, recorder: Recorder, weight: PackedWeight, key: Key, addresses: tuple[int, int]) -> _Captured:
        static = self._static(recorder, weight, key)
        with static.lock:
            recorder.launch(static, weight)  # plainly first: the runtime may load code at a first launch only
        borrowed = weakref.ref(weight)

        def launch() -> None:  # a graph must not keep its weight alive
            alive = borrowed()
            assert alive is not None
            recorder.launch(static, alive)

        try:
            return _Captured(addresses, static, self.backend.capture(launch, weight.device))
        except CaptureError as error:
            shape = f"{key[0]}x{weight.N}x{weight.K}"
            LOGGER.warning("%s is not replayed as a graph (%s); plain launches serve", shape, error)
            return _Captured(addresses, None, None)

    def _static(self, recorder: Recorder, weight: PackedWeight, key: Key) -> Static:
        place = (weight.N, weight.K, weight.device.index or 0, *key)
        static = self._statics.get(place)
        if static is None:
            static = self._statics[place] = recorder.allocate(key[0], weight)
        return static

    def _evict(self) -> None:
        while len(self) > self.limit:
            graphs, key = min(
                ((graphs, key) for graphs in list(self._by_weight.values()) for key in graphs),
                key=lambda item: item[0][item[1]].used,
            )
            del graphs[key]
