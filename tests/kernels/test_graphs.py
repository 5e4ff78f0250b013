"""The cache of captured products, with a stand-in for the GPU: replaying runs the captured launches again."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch

from kernels.graphs import MAX_ROWS, CaptureError, CudaGraphs, GraphCache, Static
from kernels.weights import PackedWeight

CPU = torch.device("cpu")


@dataclass
class Backend:
    handle: int = 0
    usable: bool = True
    refuses: bool = False
    captures: int = 0

    def available(self, device: torch.device) -> bool:
        return self.usable

    def stream(self, device: torch.device) -> int:
        return self.handle

    def capture(self, launch: Callable[[], None], device: torch.device) -> Callable[[], None]:
        self.captures += 1
        if self.refuses:
            raise CaptureError("not permitted")
        return launch


@dataclass
class FirstByte:
    """In place of a product: every element of C is the first element of A's row plus the weight's first byte."""

    allocated: list[int] = field(default_factory=list)

    def allocate(self, M: int, weight: PackedWeight) -> Static:
        self.allocated.append(M)
        a, out = (torch.empty(M, width, dtype=torch.bfloat16) for width in (weight.K, weight.N))
        return Static(a, out, torch.empty(0, dtype=torch.uint8))

    def launch(self, static: Static, weight: PackedWeight) -> None:
        static.out.copy_((static.a[:, :1] + weight.data[0, 0]).expand_as(static.out))


def weight(first_byte: int) -> PackedWeight:
    data = torch.full((64, 32), first_byte, dtype=torch.uint8)
    return PackedWeight(data, torch.zeros(256, 8, dtype=torch.uint8), N=64, K=64)


def run(cache: GraphCache, recorder: FirstByte, weight: PackedWeight, value: float, M: int = 2) -> float | None:
    """The element that all of C has, None where nothing was replayed."""
    a, out = torch.full((M, 64), value, dtype=torch.bfloat16), torch.full((M, 64), -1.0, dtype=torch.bfloat16)
    if not cache.run(recorder, weight, a, out):
        assert bool((out == -1).all())
        return None
    assert bool((out == out[0, 0]).all())
    return float(out[0, 0])


def test_each_call_sees_its_own_input_and_the_weight_as_it_is_now() -> None:
    backend, recorder = Backend(), FirstByte()
    cache, first, second = GraphCache(backend), weight(10), weight(20)
    assert [run(cache, recorder, w, v) for w, v in ((first, 1), (second, 1), (first, 2), (second, 3))] == [
        11,
        21,
        12,
        23,
    ]
    first.data.fill_(30)
    assert run(cache, recorder, first, 1) == 31
    assert backend.captures == 2


def test_a_weight_whose_memory_moved_is_captured_again() -> None:
    backend, recorder = Backend(), FirstByte()
    cache, moved = GraphCache(backend), weight(10)
    run(cache, recorder, moved, 1)
    moved.data.set_(torch.full((64, 32), 40, dtype=torch.uint8))  # as assigning to .data of a parameter does
    assert run(cache, recorder, moved, 1) == 41
    assert (backend.captures, len(cache)) == (2, 1)


def test_graphs_of_one_shape_share_buffers_and_graphs_of_two_streams_do_not() -> None:
    backend, recorder = Backend(), FirstByte()
    cache, first, second = GraphCache(backend), weight(10), weight(20)
    run(cache, recorder, first, 1)
    run(cache, recorder, second, 1)
    assert recorder.allocated == [2]
    backend.handle = 1
    assert run(cache, recorder, first, 5) == 15
    assert recorder.allocated == [2, 2]
    assert len(cache) == 3


def test_the_graphs_of_a_weight_die_with_it_and_do_not_keep_it_alive() -> None:
    recorder = FirstByte()
    cache, first, second = GraphCache(Backend()), weight(10), weight(20)
    for w in (first, second):
        run(cache, recorder, w, 1, M=1)
        run(cache, recorder, w, 1, M=2)
    watched, tensor = weakref.ref(first), weakref.ref(first.data)
    del first, w
    gc.collect()
    assert watched() is None
    assert tensor() is None
    assert len(cache) == 2


def test_the_least_recently_used_graph_goes_first() -> None:
    backend, recorder = Backend(), FirstByte()
    cache, weights = GraphCache(backend, limit=2), [weight(10), weight(20), weight(30)]
    for index in (0, 1, 0, 2):  # 1 is the oldest when 2 comes
        run(cache, recorder, weights[index], 1)
    assert (len(cache), backend.captures) == (2, 3)
    run(cache, recorder, weights[0], 1)
    assert backend.captures == 3
    assert run(cache, recorder, weights[1], 1) == 21
    assert (len(cache), backend.captures) == (2, 4)


def test_a_capture_that_fails_is_logged_once_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    backend, recorder = Backend(refuses=True), FirstByte()
    cache, first = GraphCache(backend), weight(10)
    with caplog.at_level(logging.WARNING):
        assert [run(cache, recorder, first, 1) for _ in range(3)] == [None] * 3
    assert backend.captures == 1
    assert [record.getMessage() for record in caplog.records] == [
        "2x64x64 is not replayed as a graph (not permitted); plain launches serve"
    ]


def test_nothing_is_replayed_during_a_capture_of_the_callers_or_for_many_rows() -> None:
    backend, recorder = Backend(usable=False), FirstByte()
    cache, first = GraphCache(backend), weight(10)
    assert run(cache, recorder, first, 1) is None
    backend.usable = True
    assert run(cache, recorder, first, 1, M=MAX_ROWS + 1) is None
    assert backend.captures == 0
    assert run(cache, recorder, first, 1, M=MAX_ROWS) == 11


def test_threads_on_one_stream_do_not_mix_their_inputs() -> None:
    recorder, wrong = FirstByte(), []
    cache, weights = GraphCache(Backend(), limit=3), [weight(byte) for byte in range(0, 60, 10)]

    def work(seed: int) -> None:
        for turn in range(60):
            index, value = (seed + turn) % len(weights), float(turn % 7)
            if run(cache, recorder, weights[index], value) != index * 10 + value:
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(cache) <= 3


def test_the_gpus_graphs_are_not_available_on_the_cpu() -> None:
    assert not CudaGraphs().available(CPU)
