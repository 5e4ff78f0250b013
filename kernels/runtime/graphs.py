"""Replay of captured launches, for products of several kernels whose time is the launching: opt-in, bounded.

A captured product reads and writes the caller's own tensors, at the addresses of the call that it was captured for,
and is replayed for calls with exactly these addresses: nothing is copied, and the caller's stream alone orders it with
the work before and after. Addresses recur wherever the same calls follow one another, as in the steps of a decoding
loop, whose tensors torch's allocator puts in the same places, and wherever the caller keeps its buffers. A call with
addresses that were not seen lately is launched plainly. The rejected alternative, buffers with fixed addresses and
copies in and out, makes three launches where the product itself has one to three.

While a product is captured, CUDA refuses other threads that synchronise the whole device, and torch those that draw
random numbers on the GPU. Two calls on the buffers to come capture ahead of time.
"""

from __future__ import annotations

import itertools
import logging
import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from triton.runtime import driver

from kernels.mxfp4.weights import PackedWeight
from kernels.runtime.operands import Operands
from kernels.runtime.plan import Plan, address_of

LOGGER = logging.getLogger(__name__)
MAX_GRAPHS = 1024  # of one dispatcher: three batch sizes of a model with 300 layers; the least recently used goes first
MAX_ROWS = 64  # above, the kernels take longer than their launches
RECENT = 8  # calls of a weight among which a second one with the same addresses is looked for
Pointers = tuple[int, int, int, int]  # addresses of a, data, scale and out


class CaptureError(Exception):
    """The launches could not be captured; a plain launch is still possible."""


@dataclass(frozen=True)
class CudaGraphs:
    """CUDA and HIP graphs through torch.

    Torch hands out its 32 streams of a priority in turn, so a new stream for each capture would soon be one that
    another thread works on. Captures therefore keep one stream a device, of the priority that callers rarely use.
    """

    _streams: dict[int, torch.cuda.Stream] = field(default_factory=dict)

    def available(self, index: int) -> bool:
        """Whether there is a GPU (index -1: none) and the caller is not capturing a graph of its own."""
        return index >= 0 and not torch.cuda.is_current_stream_capturing()

    def stream(self, index: int) -> int:
        """Handle of the caller's current stream, as Triton asks for it: ten times cheaper than a Stream object."""
        handle: int = driver.active.get_current_stream(index)
        return handle

    @property
    def doubtful(self) -> bool:
        """Whether a graph may run something else than was captured, so that its first replay is compared.

        HIP's may: ROCm 7.2 corrupts them in some processes (https://github.com/ROCm/clr/issues/279).
        """
        return torch.version.hip is not None

    def capture(self, launch: Callable[[], None], index: int) -> Callable[[], None]:
        """Capture what ``launch`` launches, without running it; the result replays it on the current stream.

        That is done on a stream of its own; other threads may go on launching and allocating meanwhile.

        Raises:
            CaptureError: The runtime refused.
        """
        if index not in self._streams:
            self._streams[index] = torch.cuda.Stream(index, priority=-1)  # type: ignore[no-untyped-call]
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(self._streams[index]):
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    launch()
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            raise CaptureError(str(error)) from error
        replay: Callable[[], None] = graph.replay
        return replay


@dataclass(eq=False)
class _Captured:
    """A graph, with the memory that it needs."""

    replay: Callable[[], None]
    workspace: torch.Tensor | None
    tickets: torch.Tensor | None
    used: int = 0


def _compare(replay: Callable[[], None], launch: Callable[[], None], out: torch.Tensor) -> None:
    """Compare what a replay writes into ``out`` with what a plain launch writes.

    Sums in another order are granted 1/64 of the largest value: it is stale addresses that this looks for.

    Raises:
        CaptureError: They differ.
    """
    launch()
    expected = out.clone()
    out.fill_(torch.nan)
    replay()
    if not torch.allclose(out, expected, rtol=0.0, atol=float(expected.abs().max()) / 64):
        raise CaptureError("a replay differs from a plain launch")


Key = tuple[int, ...]  # M, row stride of A, the stream's handle, the four addresses


@dataclass(eq=False)
class _OfWeight:
    graphs: dict[Key, _Captured] = field(default_factory=dict)
    recent: deque[Key] = field(default_factory=lambda: deque(maxlen=RECENT))
    refused: set[int] = field(default_factory=set)  # values of M whose capture failed: it is not tried again


@dataclass(eq=False)
class GraphCache:
    """Captured products by weight, stream and addresses; at most ``limit`` of them, freed with the weight."""

    backend: CudaGraphs = field(default_factory=CudaGraphs)
    limit: int = MAX_GRAPHS
    _by_weight: weakref.WeakKeyDictionary[PackedWeight, _OfWeight] = field(default_factory=weakref.WeakKeyDictionary)
    _workspaces: weakref.WeakValueDictionary[tuple[int, int, int], torch.Tensor] = field(
        default_factory=weakref.WeakValueDictionary
    )
    _clock: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __len__(self) -> int:
        """Graphs held now."""
        with self._lock:
            return sum(len(mine.graphs) for mine in self._by_weight.values())

    @property
    def held_bytes(self) -> int:
        """Bytes of the workspaces that the graphs hold; those of one stream and size share theirs."""
        with self._lock:
            return sum(workspace.numel() for workspace in list(self._workspaces.values()))

    def run(
        self, plan: Plan, weight: PackedWeight, seen: Operands, pointers: Pointers, index: int,
        tickets: torch.Tensor | None = None,
    ) -> bool:  # fmt: skip
        """Run ``plan`` by replay; the second of two near calls with the same addresses captures first.

        Args:
            weight: Whose memory the kernels read in place.
            index: The GPU, -1 if there is none.
            tickets: Counters of the caller's stream, on which alone the graph is replayed.

        Returns:
            False where nothing was done: more than ``MAX_ROWS`` rows, no GPU, the caller captures a graph of its own,
            addresses that are new, or a capture that failed, now or before.
        """
        if seen.M > MAX_ROWS or not self.backend.available(index):
            return False
        key = (seen.M, seen.stride_am, self.backend.stream(index), *pointers)
        mine = self._by_weight.get(weight)
        captured = None if mine is None else mine.graphs.get(key)
        if captured is None:
            captured = self._seen_again(plan, weight, key, seen.out, tickets)
        if captured is None:
            return False
        captured.used = next(self._clock)
        captured.replay()
        return True

    def _seen_again(
        self, plan: Plan, weight: PackedWeight, key: Key, out: torch.Tensor, tickets: torch.Tensor | None
    ) -> _Captured | None:
        """The graph for ``key``, captured now if a recent call had it; None where it is new or was refused."""
        with self._lock:
            mine = self._by_weight.setdefault(weight, _OfWeight())
            captured = mine.graphs.get(key)  # another thread may have been faster
            if captured is not None or key[0] in mine.refused:
                return captured
            if key not in mine.recent:
                mine.recent.append(key)
                return None
            try:
                captured = mine.graphs[key] = self._capture(plan, weight, key, out, tickets)
            except CaptureError as error:
                mine.refused.add(key[0])
                shape = f"{key[0]}x{weight.N}x{weight.K}"
                LOGGER.warning("%s is not replayed as a graph (%s); plain launches serve", shape, error)
                return None
            captured.used = next(self._clock)
            self._evict()
            return captured

    def _capture(
        self, plan: Plan, weight: PackedWeight, key: Key, out: torch.Tensor, tickets: torch.Tensor | None
    ) -> _Captured:
        index, (_, _, stream, a, data, scale, address) = weight.data.get_device(), key
        workspace = self._workspace(weight, index, stream, plan.workspace_bytes)
        addresses = (a, data, scale, address, address_of(workspace), address_of(tickets))
        replay = self.backend.capture(lambda: plan.run(addresses), index)
        if self.backend.doubtful:
            _compare(replay, lambda: plan.run(addresses), out)
        return _Captured(replay, workspace, tickets)

    def _workspace(self, weight: PackedWeight, index: int, stream: int, size: int) -> torch.Tensor | None:
        if not size:
            return None
        place = (index, stream, size)
        workspace = self._workspaces.get(place)
        if workspace is None:
            workspace = self._workspaces[place] = weight.data.new_empty(size)
        return workspace

    def _evict(self) -> None:
        while len(self) > self.limit:
            graphs, key = min(
                ((mine.graphs, key) for mine in list(self._by_weight.values()) for key in mine.graphs),
                key=lambda item: item[0][item[1]].used,
            )
            del graphs[key]
