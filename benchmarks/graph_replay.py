"""When replaying a captured product beats launching it: products of one, two and three kernels at few rows.

Usage: python benchmarks/graph_replay.py [--output FOLDER] [--repeats 15]

For each product and M the ways take turns; medians over the repeats, microseconds a call:

host    until a call returns, with an empty queue; 100 calls
wall    100 calls one after the other and a synchronisation, divided: what an eager model waits for
device  events around 50 calls that queue up behind a sleeping kernel: what the GPU spends, gaps included

plain, plain out    the launches, into a new tensor and into the caller's
graph, graph out    replay in place, with addresses that recur because each result is freed, or because they are kept
graph, new place    replay is asked for, but the addresses never recur: what looking for them in vain costs
copies              the rejected alternative: copy in, replay on buffers with fixed addresses, copy out
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
import triton

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dispatch_overhead import host_and_wall_us

from kernels.device import DeviceKey, local_device
from kernels.families.defaults import default_choice
from kernels.families.fused import SplitKWorkspaceConfig, TileConfig
from kernels.families.staged_triton import StagedConfig
from kernels.mxfp4.reference import compare, mxfp4_gemm_reference
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from kernels.runtime.dispatcher import Dispatcher
from kernels.runtime.graphs import RECENT
from kernels.tables import Choice, Lookup
from search.terminal import one_line_errors

Call = Callable[[], object]
Row = dict[str, object]
ROWS = (1, 2, 4, 8, 16)
LAYERS = ((2880, 512), (2112, 7168))  # N, K of the competition
WAYS = ("plain", "plain out", "graph", "graph out", "graph, new place", "copies")
QUEUED_CALLS = 50
SLEEP_CYCLES = 8_000_000  # 4 ms at 2 GHz: longer than the host needs for QUEUED_CALLS calls


@dataclass(frozen=True, eq=False)
class Fixed(Dispatcher):
    """Serves every shape with one choice, whatever the tables say."""

    served: Choice | None = None

    def choose(self, shape: GemmShape) -> Choice:
        """The one choice."""
        assert self.served is not None
        return self.served


def products(device: DeviceKey) -> Iterator[Choice]:
    """Products of one, two and three kernels, all deterministic."""
    _, fused = default_choice(GemmShape(1, 64, 64), device)
    assert isinstance(fused, TileConfig)
    found = Lookup(None, "exact", "fixed by the benchmark")
    yield Choice("fused", fused, found)
    split = SplitKWorkspaceConfig(split_k=4, BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, quantizer=fused.quantizer,
                                  a_operand=fused.a_operand)  # fmt: skip
    yield Choice("fused_splitk_workspace", split, found)
    staged = StagedConfig(split_k=4, BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, quantizer=fused.quantizer)
    yield Choice("staged_triton", staged, found)


def _copying(dispatcher: Dispatcher, a: torch.Tensor, weight: PackedWeight) -> Call:
    """Replay on buffers of its own."""
    static, graph = a.clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        product = dispatcher.gemm(static, weight)

    def call() -> torch.Tensor:
        static.copy_(a)
        graph.replay()
        return product.clone()

    return call


def _ways(dispatcher: Dispatcher, a: torch.Tensor, weight: PackedWeight) -> dict[str, Call]:
    out = dispatcher.gemm(a, weight)
    places = itertools.cycle([(a.clone(), out.clone()) for _ in range(RECENT + 2)])

    def elsewhere() -> torch.Tensor:
        place, result = next(places)
        return dispatcher.gemm(place, weight, out=result, graph=True)

    calls: tuple[Call, ...] = (
        lambda: dispatcher.gemm(a, weight, graph=False),
        lambda: dispatcher.gemm(a, weight, out=out, graph=False),
        lambda: dispatcher.gemm(a, weight, graph=True),
        lambda: dispatcher.gemm(a, weight, out=out, graph=True),
        elsewhere,
        _copying(dispatcher, a, weight),
    )
    return dict(zip(WAYS, calls, strict=True))


def _device(call: Call) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda._sleep(SLEEP_CYCLES)  # type: ignore[no-untyped-call]
    begin.record()
    for _ in range(QUEUED_CALLS):
        call()
    slept = not begin.query()  # type: ignore[no-untyped-call]  # the queue was never empty
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / QUEUED_CALLS if slept else float("nan")


def measure(dispatcher: Dispatcher, shape: GemmShape, repeats: int) -> list[Row]:
    """One row a way."""
    a = torch.randn(shape.M, shape.K, device="cuda").to(torch.bfloat16)
    weight = PackedWeight.from_dense(torch.randn(shape.N, shape.K, device="cuda"))
    reference = mxfp4_gemm_reference(a, weight)
    ways = _ways(dispatcher, a, weight)
    planned = dispatcher.planned(shape.M, weight)
    wrong: dict[str, int] = {}
    for name, call in ways.items():
        for _ in range(2 * RECENT + 8):
            result = call()
        assert isinstance(result, torch.Tensor)
        wrong[name] = compare(result, reference).mismatches
        del result
    samples: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, call in ways.items():
            samples[name].append((*host_and_wall_us(call), _device(call)))
    rows: list[Row] = []
    for name, times in samples.items():
        host, wall, device = (statistics.median(column) for column in zip(*times, strict=True))
        row: Row = {"family": planned.choice.family, "kernels": len(planned.plan.launches), "shape": str(shape)}
        rows.append(row | {"way": name, "host_us": host, "wall_us": wall, "device_us": device, "wrong": wrong[name]})
    return rows


def table(rows: list[Row], column: str) -> str:
    """Markdown: a line for each product and shape, a column for each way."""
    lines = [f"## {column}", "", "| kernels | shape | " + " | ".join(WAYS) + " |", "|" + "---|" * (len(WAYS) + 2)]
    for start in range(0, len(rows), len(WAYS)):
        group = rows[start : start + len(WAYS)]
        cells = " | ".join(f"{row[column]:.1f}" for row in group)
        lines.append(f"| {group[0]['kernels']} | {group[0]['shape']} | {cells} |")
    return "\n".join(lines) + "\n"


@torch.no_grad()
def main() -> None:
    """Run everything and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="folder for graph_replay.md and .json")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    device = local_device()
    if device is None:
        parser.error("needs a GPU that torch can use")
    rows: list[Row] = []
    for choice in products(device):
        dispatcher = Fixed(device, served=choice)
        for N, K in LAYERS:
            for M in ROWS:
                rows += measure(dispatcher, GemmShape(M, N, K), options.repeats)
    where = f"{torch.cuda.get_device_name()} ({device}), torch {torch.__version__}, Triton {triton.__version__}"
    wrong = sum(int(str(row["wrong"])) for row in rows)
    text = f"# Graph replay on {where}\n\nMicroseconds a call. Wrong elements: {wrong}\n\n"
    text += "\n".join(table(rows, column) for column in ("host_us", "wall_us", "device_us"))
    print(text)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "graph_replay.md").write_text(text)
        (options.output / "graph_replay.json").write_text(json.dumps({"where": where, "rows": rows}, indent=1))


if __name__ == "__main__":
    with one_line_errors():
        main()
