"""Execute a candidate's machine code on the simulator and compare its output with the float64 reference.

A few output tiles of the real shape are computed: those with the tails of M and N, the first, and a random one.
Every launch runs the workgroups that these tiles depend on.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernels.errors import KernelError, WrongResultError
from kernels.problem import GemmShape
from kernels.program import Buffer, KernelCall, Program
from kernels.reference import compare
from kernels.tiling import GridIndex, TileCoverage
from search.gate_inputs import GateInputs
from search.gfx950.simulator import Histogram, Kernel, Launch, SimulationError, simulate
from search.gfx950.simulator import Buffer as SimulatorBuffer

Array = npt.NDArray[Any]
DTYPES = {"bf16": np.uint16, "fp32": np.float32, "u8": np.uint8}
SEED = 20240913
MULTIPLICATIONS = 3e8  # of all tiles together, at most, unless a single tile has more
CHECKED_ROWS, CHECKED_COLUMNS = 64, 64  # of a tile, where a further kernel writes the output
SHADOW_BYTES = 1 << 24  # larger workspaces are poisoned but not tracked byte by byte
MAX_ULP = 1  # bf16 steps: fp32 sums may differ in their last bit by order


class SimulatorLimitError(KernelError):
    """The simulator cannot execute this code, so it could not be checked."""

    outcome = "crashed"


@dataclass(frozen=True)
class Region:
    """Rows and columns of C."""

    rows: range
    columns: range


@dataclass(frozen=True)
class SimulatedCall:
    """A launch with its loaded machine code.

    Args:
        call: The launch.
        kernel: Its code.
        waves: Of a workgroup.
        lds_bytes: That the launch allocates.
    """

    call: KernelCall
    kernel: Kernel
    waves: int
    lds_bytes: int


@dataclass(frozen=True)
class GateReport:
    """What a clean execution showed.

    Args:
        max_rel_error: Largest relative error of the elements compared.
        elements: Compared with the reference.
        histograms: Executed instructions of each launch.
        check_s: Seconds that it took.
    """

    max_rel_error: float
    elements: int
    histograms: tuple[Histogram, ...]
    check_s: float


def check_program(program: Program, calls: Sequence[SimulatedCall], shape: GemmShape) -> GateReport:
    """Execute the chosen tiles of ``program``.

    Raises:
        WrongResultError: A finding of the simulator, or a result off by more than one bf16 step.
        SimulatorLimitError: An instruction that is not modelled, or a workspace larger than the memory.
    """
    start = time.perf_counter()
    inputs = shared_inputs(shape)
    checked, touched = choose_regions(program, shape)
    for region in touched[0]:
        inputs.fill(region.rows, _whole_blocks(region.columns))
    try:
        memory = {buffer.name: _memory(buffer, inputs, touched[0]) for buffer in program.buffers}
        histograms = tuple(_run(one, memory, regions) for one, regions in zip(calls, touched, strict=True))
    except SimulationError as error:
        raise SimulatorLimitError(f"not checked: {error}") from error
    except MemoryError as error:
        raise SimulatorLimitError("not checked: its workspace does not fit the memory") from error
    out = torch.from_numpy(memory["out"].array).view(torch.bfloat16)
    errors = [_compare(out, inputs, region) for region in checked]
    elements = sum(len(region.rows) * len(region.columns) for region in checked)
    return GateReport(max(errors), elements, histograms, time.perf_counter() - start)


@functools.lru_cache(maxsize=4)
def shared_inputs(shape: GemmShape) -> GateInputs:
    """Operands of ``shape``, kept while this process checks its candidates."""
    return GateInputs(shape, SEED)


def choose_regions(program: Program, shape: GemmShape) -> tuple[list[Region], list[list[Region]]]:
    """The regions of C to compare, and for each launch the regions that it must work on.

    A launch touches whole tiles of its own, so the launches before it must cover these.
    """
    tiles = _choose_tiles(_gemm_coverage(program), shape)
    fused = "b" in program.calls[-1].args.values()
    checked = tiles if fused else [_window(tile) for tile in tiles]
    touched: list[list[Region]] = []
    regions = checked
    for call in reversed(program.calls):
        regions = [Region(*call.coverage.extent(region.rows, region.columns)) for region in regions]
        touched.insert(0, regions)
    return checked, touched


def _choose_tiles(coverage: TileCoverage, shape: GemmShape) -> list[Region]:
    """Tiles to compute, as many as are affordable: both tails, the first, each tail alone, a random one."""
    last_m, last_n = coverage.num_m - 1, coverage.num_n - 1
    random = np.random.default_rng((SEED, coverage.num_m, coverage.num_n))
    wanted = [(last_m, last_n), (0, 0), (last_m, 0), (0, last_n)]
    wanted.append((int(random.integers(coverage.num_m)), int(random.integers(coverage.num_n))))
    affordable = int(MULTIPLICATIONS / (coverage.BLOCK_M * coverage.BLOCK_N * shape.K))
    chosen = list(dict.fromkeys(wanted))[: max(1, affordable)]
    return [
        Region(
            range(m * coverage.BLOCK_M, min((m + 1) * coverage.BLOCK_M, shape.M)),
            range(n * coverage.BLOCK_N, min((n + 1) * coverage.BLOCK_N, shape.N)),
        )
        for m, n in chosen
    ]


def _gemm_coverage(program: Program) -> TileCoverage:
    """Tiles of the launch that reads the weight."""
    for call in program.calls:
        if "b" in call.args.values() and isinstance(call.coverage, TileCoverage):
            return call.coverage
    raise ValueError("the program has no launch that reads the weight")


def _window(tile: Region) -> Region:
    """The last rows and columns of a tile, where its tails are."""
    rows, columns = tile.rows, tile.columns
    return Region(
        range(max(rows.start, rows.stop - CHECKED_ROWS), rows.stop),
        range(max(columns.start, columns.stop - CHECKED_COLUMNS), columns.stop),
    )


def _whole_blocks(columns: range) -> range:
    """Columns up to the padding that a wide scale load reads."""
    return range(columns.start, -(-columns.stop // 256) * 256)


def _memory(buffer: Buffer, inputs: GateInputs, touched: Sequence[Region]) -> SimulatorBuffer:
    given = {"a": inputs.a, "b": inputs.b, "b_scale": inputs.b_scale}
    if buffer.name in given:
        return SimulatorBuffer(given[buffer.name])
    array = np.zeros(buffer.shape, DTYPES[buffer.dtype])
    if buffer.bytes <= SHADOW_BYTES:
        array.view(np.uint8)[...] = 0xFF  # NaN in every format
        # Packed operands have rows and groups of padding that reach no stored element: poisoned, but not forbidden.
        return SimulatorBuffer(array, initialised=buffer.dtype == "u8")
    bits = array.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[array.itemsize])
    for region in touched:  # NaN where somebody may look; the rest of a huge workspace stays untouched memory
        columns = region.columns if buffer.shape[-1] == inputs.shape.N else range(buffer.shape[-1])
        bits[..., region.rows.start : region.rows.stop, columns.start : columns.stop] = np.iinfo(bits.dtype).max
    return SimulatorBuffer(array)


def _run(one: SimulatedCall, memory: Mapping[str, SimulatorBuffer], regions: Sequence[Region]) -> Histogram:
    call = one.call
    wanted: dict[GridIndex, None] = {}
    for region in regions:
        wanted.update(dict.fromkeys(call.coverage.workgroups(region.rows, region.columns)))
    arguments = {name: memory[value] if isinstance(value, str) else value for name, value in call.args.items()}
    launch = Launch(arguments, call.grid, (64 * one.waves, 1, 1), one.lds_bytes)
    result = simulate(one.kernel, launch, list(wanted))
    if result.findings:
        first, *more = result.findings
        others = f" (and {len(more)} more findings)" if more else ""
        raise WrongResultError(f"{call.name}: {first}{others}")
    return result.histogram


def _compare(out: torch.Tensor, inputs: GateInputs, region: Region) -> float:
    """Largest relative error of the region.

    Raises:
        WrongResultError: An element is off.
    """
    rows, columns = region.rows, region.columns
    reference = inputs.reference(rows, columns)
    actual = out[rows.start : rows.stop, columns.start : columns.stop]
    report = compare(actual, reference, ulp=MAX_ULP)
    if report.first_mismatch is not None:
        m, n = report.first_mismatch
        raise WrongResultError(
            f"C[{rows.start + m}, {columns.start + n}] is {float(actual[m, n]):g} instead of {float(reference[m, n]):g}; "
            f"{report.mismatches} of {report.elements} elements of its tile are wrong"
        )
    return report.max_rel
