"""Shuffled against natural weights on the local GPU: the same kernels, only their loads of B differ.

Usage: python benchmarks/device_weight_layout.py [--shapes FILE] [--table FILE] [--rounds 15] [--jobs N] [--output DIR]

The shuffled layout is what gfx950's matrix instructions want; here each kernel also reads ``natural`` weights, packed
row-major [N, K//2] with shuffled scales, and fused ones ``natural+scales``, row-major scales too. For every shape the
table's row and a few other configurations, with A as e2m1 and as bf16, are compiled ahead for each layout, checked
against the reference, and timed cold and side by side: every round samples all of them in random order. The table
printed compares the best of each layout, and gives how much the layout changes one configuration, as medians over the
rounds. Everything goes to layouts.csv.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from types import FunctionType
from typing import Annotated, Any

import pandas as pd
import torch
import triton
import triton.language as tl
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.device import DeviceKey
from kernels.errors import KernelError
from kernels.families import FAMILIES
from kernels.launches.program import KernelCall, Program
from kernels.mxfp4.layouts import padded_scale_shape, unshuffle_scales, unshuffle_weight
from kernels.problem import BLOCK, GemmShape
from kernels.tables.file import load_table
from search.device.ahead import Compiled, compile_ahead
from search.device.check import POISON_BYTE, CheckedInput, Tensors, check, set_bytes, working_tensors
from search.device.gpu import Gpu, kernel_error
from search.device.measure import inputs_of, repeated, rotation_of, side_by_side, this_gpu
from search.device.timing import COLD, Launch, median_interval
from search.evaluation import Candidate
from search.evaluators.device import begin_compiling
from search.space.shapes import load_shapes
from search.terminal import one_line_errors, required_gpu
from search.workers.pool import WorkerPool

ROOT = Path(__file__).resolve().parent.parent
LAYOUTS = ("shuffled", "natural", "natural+scales")
TILES = ((32, 256, 4, 2), (64, 128, 4, 3), (64, 256, 4, 2), (128, 128, 8, 3))  # BLOCK_N, BLOCK_K, warps, stages
COMPILE_TIMEOUT_S = 60.0


@triton.jit  # type: ignore[untyped-decorator]
def natural_weight_tile(  # type: ignore[no-untyped-def]
    b_ptr, pid_n, k,
    N: tl.constexpr, K: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    CACHE: tl.constexpr, WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """Packed weight tile [BLOCK_K//2, BLOCK_N] from row-major [N, K//2]; 0 outside of N and K."""
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_b = k // 2 + tl.arange(0, BLOCK_K // 2)
    row = offs_n.to(tl.int64) if WIDE_OFFSETS else offs_n
    pointers = b_ptr + row[None, :] * (K // 2) + offs_b[:, None]
    if N % BLOCK_N == 0 and K % BLOCK_K == 0:
        tile = tl.load(pointers, cache_modifier=CACHE)
    else:
        mask = (offs_n < N)[None, :] & (offs_b < K // 2)[:, None]
        tile = tl.load(pointers, mask=mask, other=0, cache_modifier=CACHE)
    return tile


@triton.jit  # type: ignore[untyped-decorator]
def natural_scale_tile(  # type: ignore[no-untyped-def]
    scale_ptr, row_tile, k,
    K: tl.constexpr, BLOCK_ROWS: tl.constexpr, BLOCK_K: tl.constexpr, CACHE: tl.constexpr,
    WIDE_OFFSETS: tl.constexpr,
):  # fmt: skip
    """E8M0 tile [BLOCK_ROWS, BLOCK_K//32] from row-major scales, padded as the shuffled ones; 0 beyond K."""
    SN: tl.constexpr = (K // 32 + 7) // 8 * 8
    rows = row_tile * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    row = rows.to(tl.int64) if WIDE_OFFSETS else rows
    group = k // 32 + tl.arange(0, BLOCK_K // 32)
    pointers = scale_ptr + row[:, None] * SN + group[None, :]
    if K % BLOCK_K == 0:
        tile = tl.load(pointers, cache_modifier=CACHE)
    else:
        inside = tl.broadcast_to((group < K // 32)[None, :], (BLOCK_ROWS, BLOCK_K // 32))
        tile = tl.load(pointers, mask=inside, other=0, cache_modifier=CACHE)
    return tile


@cache
def reading(kernel: Any, layout: str) -> Any:
    """``kernel`` with other device functions in place of its loads of B: the source is the same."""
    replaced = {"load_weight_tile": natural_weight_tile}
    if layout == "natural+scales":
        replaced["load_scale_tile"] = natural_scale_tile
    source = kernel.fn
    function = FunctionType(source.__code__, source.__globals__ | replaced, source.__name__)
    function.__module__, function.__qualname__ = source.__module__, source.__qualname__
    function.__annotations__ = source.__annotations__
    return triton.jit(function, do_not_specialize=["M"])  # as all kernels of the project


def program_of(candidate: Candidate, layout: str) -> Program:
    """The candidate's program on weights in ``layout``."""
    program = FAMILIES[candidate.family].program(candidate.shape, candidate.config)
    if layout == "shuffled":
        return program
    calls = tuple(_reading(call, layout) if "b_ptr" in call.args else call for call in program.calls)
    return replace(program, calls=calls)


def _reading(call: KernelCall, layout: str) -> KernelCall:
    return replace(call, kernel=reading(call.kernel, layout))


@dataclass(frozen=True, eq=False)
class LaidOut(CheckedInput):
    """Operands whose weight is in another layout.

    Args:
        data: Bytes that the kernels read for ``b``.
        scale: For ``b_scale``.
    """

    data: torch.Tensor
    scale: torch.Tensor

    @property
    def tensors(self) -> Tensors:
        """Operands by buffer name."""
        return {"a": self.a, "b": self.data, "b_scale": self.scale}


def laid_out(given: CheckedInput, layout: str) -> LaidOut:
    """``given`` with its weight in ``layout``; pads stay poisoned."""
    data, scale = in_layout({"b": given.weight.data, "b_scale": given.weight.scale}, given.weight.K, layout).values()
    return LaidOut(given.a, given.weight, given.rows, given.reference, data, scale)


def in_layout(tensors: Tensors, K: int, layout: str) -> Tensors:
    """``tensors`` with ``b`` and ``b_scale`` in ``layout``."""
    if layout == "shuffled":
        return tensors
    data, scale = unshuffle_weight(tensors["b"]), tensors["b_scale"]
    if layout == "natural+scales":
        rows, groups = data.shape[0], K // BLOCK
        natural = torch.full(padded_scale_shape(rows, groups), POISON_BYTE, dtype=torch.uint8, device=scale.device)
        natural[:rows, :groups] = unshuffle_scales(scale, rows, groups)
        scale = natural
    return tensors | {"b": data, "b_scale": scale}


def candidates(shape: GemmShape, device: DeviceKey, row: Candidate | None) -> Iterator[Candidate]:
    """The table's row and a few fused ones, K split where it is long."""
    if row is not None:
        yield row
    block_m = 16 if shape.M <= 64 else 64
    split = {7168: 14, 2048: 4, 1536: 4}.get(shape.K, 1)
    family = "fused_splitk_workspace" if split > 1 and shape.M <= 64 else "fused"
    for (n, k, warps, stages), a_operand in product(TILES, ("e2m1", "bf16")):
        values: dict[str, Any] = {
            "BLOCK_M": block_m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "num_stages": stages,
            "quantizer": "hardware" if device.has_scaled_fp4 else "software", "a_operand": a_operand,
        }  # fmt: skip
        config = FAMILIES[family].config(values | ({"split_k": split} if family != "fused" else {}))
        if config.check(shape, device) is None:
            yield Candidate(shape, family, config)


def variants(
    shapes: Sequence[GemmShape], device: DeviceKey, table: Mapping[GemmShape, Candidate]
) -> dict[GemmShape, list[tuple[Candidate, str]]]:
    """Candidates and layouts of each shape. A staged kernel reads A's scales shuffled, so B's stay so too."""
    return {
        shape: [
            (one, layout)
            for one in dict.fromkeys(candidates(shape, device, table.get(shape)))
            for layout in LAYOUTS
            if layout != "natural+scales" or one.family != "staged_triton"
        ]
        for shape in shapes
    }


def compile_variant(variant: tuple[Candidate, str], *, device: DeviceKey) -> Compiled | None:
    """In a compiling process: fill Triton's cache; None where the kernel cannot be compiled."""
    try:
        return compile_ahead(program_of(*variant), device)
    except KernelError:
        return None


def compile_all(
    work: Mapping[GemmShape, list[tuple[Candidate, str]]], device: DeviceKey, jobs: int
) -> dict[GemmShape, list[tuple[Candidate, str]]]:
    """The variants that compile."""
    compiling = partial(compile_variant, device=device)
    pool: WorkerPool[tuple[Candidate, str], Compiled | None] = WorkerPool(
        compiling, jobs, partial(begin_compiling, device)
    )
    done = {one: pool.submit(one, COMPILE_TIMEOUT_S) for variants in work.values() for one in variants}
    compiled = {one for one, answer in done.items() if answer.exception() is None and answer.result() is not None}
    pool.close()
    print(f"{len(compiled)} of {len(done)} variants compiled", flush=True)
    return {shape: [one for one in variants if one in compiled] for shape, variants in work.items()}


def checked_launches(candidate: Candidate, layout: str, gpu: Gpu) -> list[Launch]:
    """Launches of a variant, one a set of cold copies, after its output was found right.

    Raises:
        KernelError: It is wrong, or needs more than the GPU has.
    """
    shape = candidate.shape
    program = program_of(candidate, layout)
    inputs = [laid_out(given, layout) for given in inputs_of(shape, gpu)]
    working = working_tensors(program, gpu.torch_device)
    gpu.load(program, inputs[0].tensors | working)
    check(program, inputs, working, gpu, {})
    shared = {name: tensor for name, tensor in working.items() if name != "out"}
    return [partial(gpu.launch, program, one | shared) for one in sets_in(layout, shape, gpu)]


@cache
def sets_in(layout: str, shape: GemmShape, gpu: Gpu) -> tuple[Tensors, ...]:
    """The sets that launches go round, in ``layout``."""
    return tuple(in_layout(one, shape.K, layout) for one in rotation_of(shape, gpu, COLD))


def measure_shape(shape: GemmShape, work: Sequence[tuple[Candidate, str]], gpu: Gpu, rounds: int) -> pd.DataFrame:
    """One row a variant and round."""
    sets = rotation_of(shape, gpu, COLD)
    count = COLD.launches_per_sample(set_bytes(sets[0]), len(sets))
    launches: dict[tuple[Candidate, str], list[Launch]] = {}
    for candidate, layout in work:
        try:
            launches[candidate, layout] = repeated(checked_launches(candidate, layout, gpu), count)
        except (KernelError, RuntimeError) as error:
            known = error if isinstance(error, KernelError) else kernel_error(error, gpu)
            if known is None or known.outcome not in ("resource_limit", "compile_error", "illegal"):
                raise
    times = side_by_side(list(launches.values()), gpu, rounds, seed=0).rounds
    sets_in.cache_clear()
    return pd.DataFrame([
        {"shape": str(shape), "round": number, "layout": layout, "family": one.family,
         "a_operand": one.config.to_dict()["a_operand"], "config": text(one), "time_us": time_us}
        for number, row in enumerate(times)
        for (one, layout), time_us in zip(launches, row, strict=True)
    ])  # fmt: skip


def text(one: Candidate) -> str:
    """Short name of a candidate."""
    c = one.config.to_dict()
    tile = "x".join(str(c[name]) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
    return f"{tile} split {c.get('split_k', 1)} warps {c['num_warps']} stages {c['num_stages']}"


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a shape: the best of each layout, their ratios, and what the layout changes in one configuration."""
    return pd.DataFrame([_shape_row(str(shape), found) for shape, found in frame.groupby("shape", sort=False)])


def _shape_row(shape: str, found: pd.DataFrame) -> dict[str, Any]:
    named = found.assign(name=found["family"] + " " + found["a_operand"] + " " + found["config"])
    times = {  # two that differ in the reduction's tile only have one name
        layout: rows.pivot_table(index="round", columns="name", values="time_us", aggfunc="min")
        for layout, rows in named.groupby("layout")
    }
    best = {layout: wide.median().idxmin() for layout, wide in times.items()}
    row: dict[str, Any] = {"shape": shape, "best shuffled": best["shuffled"]}
    row |= {f"{layout} us": times[layout][best[layout]].median() for layout in LAYOUTS if layout in times}
    shuffled = times["shuffled"]
    for layout in LAYOUTS[1:]:
        if layout in times:
            ratio = times[layout][best[layout]] / shuffled[best["shuffled"]]
            lo, middle, hi = median_interval(ratio.to_list())
            row[f"best {layout}/shuffled"] = f"{middle:.3f} [{lo:.3f}, {hi:.3f}]"
    both = times["natural"].columns.intersection(shuffled.columns)
    same = (times["natural"][both] / shuffled[both]).median()
    row["natural/shuffled, one configuration"] = f"{same.min():.2f} to {same.max():.2f}, median {same.median():.2f}"
    return row


def main(
    shapes: Annotated[Path, typer.Option(help="Shapes file.")] = ROOT / "configs/shapes/gpumode.yaml",
    table: Annotated[Path, typer.Option(help="Tuned table.")] = ROOT / "configs/tables/sm_90.yaml",
    rounds: Annotated[int, typer.Option(help="Samples of each.")] = 15,
    jobs: Annotated[int | None, typer.Option(help="Compiling processes.")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder of layouts.csv.")] = None,
) -> None:
    """Compile, check, time and print."""
    device = required_gpu()
    gpu = this_gpu()
    rows = {row.shape: Candidate(row.shape, row.family, row.config) for row in load_table(table).rows}
    asked = load_shapes(shapes).shapes
    work = compile_all(variants(asked, device, rows), device, jobs or max(1, len(os.sched_getaffinity(0)) - 2))
    frames = []
    for shape in asked:
        frames.append(measure_shape(shape, work[shape], gpu, rounds))
        print(f"{shape}: {frames[-1].groupby('layout')['time_us'].min().to_dict()}", flush=True)
    frame = pd.concat(frames)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        frame.to_csv(output / "layouts.csv", index=False)
    print(summary(frame).round(2).to_string(index=False))


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
