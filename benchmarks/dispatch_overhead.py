"""What the dispatcher costs beside a raw launch, and a small model end to end. Needs a GPU.

Usage: python benchmarks/dispatch_overhead.py [--output FOLDER] [--repeats 31] [--skip-model]

Host time: a call's return, with an empty queue, no synchronisation inside; the median over repeats of 100 calls.
Device time: events around the replay of a graph that holds 50 calls, divided; the weights stay in cache, and the
ways to launch take turns. Wall time: 100 calls one after the other and a synchronisation, divided.
Prints tables and writes them, with the raw numbers as JSON, to FOLDER.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
import triton
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.device import local_device
from kernels.dispatch import load_dispatcher
from kernels.families import FAMILIES
from kernels.launches.program import Program
from kernels.linear import MXFP4Linear
from kernels.mxfp4.reference import compare, mxfp4_gemm_reference, to_bf16
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from kernels.runtime.dispatcher import Dispatcher
from kernels.runtime.plan import Inputs, build_plan
from kernels.runtime.runner import allocate, make_runner
from search.terminal import one_line_errors

Launch = Callable[[], object]
Row = dict[str, object]
LAYERS = ((2880, 512), (2112, 7168), (7168, 2048))  # N, K of competition shapes; the last is DeepSeek-R1's o_proj.tp8
ROWS = (1, 4, 16, 64, 256)
MODEL_ROWS = (1, 16, 64)
HIDDEN, INTERMEDIATE = 7168, 2048  # DeepSeek-R1: hidden_size, moe_intermediate_size (its shared expert)
HOST_CALLS, GRAPH_CALLS = 100, 50


@dataclass(frozen=True)
class Timed:
    """Medians over the repeats, in microseconds a call."""

    host_us: float
    wall_us: float
    device_us: float | None


def host_and_wall_us(call: Launch) -> tuple[float, float]:
    """Until the calls have returned, and until the GPU is done too, each a call of ``HOST_CALLS``."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(HOST_CALLS):
        call()
    returned = time.perf_counter()
    torch.cuda.synchronize()
    done = time.perf_counter()
    return (returned - start) / HOST_CALLS * 1e6, (done - start) / HOST_CALLS * 1e6


def _captured(call: Launch) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_CALLS):
            call()
    return graph


def _device_us(replay: Launch, calls: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3 / calls


def measure(ways: Mapping[str, Launch], repeats: int, *, device: bool = True) -> dict[str, Timed]:
    """Time each way; they take turns, so that a drift of clocks meets all."""
    for call in ways.values():
        for _ in range(10):
            call()
    graphs = {name: _captured(call) for name, call in ways.items()} if device else {}
    host: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    on_device: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, call in ways.items():
            host[name].append(host_and_wall_us(call))
            if device:
                on_device[name].append(_device_us(graphs[name].replay, GRAPH_CALLS))
    return {
        name: Timed(
            statistics.median(returned for returned, _ in host[name]),
            statistics.median(done for _, done in host[name]),
            statistics.median(on_device[name]) if device else None,
        )
        for name in ways
    }


def _raw(program: Program, tensors: Mapping[str, torch.Tensor]) -> Launch:
    """Each kernel as its users would write it: ``kernel[grid](a, b, ..., num_warps=4)``."""
    launches = [
        (
            call.kernel.function[call.grid],
            {
                **{name: tensors[value] if isinstance(value, str) else value for name, value in call.args.items()},
                **call.constexprs,
                **call.kernel.options(call),
            },
        )
        for call in program.calls
    ]

    def launch() -> None:
        for kernel, arguments in launches:
            kernel(**arguments)

    return launch


def overhead(dispatcher: Dispatcher, shape: GemmShape, repeats: int) -> Row:
    """A dispatched call against the same kernels launched without a dispatcher."""
    a = torch.randn(shape.M, shape.K, device="cuda").to(torch.bfloat16)
    weight = PackedWeight.from_dense(torch.randn(shape.N, shape.K, device="cuda"))
    choice = dispatcher.planned(shape.M, weight).choice  # what compiles here
    program = FAMILIES[choice.family].program(shape, choice.config)
    out = torch.empty(shape.M, shape.N, device="cuda", dtype=torch.bfloat16)
    tensors = {"a": a, "b": weight.data, "b_scale": weight.scale, "out": out}
    tensors |= {buffer.name: allocate(buffer, "cuda") for buffer in program.workspaces}
    plan = build_plan(choice.family, choice.config, Inputs(shape, shape.K), make_runner)
    workspace = torch.empty(plan.workspace_bytes, device="cuda", dtype=torch.uint8)
    a_ptr, b_ptr, scale_ptr, out_ptr, workspace_ptr = (
        tensor.data_ptr() for tensor in (a, weight.data, weight.scale, out, workspace)
    )
    timed = measure(
        {
            "raw": _raw(program, tensors),  # kernel[grid](...) for each kernel, buffers and arguments at hand
            "bare": lambda: plan.run((a_ptr, b_ptr, scale_ptr, out_ptr, workspace_ptr)),  # the least Triton offers
            "dispatched_out": lambda: dispatcher.gemm(a, weight, out=out),
            "dispatched": lambda: dispatcher.gemm(a, weight),
        },
        repeats,
    )
    wrong = compare(dispatcher.gemm(a, weight), mxfp4_gemm_reference(a, weight)).mismatches
    row: Row = {"shape": str(shape), "family": choice.family, "kernels": len(program.calls), "wrong": wrong}
    for name, value in timed.items():
        row[f"{name}_host_us"], row[f"{name}_device_us"] = value.host_us, value.device_us
    return row


class Mlp(nn.Module):
    """DeepSeek-R1's shared expert: gate and up in one layer, SwiGLU, down."""

    def __init__(self, linear: Callable[[nn.Linear], nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up = linear(nn.Linear(HIDDEN, 2 * INTERMEDIATE, bias=False, device="cuda", dtype=torch.bfloat16))
        self.down = linear(nn.Linear(INTERMEDIATE, HIDDEN, bias=False, device="cuda", dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [M, HIDDEN]."""
        gate, value = self.up(x).chunk(2, dim=-1)
        result: torch.Tensor = self.down(nn.functional.silu(gate) * value)
        return result


def _graphed(model: nn.Module, x: torch.Tensor) -> tuple[Launch, torch.Tensor]:
    graph = torch.cuda.CUDAGraph()
    model(x)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = model(x)
    return graph.replay, out


def _expected(mlp: Mlp, x: torch.Tensor) -> torch.Tensor:
    """The model through the float64 reference of each product."""
    assert isinstance(mlp.up, MXFP4Linear) and isinstance(mlp.down, MXFP4Linear)
    gate, value = to_bf16(mxfp4_gemm_reference(x, mlp.up.weight)).chunk(2, dim=-1)
    return mxfp4_gemm_reference(nn.functional.silu(gate) * value, mlp.down.weight)


def _error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return float((actual.double() - expected).norm() / expected.norm())


@torch.no_grad()
def model(repeats: int) -> list[Row]:
    """The model eager, compiled and captured, with bf16 layers beside it for scale."""
    packed, dense = Mlp(MXFP4Linear.from_linear), Mlp(lambda layer: layer)
    rows: list[Row] = []
    for M in MODEL_ROWS:
        torch._dynamo.reset()  # it keeps at most 8 compilations of one function
        compiled = torch.compile(packed, fullgraph=True, dynamic=False)
        reduced = torch.compile(packed, fullgraph=True, dynamic=False, mode="reduce-overhead")
        casts = torch.compile(packed, fullgraph=True, dynamic=False, options={"emulate_precision_casts": True})
        x = torch.randn(M, HIDDEN, device="cuda").to(torch.bfloat16)
        expected = _expected(packed, x)
        replay, captured = _graphed(packed, x)
        replay_dense, _ = _graphed(dense, x)
        ways: dict[str, Launch] = {
            "eager": partial(packed, x),
            "compiled": partial(compiled, x),
            "reduce-overhead": partial(reduced, x),
            "compiled, emulate_precision_casts": partial(casts, x),
            "CUDA graph": replay,
            "bf16 eager": partial(dense, x),
            "bf16 CUDA graph": replay_dense,
        }
        timed = measure(ways, repeats, device=False)
        replay()
        errors = {
            "eager": _error(packed(x), expected),
            "compiled": _error(compiled(x), expected),
            "reduce-overhead": _error(reduced(x).clone(), expected),
            "compiled, emulate_precision_casts": _error(casts(x), expected),
            "CUDA graph": _error(captured, expected),
        }
        rows += [
            {"M": M, "way": name, "host_us": t.host_us, "wall_us": t.wall_us, "relative_error": errors.get(name)}
            for name, t in timed.items()
        ]
    return rows


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.2e}" if abs(value) < 0.01 and value else f"{value:.2f}"
    return "" if value is None else str(value)


def table(title: str, rows: list[Row]) -> str:
    """Markdown."""
    head = list(rows[0])
    lines = [f"## {title}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(_cell(row[name]) for name in head) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def verdict(rows: list[Row]) -> str:
    """The targets: at most 5 us more host time than a raw launch, no more device time."""
    host = max(float(str(row["dispatched_host_us"])) - float(str(row["raw_host_us"])) for row in rows)
    bare = max(float(str(row["dispatched_host_us"])) - float(str(row["bare_host_us"])) for row in rows)
    device = max(float(str(row["dispatched_device_us"])) - float(str(row["raw_device_us"])) for row in rows)
    return (
        f"Most host time over a raw launch: {host:+.2f} us (target +5); over the least that Triton offers: "
        f"{bare:+.2f} us. Most device time over a raw launch: {device:+.2f} us (target 0).\n"
    )


def main() -> None:
    """Run everything and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="folder for dispatch_overhead.md and .json")
    parser.add_argument("--repeats", type=int, default=31)
    parser.add_argument("--skip-model", action="store_true")
    options = parser.parse_args()
    device = local_device()
    if device is None:
        parser.error("needs a GPU that torch can use")
    dispatcher = load_dispatcher(device)
    shapes = [GemmShape(M, N, K) for N, K in LAYERS for M in ROWS]
    found: dict[str, list[Row]] = {}
    where = f"{torch.cuda.get_device_name()} ({device}), torch {torch.__version__}, Triton {triton.__version__}"
    text = f"# Cost of the dispatcher on {where}\n\n"
    found["A dispatched call beside raw launches"] = [overhead(dispatcher, shape, options.repeats) for shape in shapes]
    if not options.skip_model:
        found["DeepSeek-R1's shared expert, two layers"] = model(options.repeats)
    for title, rows in found.items():
        text += table(title, rows) + "\n"
    text += verdict(found["A dispatched call beside raw launches"])
    text += f"Dispatcher: {asdict(dispatcher.statistics)}\n"
    print(text)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "dispatch_overhead.md").write_text(text)
        (options.output / "dispatch_overhead.json").write_text(json.dumps({"where": where, **found}, indent=1))


if __name__ == "__main__":
    with one_line_errors():
        main()
