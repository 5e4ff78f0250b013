"""The cache of captured products, with a stand-in for the GPU: replaying runs the captured launches again."""

from __future__ import annotations

import ctypes
import gc
import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

from kernels.mxfp4.weights import PackedWeight
from kernels.runtime.graphs import MAX_ROWS, RECENT, CaptureError, CudaGraphs, GraphCache
from kernels.runtime.operands import Operands
from kernels.runtime.plan import Plan, PreparedLaunch


@dataclass
class Backend:
    handle: int = 0
    usable: bool = True
    refuses: bool = False
    captures: int = 0
    replays: int = 0
    doubtful: bool = False
    corrupts: bool = False  # replays do nothing, as those that write to a stale address

    def available(self, index: int) -> bool:
        return self.usable

    def stream(self, index: int) -> int:
        return self.handle

    def capture(self, launch: Callable[[], None], index: int) -> Callable[[], None]:
        self.captures += 1
        if self.refuses:
            raise CaptureError("not permitted")

        def replay() -> None:
            self.replays += 1
            if not self.corrupts:
                launch()

        return replay


def first_byte(a: int, data: int, scale: int, out: int, workspace: int) -> None:
    """In place of a product: the first element of C is the first of A plus the weight's first byte.

    It goes through the workspace if there is one.
    """
    value = ctypes.c_float.from_address(a).value + ctypes.c_uint8.from_address(data).value
    if workspace:
        ctypes.c_float.from_address(workspace).value = value
        value = ctypes.c_float.from_address(workspace).value
    ctypes.c_float.from_address(out).value = value


def plan(workspace_bytes: int = 0) -> Plan:
    return Plan((PreparedLaunch(first_byte, [0] * 5, tuple((i, i, 0) for i in range(5))),), workspace_bytes)


PLAN = plan()


@dataclass(frozen=True)
class Buffers:
    """A caller's tensors."""

    a: torch.Tensor
    out: torch.Tensor

    @classmethod
    def new(cls, M: int = 2) -> Buffers:
        return cls(torch.zeros(M, 64), torch.zeros(M, 64))

    def run(self, cache: GraphCache, weight: PackedWeight, value: float, plan: Plan = PLAN) -> float | None:
        """The first element of C, None where nothing was replayed."""
        self.a.fill_(value)
        self.out.fill_(-1.0)
        pointers = (self.a.data_ptr(), weight.data.data_ptr(), weight.scale.data_ptr(), self.out.data_ptr())
        seen = Operands(self.a, self.out, self.a.shape[0], self.a.stride(0), self.out)
        if not cache.run(plan, weight, seen, pointers, -1):
            assert bool((self.out == -1).all())
            return None
        return float(self.out[0, 0])


def weight(first_byte: int) -> PackedWeight:
    data = torch.full((64, 32), first_byte, dtype=torch.uint8)
    return PackedWeight(data, torch.zeros(256, 8, dtype=torch.uint8), N=64, K=64)


def test_a_call_is_replayed_from_the_second_time_on_that_its_addresses_occur() -> None:
    backend, buffers = Backend(), Buffers.new()
    cache, first = GraphCache(backend), weight(10)
    assert [buffers.run(cache, first, value) for value in (1, 2, 3)] == [None, 12, 13]
    assert (backend.captures, backend.replays) == (1, 2)


def test_each_call_sees_its_own_input_and_the_weight_as_it_is_now() -> None:
    backend, buffers, other = Backend(), Buffers.new(), Buffers.new()
    cache, first, second = GraphCache(backend), weight(10), weight(20)
    for w in (first, second):
        for tensors in (buffers, other):
            tensors.run(cache, w, 0)
    calls = ((first, 1, buffers), (second, 1, other), (first, 2, other), (second, 3, buffers))
    assert [tensors.run(cache, w, value) for w, value, tensors in calls] == [11, 21, 12, 23]
    first.data.fill_(30)
    assert buffers.run(cache, first, 1) == 31
    assert backend.captures == 4


def test_addresses_that_do_not_recur_are_never_captured() -> None:
    backend, kept = Backend(), [Buffers.new() for _ in range(RECENT + 1)]
    cache, first = GraphCache(backend), weight(10)
    assert [buffers.run(cache, first, 1) for _ in range(3) for buffers in kept] == [None] * 3 * (RECENT + 1)
    assert backend.captures == 0


def test_another_stride_is_another_graph() -> None:
    backend = Backend()
    cache, first = GraphCache(backend), weight(10)
    memory, out = torch.zeros(2, 128), torch.zeros(2, 64)
    for a in (memory[:, :64], memory.view(4, 64)[:2]) * 2:
        Buffers(a, out).run(cache, first, 1)
    assert (backend.captures, len(cache)) == (2, 2)


def test_a_weight_whose_memory_moved_is_captured_again() -> None:
    backend, buffers = Backend(), Buffers.new()
    cache, moved = GraphCache(backend), weight(10)
    assert [buffers.run(cache, moved, 1) for _ in range(2)] == [None, 11]
    moved.data.set_(torch.full((64, 32), 40, dtype=torch.uint8))  # as assigning to .data of a parameter does
    assert [buffers.run(cache, moved, 1) for _ in range(2)] == [None, 41]


def test_graphs_of_one_stream_share_a_workspace_and_graphs_of_two_streams_do_not() -> None:
    backend, buffers, staged = Backend(), Buffers.new(), plan(workspace_bytes=64)
    cache, first, second = GraphCache(backend), weight(10), weight(20)
    for handle, held_bytes in ((0, 64), (1, 128)):
        backend.handle = handle
        for w, expected in ((first, 15), (second, 25)):
            assert [buffers.run(cache, w, 5, staged) for _ in range(2)] == [None, expected]
        assert cache.held_bytes == held_bytes
    del first, second, w
    gc.collect()
    assert (len(cache), cache.held_bytes) == (0, 0)


def test_the_graphs_of_a_weight_die_with_it_and_do_not_keep_it_or_the_callers_tensors_alive() -> None:
    cache, first, second = GraphCache(Backend()), weight(10), weight(20)
    few, many = Buffers.new(1), Buffers.new(2)
    for w in (first, second) * 2:
        few.run(cache, w, 1)
        many.run(cache, w, 1)
    assert len(cache) == 4
    watched = [weakref.ref(value) for value in (first, first.data, few.a, few.out)]
    del first, w, few
    gc.collect()
    assert [value() for value in watched] == [None] * 4
    assert len(cache) == 2


def test_the_least_recently_used_graph_goes_first() -> None:
    backend, buffers = Backend(), Buffers.new()
    cache, weights = GraphCache(backend, limit=2), [weight(10), weight(20), weight(30)]
    for index in (0, 1, 0, 1, 0, 2, 2):  # 1 is the oldest when 2 is captured
        buffers.run(cache, weights[index], 1)
    assert (len(cache), backend.captures) == (2, 3)
    assert buffers.run(cache, weights[0], 1) == 11
    assert backend.captures == 3
    assert buffers.run(cache, weights[1], 1) == 21  # its addresses are still remembered
    assert (len(cache), backend.captures) == (2, 4)


def test_a_capture_that_fails_is_logged_once_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    backend, buffers, other = Backend(refuses=True), Buffers.new(), Buffers.new()
    cache, first = GraphCache(backend), weight(10)
    with caplog.at_level(logging.WARNING):
        assert [tensors.run(cache, first, 1) for tensors in (buffers, other) * 3] == [None] * 6
    assert backend.captures == 1
    assert [record.getMessage() for record in caplog.records] == [
        "2x64x64 is not replayed as a graph (not permitted); plain launches serve"
    ]


def test_nothing_is_replayed_during_a_capture_of_the_callers_or_for_many_rows() -> None:
    backend = Backend()
    cache, first = GraphCache(backend), weight(10)
    most, more = Buffers.new(MAX_ROWS), Buffers.new(MAX_ROWS + 1)
    assert [most.run(cache, first, 1) for _ in range(2)] == [None, 11]
    assert [more.run(cache, first, 1) for _ in range(3)] == [None] * 3
    backend.usable = False
    assert most.run(cache, first, 1) is None


def test_threads_that_share_weights_replay_their_own_tensors() -> None:
    wrong: list[tuple[int, int]] = []
    backend = Backend()
    cache, weights = GraphCache(backend, limit=12), [weight(byte) for byte in range(0, 60, 10)]

    def work(seed: int) -> None:
        buffers = Buffers.new()
        for turn in range(200):
            index, value = (seed + turn // 4) % len(weights), float(turn % 7)
            if buffers.run(cache, weights[index], value) not in (None, index * 10 + value):
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert backend.replays > 100
    assert len(cache) <= 12


def test_the_gpus_graphs_are_not_available_on_the_cpu() -> None:
    assert not CudaGraphs().available(-1)


def every_element(a: int, data: int, scale: int, out: int, workspace: int) -> None:
    """In place of a product: every element of C is the first of A."""
    (ctypes.c_float * 128).from_address(out)[:] = [ctypes.c_float.from_address(a).value] * 128


FULL = Plan((PreparedLaunch(every_element, [0] * 5, tuple((i, i, 0) for i in range(5))),), 0)


@pytest.mark.parametrize("corrupts, served", [(False, [None, 2.0, 3.0]), (True, [None, None, None])])
def test_where_graphs_are_doubtful_one_that_differs_from_its_launches_never_serves(
    corrupts: bool, served: list[float | None], caplog: pytest.LogCaptureFixture
) -> None:
    backend, buffers, first = Backend(doubtful=True, corrupts=corrupts), Buffers.new(), weight(10)
    cache = GraphCache(backend)
    found = []
    for value in (1.0, 2.0, 3.0):
        seen = Operands(buffers.a.fill_(value), buffers.out, 2, 64, buffers.out)
        pointers = (buffers.a.data_ptr(), first.data.data_ptr(), first.scale.data_ptr(), buffers.out.data_ptr())
        found.append(float(buffers.out[1, 63]) if cache.run(FULL, first, seen, pointers, -1) else None)
    assert found == served
    assert backend.captures == 1
    assert ("a replay differs from a plain launch" in caplog.text) is corrupts


def test_the_graphs_of_hip_are_doubtful(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not CudaGraphs().doubtful
    monkeypatch.setattr(torch.version, "hip", "7.2.26015")
    assert CudaGraphs().doubtful
