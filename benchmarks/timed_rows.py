"""Public timings as rows that the timing model can be held against: what was launched, and how long it took.

Every reader takes a CSV file in the form in which its authors' numbers were collected; see ``fit_timing.py``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from aiter_kernels import Knobs, gemm_program
from native_checks import code_object_launch, random_operands

from kernels.disk import default_cache
from kernels.errors import InputError, KernelError
from kernels.launches.code_object import CodeObjectCoverage
from kernels.launches.program import Program
from kernels.problem import GemmShape
from kernels.rocm.code_objects import find_catalogue
from search.device.calibration.solve import first_workgroups
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.machine import Machine
from search.gfx950.model.constants import CONSTANTS, Constants
from search.gfx950.model.executed import predict_works, tile_sharing
from search.gfx950.model.launch_time import LaunchWork
from search.gfx950.model.stream import Executed, WaveStream, wave_streams
from search.gfx950.simulator import SimulatedBuffer, load_code_object, simulate

ITEMS = {"bf16": np.uint16, "fp32": np.float32, "u8": np.uint8}
Point = tuple[float, int, tuple[LaunchWork, ...]]
NODES = (1024, 4096, 12288)  # values of K at which a code object is executed; times between lie on a line


@dataclass(frozen=True, eq=False)
class TimedRow:
    """One measured time.

    Args:
        group: Shape and author: rows of one group may be compared.
        shape: Problem.
        label: What was measured.
        us: Measured; of relative rows, over an unknown time of the group.
        relative: ``us`` is a ratio.
        points: (share, K, launches): the time is the sum of shares times the predicted times of launches at that K.
    """

    group: str
    shape: GemmShape
    label: str
    us: float
    relative: bool
    points: tuple[Point, ...]

    def predicted_us(self, machine: Machine, constants: Constants = CONSTANTS) -> float:
        """Time by the model."""
        warm = machine.harness.is_warm(self.shape.unique_bytes)  # by the real K
        harness = replace(machine.harness, warm_bytes=float("inf") if warm else 0.0)
        machine = replace(machine, harness=harness)
        return sum(
            share * predict_works(works, replace(self.shape, K=depth), machine, constants).predicted_us
            for share, depth, works in self.points
        )


def program_launches(program: Program, machine: Machine) -> tuple[LaunchWork, ...]:
    """Compile ``program``, execute the first workgroup of each launch, and return what each launch does.

    Raises:
        KernelError: It does not compile, or has an instruction that is not modelled.
    """
    arrays = {buffer.name: np.zeros(buffer.shape, ITEMS[buffer.dtype]) for buffer in program.buffers}
    return first_workgroups(program, arrays, machine, ArtifactCache(default_cache()))


def read_rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Rows of a CSV file with at least ``columns``; lines that begin with # are left out.

    Raises:
        InputError: No such file, or another one.
    """
    try:
        frame = pd.read_csv(path, comment="#", dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as CSV ({' '.join(str(error).split())})") from error
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise InputError(f"{path}: has no column {', '.join(missing)}; see the usage of fit_timing.py")
    return [{str(name): str(value) for name, value in row.items()} for row in frame.to_dict("records")]


def logged_configurations(path: Path, machine: Machine) -> Iterator[TimedRow]:
    """Rows of logged configurations of AITER's fused kernel.

    A row has a time, or a ratio to a named version; where that version has a time of the same shape, so has the row.
    """
    rows = read_rows(path, ("shape", "BSM", "BSN", "BSK", "NW", "NS", "WPE", "SPLITK", "us", "rel", "ref", "version"))
    times = {(row["shape"], _version(row["version"])): row["us"] for row in rows if row["us"]}
    for row in rows:
        if not row["BSM"]:
            continue
        shape = GemmShape.parse(row["shape"])
        known = row["us"] or times.get((row["shape"], row["ref"]), "")
        us = float(known) * float(row["rel"] or 1) if known else float(row["rel"])
        group = row["shape"] if known else f"{row['shape']} over {row['ref']}"
        label = " ".join(row[name] for name in ("BSM", "BSN", "BSK", "NW", "NS", "SPLITK", "version"))
        try:
            works = program_launches(gemm_program(shape, _logged_knobs(row), fused=True), machine)
        except KernelError as error:
            print(f"{shape} {label}: {error}", file=sys.stderr)
            continue
        yield TimedRow(group, shape, label, us, not known, ((1.0, shape.K, works),))


def _version(text: str) -> str:
    return text.partition("(")[0]


def _logged_knobs(row: Mapping[str, str]) -> Knobs:
    number = int((re.findall(r"\d+", row["version"]) or ["0"])[0])
    late = "REDUCE_BSN=16" in row["version"] or number >= 93  # versions of the log from that one on reduce by 16
    return Knobs(
        int(row["BSM"]), int(row["BSN"]), int(row["BSK"]), int(row["SPLITK"]), int(row["NW"]), int(row["NS"]),
        int(row["WPE"] or 2), cache_modifier=".cg" if row["cache"] != "none" else "", reduce_n=16 if late else 64,
    )  # fmt: skip


def code_object_times(path: Path) -> Iterator[tuple[tuple[int, int], GemmShape, float]]:
    """(tile, shape, us) of AITER's tuned a4w4 shapes whose kernel is one of its code objects without split-K."""
    rows = read_rows(path, ("M", "N", "K", "kernel_family", "tile_m", "tile_n", "splitK", "us"))
    for row in rows:
        if row["kernel_family"] != "asm" or int(row["splitK"]) or float(row["us"]) <= 0:
            continue
        columns = -(-int(row["N"]) // 64) * 64  # this project's shapes have whole blocks of columns
        shape = GemmShape(int(row["M"]), columns, int(row["K"]))
        yield (int(row["tile_m"]), int(row["tile_n"])), shape, float(row["us"])


def code_object_points(tile: tuple[int, int], shape: GemmShape) -> tuple[Point, ...]:
    """The launch of a code object, from executions at the neighbouring values of K."""
    low, high = (NODES[0], NODES[1]) if NODES[1] >= shape.K else (NODES[1], NODES[2])
    share = (shape.K - low) / (high - low)
    return tuple(
        (part, node, (_code_object_work(tile, shape, node),))
        for part, node in ((1 - share, low), (share, high))
        if part
    )


def _code_object_work(tile: tuple[int, int], shape: GemmShape, node: int) -> LaunchWork:
    code_object = find_catalogue().find(*tile)
    coverage = CodeObjectCoverage(shape, code_object)
    workgroups = coverage.num_m * coverage.num_n
    full_rows = shape.M / (coverage.num_m * tile[0])
    kept = full_rows if coverage.num_m == 1 else 1.0
    streams = tuple(_clipped(stream, kept) for stream in code_object_streams(tile, node))
    names = {"a": "a", "a_scale": "a_scale", "b": "b", "b_scale": "b_scale", "out": "out"}
    tile_m, tile_n = coverage.tiles()
    sharing = tile_sharing(names, tile_m, tile_n, np.zeros_like(tile_m), min(workgroups, 256))
    read = (shape.M + shape.N) * node * 17 / 32
    return LaunchWork(str(code_object), streams, workgroups, 1, sharing, read, full_rows)


@cache
def code_object_streams(tile: tuple[int, int], K: int) -> tuple[WaveStream, ...]:
    """The waves of one workgroup of a code object, executed with ``K``."""
    code_object = find_catalogue().find(*tile)
    shape = GemmShape(tile[0], 2 * tile[1], K)
    out = SimulatedBuffer(np.zeros((shape.M, shape.N), np.uint16))
    launch = code_object_launch(code_object, random_operands(shape, 0), 0, out)
    result = simulate(load_code_object(code_object.path, code_object.symbol), launch, [(0, 0, 0)])
    return wave_streams(Executed(result.recording, 4))


def _clipped(stream: WaveStream, kept: float) -> WaveStream:
    """``stream`` where only a share of the rows of A and C is inside of them."""
    if kept == 1.0:
        return stream
    rows = ("a", "a_scale", "out")
    events = tuple(e._replace(size=e.size * kept) if e.buffer in rows else e for e in stream.events)
    moved = {key: size * (kept if key[1] in rows else 1.0) for key, size in stream.moved.items()}
    return replace(stream, events=events, moved=moved)
