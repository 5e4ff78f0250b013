"""Counters of launches: one set a stream, own ones for what is captured, cleared after a launch that failed."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
import torch

from kernels.runtime import tickets as module
from kernels.runtime.tickets import Tickets


class OnGpu(torch.Tensor):
    """A tensor of the CPU that says that it is on GPU 0."""

    def get_device(self) -> int:
        return 0


@dataclass
class FakeStreams:
    """A current stream for each thread, by name of the thread."""

    graph: bool = False
    made: list[torch.Tensor] = field(default_factory=list)

    def current(self, index: int) -> int:
        return hash(threading.current_thread().name)

    def capturing(self) -> bool:
        return self.graph

    def zeros(self, like: torch.Tensor, size: int) -> torch.Tensor:
        self.made.append(torch.zeros(size, dtype=torch.uint8))
        return self.made[-1]


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.zeros(1, dtype=torch.uint8).as_subclass(OnGpu)


def test_calls_of_one_stream_share_counters_and_another_stream_has_others(weight: torch.Tensor) -> None:
    tickets = Tickets(FakeStreams())
    first, again = tickets.counters(256, weight), tickets.counters(128, weight)
    with ThreadPoolExecutor(1, "another stream") as other:
        elsewhere = other.submit(tickets.counters, 256, weight).result()
    assert first is not None and again is not None and elsewhere is not None
    assert first.data_ptr() == again.data_ptr() != elsewhere.data_ptr()
    assert not first.any() and not elsewhere.any()


def test_a_larger_launch_gets_larger_counters(weight: torch.Tensor) -> None:
    tickets = Tickets(FakeStreams())
    tickets.counters(256, weight)
    larger = tickets.counters(1024, weight)
    assert larger is not None and larger.numel() == 1024
    assert tickets.counters(1024, weight) is larger


def test_a_launch_without_tickets_asks_for_no_memory(weight: torch.Tensor) -> None:
    streams = FakeStreams()
    assert Tickets(streams).counters(0, weight) is None
    assert streams.made == []


def test_counters_are_cleared_once_after_a_launch_that_failed(weight: torch.Tensor) -> None:
    tickets = Tickets(FakeStreams())
    held = tickets.counters(256, weight)
    assert held is not None
    held[3] = 2
    tickets.doubt(weight)
    assert tickets.counters(256, weight) is held and not held.any()
    held[3] = 1  # a launch that runs now
    assert tickets.counters(256, weight) is held and held[3] == 1


def test_captured_calls_have_counters_of_their_own_from_what_was_cleared_before(weight: torch.Tensor) -> None:
    streams = FakeStreams()
    tickets = Tickets(streams)
    eager = tickets.counters(256, weight)
    made = len(streams.made)
    streams.graph = True
    captured = [tickets.counters(size, weight) for size in (4, 300, 4)]
    assert eager is not None and all(one is not None for one in captured)
    spans = sorted((one.data_ptr(), one.data_ptr() + one.numel()) for one in (eager, *captured) if one is not None)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert len(streams.made) == made  # nothing is allocated or cleared in the capture
    tickets.doubt(weight)  # a capture that failed launched nothing
    streams.graph = False
    assert tickets.counters(256, weight) is eager


def test_a_capture_that_finds_no_reserve_clears_counters_as_a_part_of_the_graph(weight: torch.Tensor) -> None:
    streams = FakeStreams(graph=True)
    first, second = (Tickets(streams).counters(8, weight) for _ in range(2))
    assert streams.made == []
    assert first is not None and second is not None
    assert first.numel() == second.numel() == 8 and first.data_ptr() != second.data_ptr()


def test_the_reserve_is_filled_up_outside_of_captures_and_not_without_end(
    weight: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESERVE_BYTES", 1024)
    monkeypatch.setattr(module, "MOST_RESERVE_BYTES", 4096)
    streams = FakeStreams()
    tickets = Tickets(streams)
    taken = []
    for _ in range(10):
        streams.graph = False
        tickets.counters(256, weight)
        streams.graph = True
        taken += [tickets.counters(256, weight) for _ in range(3)]
    assert [one.numel() for one in streams.made].count(1024) == 4
    addresses = [one.data_ptr() for one in taken if one is not None]
    assert len(set(addresses)) == len(addresses) == 30


def test_without_a_gpu_every_call_has_its_own() -> None:
    plain = torch.zeros(1, dtype=torch.uint8)
    tickets = Tickets(FakeStreams())
    first, second = tickets.counters(4, plain), tickets.counters(4, plain)
    tickets.doubt(plain)
    assert first is not None and second is not None and first.data_ptr() != second.data_ptr()
