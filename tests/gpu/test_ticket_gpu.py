"""``fused_splitk_ticket`` on a GPU: many calls at once, graphs, a launch that fails; bits as of two launches."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import pytest
import torch

from kernels.device import local_device
from kernels.dispatch import _default_dispatcher, default_dispatcher
from kernels.families import FAMILIES
from kernels.launches.program import KernelCall, PointerSpec, Runner
from kernels.linear import MXFP4Linear
from kernels.mxfp4.reference import compare, mxfp4_gemm_reference
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from kernels.runtime.dispatcher import Dispatcher
from kernels.runtime.runner import MakeRunner, make_runner
from kernels.runtime.tickets import GpuStreams, Tickets
from kernels.tables.file import write_table
from kernels.tables.rows import Made, TableRow, TunedTable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use"),
]
CALLS, THREADS = 1000, 4
ROWS = (1, 2, 5, 16, 33, 64, 130)
LAYERS = {(64, 448): 2, (576, 512): 4, (2112, 1536): 3, (2112, 7168): 14}  # split_k by (N, K)
MADE = Made(date(2026, 11, 30), "3.6.0", "2.11.0", "0" * 12, "by hand", "none")


def randn(*shape: int) -> torch.Tensor:
    """Drawn on the CPU: torch's generator of the GPU refuses to serve one thread while another captures."""
    return torch.randn(shape).to("cuda", torch.bfloat16)


def rows(family: str) -> tuple[TableRow, ...]:
    device = local_device()
    assert device is not None
    fp4 = {} if device.has_scaled_fp4 else {"quantizer": "software", "a_operand": "bf16"}
    return tuple(
        TableRow(16, N, K, family, FAMILIES[family].config({"BLOCK_K": 128, "split_k": split_k, **fp4}), "measured",
                 True, MADE, time_us=1.0, serves_to=1000)
        for (N, K), split_k in LAYERS.items()
    )  # fmt: skip


def dispatcher(
    family: str = "fused_splitk_ticket", tickets: Tickets | None = None, make: MakeRunner | None = None
) -> Dispatcher:
    device = local_device()
    assert device is not None
    chosen = Dispatcher(device, TunedTable(device, rows(family)), make=make, tickets=tickets or Tickets())
    assert chosen.choose(rows(family)[0].shape).family == family
    return chosen


@dataclass
class Recording:
    """Torch's streams, with what was allocated for them."""

    streams: GpuStreams = field(default_factory=GpuStreams)
    made: list[torch.Tensor] = field(default_factory=list)

    def current(self, index: int) -> int:
        return self.streams.current(index)

    def capturing(self) -> bool:
        return self.streams.capturing()

    def zeros(self, like: torch.Tensor, size: int) -> torch.Tensor:
        self.made.append(self.streams.zeros(like, size))
        return self.made[-1]


@dataclass
class Case:
    a: torch.Tensor
    weight: PackedWeight
    expected: torch.Tensor


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Products with the bits of two launches, which are right."""
    plain, found = dispatcher("fused_splitk_workspace"), []
    for N, K in LAYERS:
        weight = PackedWeight.from_dense(randn(N, K))
        for M in ROWS:
            a = randn(M, K)
            expected = plain.gemm(a, weight)
            assert compare(expected, mxfp4_gemm_reference(a, weight)).mismatches == 0
            found.append(Case(a, weight, expected))
    return found


def test_a_thousand_ticket_calls_from_four_threads_give_the_bits_of_two_launches(cases: list[Case]) -> None:
    recording = Recording()
    chosen = dispatcher(tickets=Tickets(recording))
    for one in cases:
        chosen.gemm(one.a, one.weight)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(THREADS)]
    failures: list[str] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        with torch.cuda.stream(streams[seed]):
            results = []
            for _ in range(CALLS // THREADS):
                one = rng.choice(cases)
                results.append((one, chosen.gemm(one.a, one.weight, graph=rng.random() < 0.3)))
            streams[seed].synchronize()
            failures.extend(str(one.a.shape) for one, out in results if not torch.equal(out, one.expected))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert failures == []
    assert all(not memory.any() for memory in recording.made)  # every ticket is back at zero


def test_ticket_graphs_that_share_a_capture_stream_are_replayed_at_once(cases: list[Case]) -> None:
    chosen = dispatcher()
    big = [one for one in cases if one.weight.K == 7168][-2:]
    outs, graphs = [], []
    for one in big:
        chosen.gemm(one.a, one.weight)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outs.append(chosen.gemm(one.a, one.weight))
        graphs.append(graph)
    streams = [torch.cuda.Stream() for _ in big]
    for _ in range(200):
        for stream, graph in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    assert [torch.equal(out, one.expected) for out, one in zip(outs, big, strict=True)] == [True, True]


def test_tickets_that_a_killed_launch_left_are_cleared_before_the_next_one(cases: list[Case]) -> None:
    recording, fail = Recording(), threading.Event()

    def make(call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
        run: Callable[..., object] = make_runner(call, pointers)

        def sometimes(*arguments: int) -> None:
            run(*arguments)
            if fail.is_set():
                for memory in recording.made:
                    memory.fill_(1)  # as if some workgroups had drawn tickets, and no last one
                raise KeyboardInterrupt

        return sometimes

    one = cases[-1]
    chosen = dispatcher(tickets=Tickets(recording), make=make)
    assert torch.equal(chosen.gemm(one.a, one.weight), one.expected)
    fail.set()
    with pytest.raises(KeyboardInterrupt):
        chosen.gemm(one.a, one.weight)
    fail.clear()
    for _ in range(3):
        assert torch.equal(chosen.gemm(one.a, one.weight), one.expected)


@pytest.fixture
def served_by_tickets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``mxfp4_gemm`` and layers read a table of ticket rows."""
    found = rows("fused_splitk_ticket")
    device = local_device()
    assert device is not None
    write_table(tmp_path / "tickets.yaml", TunedTable(device, found))
    monkeypatch.setenv("MXFP4_TABLES", str(tmp_path / "tickets.yaml"))
    _default_dispatcher.cache_clear()
    yield
    _default_dispatcher.cache_clear()


@pytest.mark.usefixtures("served_by_tickets")
def test_a_compiled_models_graphs_may_hold_tickets() -> None:
    """Inductor's graphs warm up, record and replay; what outlives a step may not come from their pool."""
    layer = MXFP4Linear.from_linear(torch.nn.Linear(512, 576, bias=False, device="cuda"))
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, options={"triton.cudagraphs": True})
    with torch.no_grad():
        for _ in range(6):
            x = randn(16, 512)
            assert torch.equal(compiled(x).clone(), layer(x))
    chosen = default_dispatcher(torch.cuda.current_device())
    assert chosen.choose(GemmShape(16, 576, 512)).family == "fused_splitk_ticket"
