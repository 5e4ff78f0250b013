"""Tuned against defaults, Triton's own autotuner and torch.matmul in bf16, side by side on the local GPU.

Usage: python benchmarks/device_compare.py [--results DIR | --table FILE] [--before FILE] [--shapes FILE]
                                           [--autotune N] [--output DIR] [--rounds 30]

Per shape and protocol (cold, warm) every contender is sampled once a round, in random order, in one process:
  tuned       the winner of the results or of the table, as the search launches it
  dispatched  the same through Dispatcher.gemm
  before      the row of another table for the very shape, such as an older one
  default     what serves an untuned shape
  autotuned   the fused kernel with the configuration that triton.autotune picks from 20 (first N shapes only); it
              clears 256 MB between runs, as much as the Infinity Cache of MI300 and MI350 holds: partly warm there
  listed      the one that this harness picks from the same 20
  matmul      torch.matmul(a, w.T) in bf16 on the dequantised weight: no quantisation of A, 3.8 times the bytes of B;
              which library computes it is an accident of the environment, so that it is printed and kept
  empty       a kernel that does nothing: what one launch costs by this protocol
From compute capability 9.0 on our kernels start while the one before ends (programmatic dependent launch), here the one
of the sample's call before; ``matmul`` does as its library does, and ``empty`` does not.
Beside them ``roofline``, worked out and not measured: the least time that the FLOPs and the bytes of A, B and C allow.
The wall time to pick from the 20 starts with an empty Triton cache for either: autotune.csv.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import triton
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from required import required_gpu

from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.families.fused import TileConfig
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from kernels.tables.file import load_table
from kernels.triton.gemm import zero_kernel
from search.device.check import Tensors, set_bytes
from search.device.gpu import Gpu
from search.device.measure import baseline, inputs_of, launches_of, repeated, rotation_of, this_gpu, timed_rounds
from search.device.peaks import roofline_us
from search.device.served import dispatcher_launch
from search.device.timing import COLD, WARM, Launch, TimingProtocol, median_interval
from search.evaluation import Candidate
from search.evaluators.device import DeviceEvaluator
from search.results import load
from search.results.record import Point
from search.results.winners import winners
from search.space.shapes import load_shapes
from search.terminal import one_line_errors

ROOT = Path(__file__).resolve().parent.parent
KNOBS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")


Points = dict[str, Candidate]  # by contender


@dataclass(frozen=True)
class Picked:
    """A configuration chosen from the list of 20, and how long the choice took."""

    config: TileConfig
    wall_s: float


def listed(device: DeviceKey) -> list[TileConfig]:
    """The fixed list of 20 for the fused kernel: tiles, warps and stages that public lists of this kind hold."""
    other: dict[str, Any] = {} if device.has_scaled_fp4 else {"quantizer": "software", "a_operand": "bf16"}
    tiles = [(16, 32, 128), (16, 64, 128), (16, 64, 256), (32, 64, 128), (64, 128, 128)]
    return [
        TileConfig(BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, num_warps=warps, num_stages=stages, **other)
        for (m, n, k), warps, stages in product(tiles, (4, 8), (2, 3))
    ]


def fresh_cache() -> str:
    """Make Triton, here and in processes started from now on, use an empty cache."""
    folder = tempfile.mkdtemp(prefix="triton-")
    triton.knobs.cache.dir = folder  # also sets TRITON_CACHE_DIR for processes that start later
    return folder


def autotune(shape: GemmShape, gpu: Gpu, configs: Sequence[TileConfig]) -> Picked:
    """What triton.autotune picks for the fused kernel, with its usual benchmark."""
    call = FAMILIES["fused"].program(shape, configs[0]).calls[0]
    call.kernel.function.device_caches.clear()
    options = [
        triton.Config({name: c.to_dict()[name] for name in KNOBS}, num_warps=c.num_warps, num_stages=c.num_stages)
        for c in configs
    ]
    tuner = triton.autotune(configs=options, key=["M", "N", "K"])(call.kernel.function)
    one = rotation_of(shape, gpu, WARM)[0]
    given = {name: one[value] if isinstance(value, str) else value for name, value in call.args.items()}
    fixed = {name: value for name, value in call.constexprs.items() if name not in KNOBS}

    def grid(meta: Mapping[str, int]) -> tuple[int]:
        return (triton.cdiv(shape.M, meta["BLOCK_M"]) * triton.cdiv(shape.N, meta["BLOCK_N"]),)

    torch.cuda.synchronize()
    start_s = time.monotonic()
    tuner[grid](**given, **fixed)
    torch.cuda.synchronize()
    wall_s = time.monotonic() - start_s
    best = tuner.best_config
    knobs = {**configs[0].to_dict(), **best.kwargs, "num_warps": best.num_warps, "num_stages": best.num_stages}
    return Picked(FAMILIES["fused"].config(knobs), wall_s)


def pick_listed(shape: GemmShape, evaluator: DeviceEvaluator, configs: Sequence[TileConfig]) -> Picked:
    """What this harness picks from the same list: compiled ahead in parallel, checked, timed cold."""
    start_s = time.monotonic()
    answers = [(config, evaluator.submit(Candidate(shape, "fused", config))) for config in configs]
    judged = [(config, answer.result()) for config, answer in answers]
    wall_s = time.monotonic() - start_s
    good = [(result.objective_us, index) for index, (_, result) in enumerate(judged) if result.outcome == "ok"]
    return Picked(configs[min(good)[1]], wall_s)  # type: ignore[type-var]


def tuned_points(results: Path | None, table: Path | None, device: DeviceKey) -> dict[GemmShape, Point]:
    """Family and configuration of each tuned shape."""
    if table is not None:
        return {row.shape: (row.family, row.config) for row in load_table(table).rows}
    found = winners(load(results)) if results is not None else []
    return {one.shape: (one.family, one.config) for one in found if one.device == device}


def matmul_launches(shape: GemmShape, gpu: Gpu, protocol: TimingProtocol) -> tuple[list[Launch], int]:
    """``torch.matmul`` over copies of A, the dequantised weight in bf16 and the output; the bytes of one set."""
    given = inputs_of(shape, gpu)[0]
    dense = PackedWeight(given.weight.data, given.weight.scale, shape.N, shape.K).dequantize().to(torch.bfloat16)
    first: Tensors = {"a": given.a, "w": dense, "out": given.a.new_empty(shape.M, shape.N)}
    size = set_bytes(first)
    count = protocol.copies(size, gpu.cache_bytes())
    sets = [{name: tensor.clone() for name, tensor in first.items()} for _ in range(count)]
    return [partial(_matmul, one) for one in sets], size


def matmul_by() -> str:
    """Which library ``torch.matmul`` asks, and whether TunableOp chooses among its kernels."""
    library: str = torch.backends.cuda.preferred_blas_library().name
    return library + (", TunableOp" if torch.cuda.tunable.is_enabled() else "")


def _matmul(one: Tensors) -> None:
    torch.matmul(one["a"], one["w"].T, out=one["out"])


def contenders(
    points: Mapping[str, Candidate], shape: GemmShape, gpu: Gpu, protocol: TimingProtocol
) -> dict[str, list[Launch]]:
    """The launches that make one sample of each contender."""
    sets = rotation_of(shape, gpu, protocol)
    count = protocol.launches_per_sample(set_bytes(sets[0]), len(sets))
    found = {name: repeated(launches_of(one, sets, gpu), count) for name, one in points.items()}
    if "tuned" in points:
        found["dispatched"] = repeated(dispatcher_launch(points["tuned"], sets, gpu.origin().device), count)
    dense, size = matmul_launches(shape, gpu, protocol)
    found["matmul"] = repeated(dense, protocol.launches_per_sample(size, len(dense)))
    nothing = torch.empty(1, device=one_device(sets))
    empty = partial(zero_kernel[(1,)], nothing, 0, BLOCK=2048, WIDE_OFFSETS=False)
    found["empty"] = repeated([empty], count)
    return found


def one_device(sets: Sequence[Tensors]) -> torch.device:
    """Where the operands lie."""
    return next(iter(sets[0].values())).device


def captured(launches: Sequence[Launch], gpu: Gpu) -> tuple[Any, int]:
    """A graph that is one sample, and the number of its launches; the first runs alone, to load what is not loaded."""
    launches[0]()
    gpu.synchronize()
    return gpu.capture(launches), len(launches)


def compare_shape(points: Mapping[str, Candidate], shape: GemmShape, gpu: Gpu, rounds: int) -> list[dict[str, Any]]:
    """One row a protocol and contender."""
    rows = []
    for protocol in (COLD, WARM):
        launches = contenders(points, shape, gpu, protocol)
        times = timed_rounds([captured(one, gpu) for one in launches.values()], gpu, rounds, seed=0).rounds
        for index, name in enumerate(launches):
            lo_us, median_us, hi_us = median_interval([row[index] for row in times])
            one = points.get("tuned" if name == "dispatched" else name)
            rows.append({
                "shape": str(shape), "M": shape.M, "N": shape.N, "K": shape.K, "protocol": str(protocol),
                "contender": name, "time_us": median_us, "time_lo_us": lo_us, "time_hi_us": hi_us, "rounds": rounds,
                "family": None if one is None else one.family,
                "config": None if one is None else str(one.config.to_dict()),
                "library": matmul_by() if name == "matmul" else None,
            })  # fmt: skip
    return rows


def pick_all(shapes: Sequence[GemmShape], gpu: Gpu) -> tuple[dict[GemmShape, Points], list[dict[str, Any]]]:
    """The choices of both tuners from the list of 20, and how long each took."""
    device = gpu.origin().device
    found: dict[GemmShape, Points] = {}
    rows = []
    evaluator: DeviceEvaluator | None = None
    for shape in shapes:
        configs = listed(device)
        fresh_cache()
        theirs = autotune(shape, gpu, configs)
        fresh_cache()
        if evaluator is not None:
            evaluator.close()  # its processes know the older cache
        start_s = time.monotonic()
        evaluator = DeviceEvaluator(device)
        warm_up(evaluator)
        started_s = time.monotonic() - start_s
        ours = pick_listed(shape, evaluator, configs)
        rows.append({"shape": str(shape), "triton_s": theirs.wall_s, "ours_s": ours.wall_s, "ours_start_s": started_s})
        print(rows[-1], flush=True)
        found[shape] = {
            "autotuned": Candidate(shape, "fused", theirs.config), "listed": Candidate(shape, "fused", ours.config),
        }  # fmt: skip
    if evaluator is not None:
        evaluator.close()
    return found, rows


def warm_up(evaluator: DeviceEvaluator) -> None:
    """Start every process with candidates of another shape, as a sweep of several shapes has by then."""
    other = GemmShape(1, 64, 64)
    tiles = product((16, 32, 64), (64, 128), (64, 128, 256), (1, 2, 3))
    configs = [
        TileConfig(BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, num_stages=stages, quantizer="software")
        for m, n, k, stages in islice(tiles, evaluator.capacity)
    ]
    for answer in [evaluator.submit(Candidate(other, "fused", config)) for config in configs]:
        answer.result()


def print_table(frame: pd.DataFrame, device: DeviceKey) -> None:
    """Times by shape and contender, and how much longer than tuned each takes."""
    for protocol, rows in frame.groupby("protocol", sort=False):
        times = rows.pivot(index="shape", columns="contender", values="time_us").reindex(rows["shape"].unique())
        times["roofline"] = [roofline_us(GemmShape.parse(shape), device) for shape in times.index]
        print(f"\n{protocol}, microseconds", times.round(2).to_string(), sep="\n")
        if "tuned" in times:
            ratios = times.div(times["tuned"], axis=0)
            geometric = ratios.apply(lambda column: float(column.dropna().prod() ** (1 / max(1, column.notna().sum()))))
            print("over tuned, geometric mean:", geometric.round(3).to_dict())


def main(
    results: Annotated[Path | None, typer.Option(help="Results of a measured sweep.")] = None,
    table: Annotated[Path | None, typer.Option(help="Tuned table instead.")] = None,
    before: Annotated[Path | None, typer.Option(help="Another table, whose rows run beside.")] = None,
    shapes: Annotated[Path, typer.Option(help="Shapes file.")] = ROOT / "configs/shapes/gpumode.yaml",
    autotune: Annotated[int, typer.Option(help="How many shapes Triton's autotuner tunes, 35 s each.")] = 2,
    output: Annotated[Path, typer.Option(help="Folder of compare.csv and autotune.csv.")] = Path("results"),
    rounds: Annotated[int, typer.Option(help="Samples of each contender.")] = 30,
) -> None:
    """Compare, print and write."""
    device = required_gpu()
    tuned, earlier = tuned_points(results, table, device), tuned_points(None, before, device)
    asked = load_shapes(shapes).shapes
    gpu = this_gpu()
    picked, walls = pick_all(asked[:autotune], gpu)
    rows: list[dict[str, Any]] = []
    for shape in asked:
        points = {"default": baseline(shape, device), **picked.get(shape, {})}
        if shape in tuned:
            points = {"tuned": Candidate(shape, *tuned[shape]), **points}
        if shape in earlier:
            points |= {"before": Candidate(shape, *earlier[shape])}
        rows += compare_shape(points, shape, gpu, rounds)
    frame = pd.DataFrame(rows)
    output.mkdir(parents=True, exist_ok=True)
    frame.to_csv(output / "compare.csv", index=False)
    pd.DataFrame(walls).to_csv(output / "autotune.csv", index=False)
    print(f"matmul by {matmul_by()}")
    print_table(frame, device)
    for row in walls:
        print(f"{row['shape']}: picked from 20 in {row['ours_s']:.1f} s, triton.autotune in {row['triton_s']:.1f} s")


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
