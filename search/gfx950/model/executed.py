"""Predicted time of a program from the instructions that the simulator executed: the rung ``predicted``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from kernels.launches.code_object import CodeObjectCoverage
from kernels.launches.coverage import Indices, TileCoverage
from kernels.launches.program import KernelCall, Program
from kernels.problem import GemmShape
from search.gfx950.code.calls import CompiledCall
from search.gfx950.machine import ARCH, Machine
from search.gfx950.model.constants import CONSTANTS, Constants
from search.gfx950.model.issue import Kind
from search.gfx950.model.launch_time import XCDS, LaunchTime, LaunchWork, Sharing, launch_time, simulated
from search.gfx950.model.stream import Executed, WaveStream, wave_streams
from search.gfx950.simulator.state.recording import Recording

MODEL_VERSION = "gfx950-s2"
WEIGHT = ("b", "b_scale")
MOVES = (Kind.LOAD, Kind.STORE)


@dataclass(frozen=True)
class Prediction:
    """Predicted time of a program and where it goes. All times in microseconds.

    Args:
        predicted_us: Time of the whole program in the machine's harness.
        lo_us: Lower end of an interval that holds nine of ten times of rows that were not fitted.
        tie: Relative difference below which two candidates of one shape are not told apart.
        model: Version of the model, and the harness: times of two are never compared.
        bound: Name of the largest term: ``launch``, ``extra``, or a limit of the largest kernel.
        roofline_us: Least time of the problem: dense FP4 peak or peak HBM bandwidth, whatever takes longer.
        terms: What each limit would take alone: ``launch_us``, the fixed cost of the first kernel; ``extra_us``, all
            kernels but the largest, with the fixed cost of each beyond the first; of the largest kernel ``mfma_us``,
            ``valu_us`` and ``lds_us``, for which these units are busy, ``feed_us``, its operands into a compute unit,
            ``latency_us``, what its mean wave waits for memory and for the LDS, ``hbm_us``, its distinct bytes from
            memory that nothing hides, and ``write_us``, its results.
    """

    predicted_us: float
    lo_us: float
    hi_us: float
    tie: float
    model: str
    bound: str
    roofline_us: float
    terms: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class ExecutedCall:
    """One launch of a program as it was executed.

    Args:
        resident: Workgroups that fit on a compute unit.
    """

    call: KernelCall
    executed: Executed
    resident: int


def executed_call(one: CompiledCall, recording: Recording, machine: Machine) -> ExecutedCall:
    """A launch whose workgroups the simulator recorded; ``machine`` decides how many fit a compute unit."""
    waves = one.kernel.num_warps
    resident = machine.resident_workgroups(one.analysis.resources.vgprs, one.lds_bytes, waves)
    return ExecutedCall(one.call, Executed(recording, waves), max(1, int(resident)))


def program_works(program: Program, calls: Sequence[ExecutedCall]) -> tuple[LaunchWork, ...]:
    """What each launch of ``program`` does, in order."""
    written: set[str] = set()
    works = []
    for one in calls:
        streams = wave_streams(one.executed)
        works.append(_work(program, one, streams, frozenset(written)))
        written |= {_buffer(one.call, name) for name in works[-1].moved(Kind.STORE)}
    return tuple(works)


def _work(program: Program, one: ExecutedCall, streams: tuple[WaveStream, ...], written: frozenset[str]) -> LaunchWork:
    call = one.call
    loads, stores = ({name for wave in streams for moved, name in wave.moved if moved is kind} for kind in MOVES)
    exchanged = frozenset(loads & stores)
    pointers = {name: buffer for name, buffer in call.args.items() if isinstance(buffer, str)}
    at_once = min(call.workgroups, 256 * one.resident)
    return LaunchWork(
        name=call.name,
        workgroup=streams,
        workgroups=call.workgroups,
        resident=one.resident,
        sharing=sharing_of(call, at_once),
        read_bytes=float(sum(program.buffer(pointers[name]).bytes for name in loads - exchanged if name in pointers)),
        full_rows=_full_rows(call),
        handed=frozenset(name for name in loads if pointers.get(name) in written),
        exchanged=exchanged,
    )


def _buffer(call: KernelCall, argument: str) -> str:
    """The program's name of the buffer that ``argument`` points to."""
    return str(call.args.get(argument, argument))


def _full_rows(call: KernelCall) -> float:
    match call.coverage:
        case TileCoverage(M=rows, BLOCK_M=block):
            return rows / (math.ceil(rows / block) * block)
        case CodeObjectCoverage() as coverage:
            return coverage.shape.M / (coverage.num_m * coverage.BLOCK_M)
    return 1.0


def sharing_of(call: KernelCall, at_once: int) -> Sharing:
    """What the first ``at_once`` workgroups of ``call`` share of each pointer argument."""
    tiles = _tile_order(call)
    pointers = {name: buffer for name, buffer in call.args.items() if isinstance(buffer, str)}
    if tiles is None or "b" not in pointers.values():
        return Sharing({}, {})
    return tile_sharing(pointers, *tiles, at_once)


def tile_sharing(
    pointers: Mapping[str, str], tile_m: Indices, tile_n: Indices, split: Indices, at_once: int
) -> Sharing:
    """The same of a GEMM's workgroups in the order of dispatch.

    Args:
        pointers: The program's name of the buffer behind each argument.
        tile_m: Tile row of each workgroup.
        split: Its slice of K.
        at_once: Workgroups that run at once.
    """
    tile_m, tile_n, split = tile_m[:at_once], tile_n[:at_once], split[:at_once]
    die = np.arange(len(tile_m)) % XCDS
    keys = {name: tile_n if buffer in WEIGHT else tile_m for name, buffer in pointers.items()}
    return Sharing(
        {name: _distinct(key, split) for name, key in keys.items()},
        {name: _distinct(key, split, die) for name, key in keys.items()},
    )


def _distinct(*columns: Indices) -> float:
    """Different rows of ``columns`` over all of them."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        code = code * (int(column.max()) + 1) + column
    return len(np.unique(code)) / len(code)


def _tile_order(call: KernelCall) -> tuple[Indices, Indices, Indices] | None:
    """(tile row, tile column, slice of K) of each workgroup in the order of dispatch; None: it has no tiles of C."""
    match call.coverage:
        case TileCoverage() as coverage:
            return coverage.tiles()
        case CodeObjectCoverage() as coverage:
            tile_m, tile_n = coverage.tiles()
            slices = call.grid[2]
            return np.tile(tile_m, slices), np.tile(tile_n, slices), np.repeat(np.arange(slices), len(tile_m))
    return None


def times_of(
    works: Sequence[LaunchWork],
    shape: GemmShape,
    machine: Machine,
    constants: Constants = CONSTANTS,
    *,
    watch: bool = False,
) -> tuple[LaunchTime, ...]:
    """Time of each launch in the machine's harness; ``watch`` keeps spans for a picture."""
    warm = machine.harness.is_warm(shape.unique_bytes)
    run = partial(simulated, watch=watch)
    return tuple(launch_time(work, machine, constants, warm=warm, run=run) for work in works)


def predict_works(
    works: Sequence[LaunchWork], shape: GemmShape, machine: Machine, constants: Constants = CONSTANTS
) -> Prediction:
    """Predicted time of the program with these launches.

    Args:
        machine: With the harness whose times are asked for.
    """
    times = times_of(works, shape, machine, constants)
    harness = machine.harness
    gaps = harness.extra_kernel_us * (len(works) - 1)
    total = harness.launch_us + gaps + sum(time.work_us for time in times)
    main = max(range(len(works)), key=lambda index: times[index].work_us)
    least = max(ARCH.limits_us(machine.cu_count, shape.flops, shape.unique_bytes))
    terms = _terms(works[main], times[main], machine)
    terms["launch_us"] = harness.launch_us + times[main].dispatch_us
    terms["extra_us"] = total - harness.launch_us - times[main].work_us
    predicted = max(total, least)
    return Prediction(
        predicted_us=predicted,
        lo_us=max(least, predicted * (1 - harness.interval)),
        hi_us=predicted * (1 + harness.interval),
        tie=harness.tie,
        model=f"{MODEL_VERSION}-{harness.name}",
        bound=max(terms, key=lambda name: terms[name]).removesuffix("_us"),
        roofline_us=least,
        terms=terms,
    )


def _terms(work: LaunchWork, time: LaunchTime, machine: Machine) -> dict[str, float]:
    """What each limit of the largest kernel would take alone."""
    clk_us = 1.0 / machine.clock_mhz
    unit, supply = time.unit, time.supply
    count = min(-(-work.workgroups // machine.cu_count), 2 * work.resident)
    scale = -(-work.workgroups // machine.cu_count) / count
    feed = count * sum(work.operands().values()) / supply.load_bytes_per_clk
    write = count * sum(work.moved(Kind.STORE).values()) / supply.store_bytes_per_clk
    clks: Mapping[str, float] = {
        "mfma_us": unit.busy["mfma"], "valu_us": unit.busy["valu"], "lds_us": unit.busy["lds"],
        "feed_us": max(feed, unit.busy["vmem"]), "latency_us": unit.waited["memory"] + unit.waited["lds"],
        "write_us": write,
    }  # fmt: skip
    return {name: value * scale * clk_us for name, value in clks.items()} | {"hbm_us": time.memory_us}
