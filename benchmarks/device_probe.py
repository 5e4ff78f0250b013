"""A first look at a GPU: is everything right, how long does it take, what does the timing say.

Usage: python benchmarks/device_probe.py [--output FILE.json] [--shapes all|few]

In this process, without workers: defaults of every family at the competition shapes and at shapes with tails, with
both operands of A; each checked on two seeds, then timed cold and warm. A wrong one is printed and fails the run.
Before them, what a graph costs besides its kernels: a node (an empty kernel) and the two events around it. Where a node
costs about as much as a short kernel, the host or the front end sets the time of a short program.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from required import required_gpu

from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from kernels.triton.gemm import zero_kernel
from search.device.gpu import Gpu
from search.device.measure import MeasureTask, measure, this_gpu
from search.device.timing import COLD, WARM, Launch, median_interval
from search.evaluation import Candidate
from search.space.shapes import load_shapes
from search.terminal import one_line_errors

ROOT = Path(__file__).resolve().parent.parent
TIMES = ("cold_us", "warm_us", "time_lo_us", "time_hi_us", "host_launch_us", "check_s", "first_s", "again_s")
NODES = (200, 1000)  # of the two graphs whose difference gives the cost of a node
TAILS = (GemmShape(1, 64, 64), GemmShape(3, 192, 448), GemmShape(33, 320, 2624), GemmShape(130, 2112, 576))


def candidates(shape: GemmShape, device: DeviceKey) -> list[Candidate]:
    """One of each family, and of each operand of A."""
    quantizer = "hardware" if device.has_scaled_fp4 else "software"
    found = []
    for name, family in FAMILIES.items():
        if not family.is_triton:
            continue
        for a_operand in ("e2m1", "bf16"):
            config: TileConfig = family.config({"BLOCK_K": 128, "quantizer": quantizer, "a_operand": a_operand})
            if config.check(shape, device) is None:
                found.append(Candidate(shape, name, config))
    return found


@dataclass(frozen=True)
class Overhead:
    """What a replay takes besides its kernels, in microseconds.

    Args:
        node_us: A node that does nothing.
        events_us: The two events around a graph.
    """

    node_us: float
    events_us: float


def overhead(gpu: Gpu, launch: Launch) -> Overhead:
    """From the times of a small and a large graph of ``launch``, which does nothing and has run before."""
    small, large = (median_interval(gpu.replay_us(gpu.capture([launch] * count), 24))[1] for count in NODES)
    node_us = (large - small) / (NODES[1] - NODES[0])
    return Overhead(node_us, small - NODES[0] * node_us)


def empty_launch(gpu: Gpu) -> Launch:
    """A kernel that does nothing; it has run once."""
    nothing = torch.empty(1, device=gpu.torch_device)
    launch = partial(zero_kernel[(1,)], nothing, 0, BLOCK=2048, WIDE_OFFSETS=False)
    launch()
    gpu.synchronize()
    return launch


def main(
    output: Annotated[Path | None, typer.Option(help="JSON lines.")] = None,
    shapes: Annotated[str, typer.Option(help="all or few.")] = "all",
) -> None:
    """Probe, and say what is wrong."""
    required_gpu()
    gpu = this_gpu()
    print(gpu.origin(), f"last-level cache {gpu.cache_bytes() >> 20} MiB", gpu.state(), sep="\n")
    found = overhead(gpu, empty_launch(gpu))
    print(f"a graph costs {found.node_us:.3f} us a node and {found.events_us:.2f} us for its events")
    asked = [*load_shapes(ROOT / "configs/shapes/gpumode.yaml").shapes, *TAILS]
    rows: list[dict[str, Any]] = []
    for shape in asked if shapes == "all" else [asked[1], *TAILS]:
        for one in candidates(shape, gpu.origin().device):
            start_s = time.monotonic()
            cold = measure(MeasureTask(one, COLD), gpu)
            cold_s = time.monotonic() - start_s
            again_s = time.monotonic()
            warm = measure(MeasureTask(one, WARM), gpu)
            again_s = time.monotonic() - again_s
            rows.append({
                "shape": str(shape), "family": one.family, "a_operand": one.config.a_operand, "outcome": cold.outcome,
                "reason": cold.reason, "cold_us": cold.objective_us, "warm_us": warm.objective_us, "first_s": cold_s,
                "again_s": again_s, **cold.facts,
            })  # fmt: skip
            print(line(rows[-1]), flush=True)
    if output is not None:
        output.write_text("".join(json.dumps(row, default=str) + "\n" for row in [asdict(found), *rows]))
    wrong = [row for row in rows if row["outcome"] not in ("ok", "resource_limit")]
    print(f"{len(rows)} candidates, {len(wrong)} not ok")
    raise typer.Exit(1 if wrong else 0)


def line(row: dict[str, Any]) -> str:
    """One row for people."""
    times = " ".join(f"{name} {row[name]:.2f}" if isinstance(row.get(name), float) else f"{name} -" for name in TIMES)
    what = f"{row['shape']:>14} {row['family']:<22} {row['a_operand']:<5} {row['outcome']}"
    return f"{what} {times} n={row.get('samples')} regs={row.get('vgprs')} {row['reason'][:80]}"


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
