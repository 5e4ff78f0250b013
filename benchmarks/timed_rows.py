"""Public timings as rows that the timing model can be held against: what was launched, and how long it took.

Every reader takes a CSV file in the form in which its authors' numbers were collected; see ``fit_timing.py``.
"""

from __future__ import annotations

import io
import re
import sys
from bisect import bisect_left
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
TIME_BANDS_US = (0.0, 10.0, 20.0, 40.0, float("inf"))  # in which errors are told apart
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
        lines = [line for line in path.read_text().splitlines(keepends=True) if not line.startswith("#")]
        frame = pd.read_csv(io.StringIO("".join(lines)), dtype=str, keep_default_na=False)
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


@dataclass(frozen=True, eq=False)
class CodeObjectPoint:
    """A code object's launch at a neighbouring problem that was executed.

    Args:
        share: Its weight in the time of the problem that is asked for; those of all neighbours add up to 1.
        K: Of the execution.
        rows: Of A in the tile that was executed.
    """

    share: float
    K: int
    rows: int
    work: LaunchWork


def row_levels(tile_m: int) -> tuple[int, ...]:
    """Rows of A at which a tile of ``tile_m`` is executed; times between lie on lines."""
    return 1, tile_m // 2, tile_m


def code_object_points(tile: tuple[int, int], shape: GemmShape) -> tuple[CodeObjectPoint, ...]:
    """The launch of a code object, from executions at the neighbouring values of K and rows of A."""
    along_k = between(shape.K, NODES)
    along_m = between(min(shape.M, tile[0]), row_levels(tile[0]))
    return tuple(
        CodeObjectPoint(k_share * m_share, K, rows, _code_object_work(tile, shape, K, rows))
        for K, k_share in along_k.items()
        for rows, m_share in along_m.items()
        if k_share * m_share
    )


def between(value: int, nodes: Sequence[int]) -> Mapping[int, float]:
    """Weights of the two ascending ``nodes`` on whose line ``value`` lies; the last line goes on at both ends."""
    at = min(max(bisect_left(nodes, value) - 1, 0), len(nodes) - 2)
    low, high = nodes[at : at + 2]
    share = (value - low) / (high - low)
    return {low: 1 - share, high: share}


def _code_object_work(tile: tuple[int, int], shape: GemmShape, K: int, rows: int) -> LaunchWork:
    code_object = find_catalogue().find(*tile)
    coverage = CodeObjectCoverage(shape, code_object)
    workgroups = coverage.num_m * coverage.num_n
    full_rows = (shape.M / coverage.num_m if tile[0] < shape.M else rows) / tile[0]
    names = {"a": "a", "a_scale": "a_scale", "b": "b", "b_scale": "b_scale", "out": "out"}
    tile_m, tile_n = coverage.tiles()
    sharing = tile_sharing(names, tile_m, tile_n, np.zeros_like(tile_m), min(workgroups, 256))
    read = (shape.M + shape.N) * K * 17 / 32
    return LaunchWork(str(code_object), code_object_streams(tile, K, rows), workgroups, 1, sharing, read, full_rows)


@cache
def code_object_streams(tile: tuple[int, int], K: int, rows: int) -> tuple[WaveStream, ...]:
    """The waves of one workgroup of a code object, executed with ``K`` and so many rows of A."""
    code_object = find_catalogue().find(*tile)
    shape = GemmShape(rows, 2 * tile[1], K)
    out = SimulatedBuffer(np.zeros((shape.M, shape.N), np.uint16))
    launch = code_object_launch(code_object, random_operands(shape, 0), 0, out)
    result = simulate(load_code_object(code_object.path, code_object.symbol), launch, [(0, 0, 0)])
    return wave_streams(Executed(result.recording, 4))
