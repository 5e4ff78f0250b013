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
from kernels.tiling import Coverage, GridIndex
from search.gate_inputs import GateInputs
from search.gate_regions import Region, choose_regions
from search.gfx950.simulator import Buffer as SimulatorBuffer
from search.gfx950.simulator import Histogram, Kernel, Launch, SimulationError, simulate
from search.gfx950.simulator.launch import DEFAULT_BUDGET

Array = npt.NDArray[Any]
DTYPES = {"bf16": np.uint16, "fp32": np.float32, "u8": np.uint8}
SEED = 20240913
SHADOW_BYTES = 1 << 24  # larger workspaces are poisoned but not tracked byte by byte
POISONED = 0xFFFF  # bits of an output element that nobody wrote: a NaN
MAX_ULP = 1  # bf16 steps: fp32 sums may differ in their last bit by order


class SimulatorLimitError(KernelError):
    """The simulator cannot execute this code, so it could not be checked."""

    outcome = "crashed"


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


def check_program(
    program: Program, calls: Sequence[SimulatedCall], shape: GemmShape, budget: int = DEFAULT_BUDGET
) -> GateReport:
    """Execute the chosen tiles of ``program``.

    Args:
        program: To check at ``shape``.
        calls: Its launches with their code.
        shape: Problem.
        budget: Instructions that a wave may execute.

    Raises:
        WrongResultError: A finding of the simulator, or a result off by more than one bf16 step.
        SimulatorLimitError: An instruction that is not modelled, or a workspace larger than the memory.
    """
    start = time.perf_counter()
    try:
        sample = take_sample(program, shape)
        histograms = tuple(
            _run(one, sample.memory, chosen, budget) for one, chosen in zip(calls, sample.workgroups, strict=True)
        )
    except SimulationError as error:
        raise SimulatorLimitError(f"not checked: {error}") from error
    except MemoryError as error:
        raise SimulatorLimitError("not checked: its workspace does not fit the memory") from error
    return GateReport(sample.compare(), sample.elements, histograms, time.perf_counter() - start)


@dataclass(frozen=True, eq=False)
class Sample:
    """The part of a problem that is executed, with its memory.

    Args:
        inputs: Operands.
        memory: By name of the buffer; outputs and workspaces hold NaN.
        checked: Regions of C that are compared.
        written: Regions of C that the chosen workgroups may write.
        workgroups: Of each launch, in order.
    """

    inputs: GateInputs
    memory: Mapping[str, SimulatorBuffer]
    checked: Sequence[Region]
    written: Sequence[Region]
    workgroups: Sequence[Sequence[GridIndex]]

    @property
    def elements(self) -> int:
        """How many elements are compared."""
        return sum(len(region.rows) * len(region.columns) for region in self.checked)

    def compare(self) -> float:
        """Largest relative error of the output, once every launch has run.

        Raises:
            WrongResultError: An element is off, or one was written that no chosen workgroup owns.
        """
        array = self.memory["out"].array
        out = torch.from_numpy(array).view(torch.bfloat16)
        largest = max(_compare(out, self.inputs, region) for region in self.checked)
        if array.nbytes <= SHADOW_BYTES:
            _reject_stray_writes(array, self.written)
        return largest


def take_sample(program: Program, shape: GemmShape, *, infinite: bool = True) -> Sample:
    """Choose what to execute of ``program``, and lay out its operands, see :class:`~search.gate_inputs.GateInputs`."""
    inputs = shared_inputs(shape, infinite)
    checked, touched = choose_regions(program, shape)
    for region in touched[0]:
        inputs.fill(region.rows, _whole_blocks(region.columns))
    memory = {buffer.name: _memory(buffer, inputs, touched[0]) for buffer in program.buffers}
    chosen = [_workgroups(call.coverage, regions) for call, regions in zip(program.calls, touched, strict=True)]
    return Sample(inputs, memory, checked, touched[-1], chosen)


@functools.lru_cache(maxsize=4)
def shared_inputs(shape: GemmShape, infinite: bool) -> GateInputs:
    """Operands of ``shape``, kept while this process checks its candidates."""
    return GateInputs(shape, SEED, infinite)


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


def _workgroups(coverage: Coverage, regions: Sequence[Region]) -> tuple[GridIndex, ...]:
    """Every workgroup that one of the regions depends on, once."""
    wanted: dict[GridIndex, None] = {}
    for region in regions:
        wanted.update(dict.fromkeys(coverage.workgroups(region.rows, region.columns)))
    return tuple(wanted)


def _run(
    one: SimulatedCall, memory: Mapping[str, SimulatorBuffer], workgroups: Sequence[GridIndex], budget: int
) -> Histogram:
    call = one.call
    arguments = {name: memory[value] if isinstance(value, str) else value for name, value in call.args.items()}
    launch = Launch(arguments, call.grid, (64 * one.waves, 1, 1), one.lds_bytes)
    result = simulate(one.kernel, launch, workgroups, budget)
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
            f"C[{rows.start + m}, {columns.start + n}] is {float(actual[m, n]):g} instead of "
            f"{float(reference[m, n]):g}; {report.mismatches} of {report.elements} elements of its tile are wrong"
        )
    return report.max_rel


def _reject_stray_writes(out: Array, written: Sequence[Region]) -> None:
    """Whether everything outside of the ``written`` regions still is the poison that it was.

    Raises:
        WrongResultError: An element is not.
    """
    stray = out != POISONED
    for region in written:
        stray[region.rows.start : region.rows.stop, region.columns.start : region.columns.stop] = False
    if stray.any():
        m, n = (int(index) for index in np.argwhere(stray)[0])
        raise WrongResultError(f"C[{m}, {n}] was written by a workgroup of another tile ({int(stray.sum())} elements)")
