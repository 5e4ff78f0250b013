"""Execute a candidate's machine code on the simulator and compare its output with the float64 reference.

A few output tiles of the real shape are computed: those with the tails of M and N, the first, and a random one.
Every launch runs the workgroups that these tiles depend on.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernels.errors import WrongResultError
from kernels.launches.coverage import Coverage, GridIndex
from kernels.launches.kernels import NativeKernel, PrebuiltKernel
from kernels.launches.program import Buffer, KernelCall, Program
from kernels.problem import GemmShape
from kernels.wording import counted
from search.gate.inputs import GateInputs
from search.gate.regions import Region, choose_regions
from search.gate.tolerance import bf16_sum_bound, judge_result
from search.gfx950.code.calls import CompiledCall
from search.gfx950.code.rocm import loaded_code_object
from search.gfx950.simulator import Buffer as SimulatorBuffer
from search.gfx950.simulator import (
    Histogram,
    Kernel,
    Launch,
    SimulationError,
    SimulationResult,
    load_assembly,
    simulate,
)
from search.gfx950.simulator.launch import DEFAULT_BUDGET, Packer
from search.gfx950.simulator.state.findings import SimulatorLimitError
from search.gfx950.simulator.state.recording import Recording

Array = npt.NDArray[Any]
DTYPES = {"bf16": np.uint16, "fp32": np.float32, "u8": np.uint8}
SEED = 20240913
SHADOW_BYTES = 1 << 24  # larger workspaces are poisoned but not tracked byte by byte
POISONED = 0xFFFF  # bits of an output element that nobody wrote: a NaN


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
        recordings: What each launch executed, for whoever times it.
        check_s: Seconds that it took.
    """

    max_rel_error: float
    elements: int
    histograms: tuple[Histogram, ...]
    recordings: tuple[Recording, ...]
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
        WrongResultError: A finding of the simulator, a result off by more than one bf16 step (or than what sums of
            bf16 values allow, where the program has such), or a store beside the tiles.
        SimulatorLimitError: An instruction that is not modelled, or a workspace larger than the memory.
    """
    start = time.perf_counter()
    try:
        sample = take_sample(program, shape)
        results: list[SimulationResult] = []
        for one, chosen in zip(calls, sample.workgroups, strict=True):
            if one is calls[-1]:
                sample.note_output()
            results.append(_run(one, sample.memory, chosen, budget))
        if isinstance(calls[-1].call.kernel, NativeKernel):
            sample.reject_repeated_stores(calls[-1].call, results[-1].histogram)
    except SimulationError as error:
        raise SimulatorLimitError(f"not checked: {error}") from error
    except MemoryError as error:
        raise SimulatorLimitError("not checked: its workspace does not fit the memory") from error
    return GateReport(
        sample.compare(),
        sample.elements,
        tuple(result.histogram for result in results),
        tuple(result.recording for result in results),
        time.perf_counter() - start,
    )


@dataclass(frozen=True, eq=False)
class Sample:
    """The part of a problem that is executed, with its memory.

    Args:
        inputs: Operands.
        memory: By name of the buffer; outputs and workspaces hold NaN.
        checked: Regions of C that are compared.
        written: Regions of C that the chosen workgroups may write.
        workgroups: Of each launch, in order.
        bf16_slice_k: Of the program.
    """

    inputs: GateInputs
    memory: Mapping[str, SimulatorBuffer]
    checked: Sequence[Region]
    written: Sequence[Region]
    workgroups: Sequence[Sequence[GridIndex]]
    bf16_slice_k: int | None = None
    _before: list[Array] = field(default_factory=list)

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
        largest = max(_compare(out, self.inputs, region, self.bf16_slice_k) for region in self.checked)
        if array.nbytes <= SHADOW_BYTES:
            _reject_stray_writes(array, self._before[0] if self._before else POISONED, self.written)
        return largest

    def note_output(self) -> None:
        """Remember the output before the last launch: an earlier one may have cleared more of it than the tiles."""
        array = self.memory["out"].array
        if array.nbytes <= SHADOW_BYTES:
            self._before[:] = [array.copy()]

    def reject_repeated_stores(self, call: KernelCall, histogram: Histogram) -> None:
        """Whether ``call`` stored each element of its tiles once, and nothing else.

        A kernel that writes beyond the end of its tile's rows hits the beginning of the next ones. Where the tile that
        owns these runs as well, only the number of bytes tells, whatever value came last.

        Raises:
            WrongResultError: It stored more or less.
        """
        if "out" not in call.args.values():
            return
        elements = sum(len(rows) * len(columns) for rows, columns in {(r.rows, r.columns) for r in self.written})
        slices = len({z for _, _, z in self.workgroups[-1]}) if self.bf16_slice_k is not None else 1
        expected = elements * slices * self.memory["out"].array.itemsize
        if histogram.global_written_bytes != expected:
            raise WrongResultError(
                f"{call.name} stored {histogram.global_written_bytes} bytes, its tiles have {expected}"
            )


def take_sample(program: Program, shape: GemmShape, *, infinite: bool = True) -> Sample:
    """Choose what to execute of ``program``, and lay out its operands, see :class:`~search.gate.inputs.GateInputs`."""
    inputs = shared_inputs(shape, infinite)
    checked, touched = choose_regions(program, shape)
    for region in touched[0]:
        inputs.fill(region.rows, _whole_blocks(region.columns))
    memory = {buffer.name: _memory(buffer, inputs, touched[0]) for buffer in program.buffers}
    chosen = [_workgroups(call.coverage, regions) for call, regions in zip(program.calls, touched, strict=True)]
    return Sample(inputs, memory, checked, touched[-1], chosen, program.bf16_slice_k)


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
) -> SimulationResult:
    call = one.call
    arguments = {name: memory[value] if isinstance(value, str) else value for name, value in call.args.items()}
    pack = _packer(call) if isinstance(call.kernel, NativeKernel) else None
    launch = Launch(arguments, call.grid, (64 * one.waves, 1, 1), one.lds_bytes, pack)
    result = simulate(one.kernel, launch, workgroups, budget)
    if result.findings:
        first, *more = result.findings
        others = f" (and {counted(len(more), 'more finding')})" if more else ""
        raise WrongResultError(f"{call.name}: {first}{others}")
    return result


def _packer(call: KernelCall) -> Packer:
    """The argument buffer as the launcher of the native kernel packs it."""
    integers = {name: value for name, value in call.args.items() if isinstance(value, int)}

    def pack(addresses: Mapping[str, int]) -> bytes:
        pointers = {name: addresses[name] for name in call.args if name not in integers}
        packed: bytes = call.kernel.pack({**integers, **pointers})
        return packed

    return pack


def _compare(out: torch.Tensor, inputs: GateInputs, region: Region, bf16_slice_k: int | None) -> float:
    """Largest relative error of the region.

    Raises:
        WrongResultError: An element is off.
    """
    rows, columns = region.rows, region.columns
    a, b = inputs.values(rows, columns)
    reference = a @ b.T
    actual = out[rows.start : rows.stop, columns.start : columns.stop]
    report = judge_result(actual, reference, None if bf16_slice_k is None else bf16_sum_bound(a, b, bf16_slice_k))
    if report.first_mismatch is not None:
        m, n = report.first_mismatch
        raise WrongResultError(
            f"C[{rows.start + m}, {columns.start + n}] is {float(actual[m, n]):g} instead of "
            f"{float(reference[m, n]):g}; {report.mismatches} of {report.elements} elements of its tile are wrong"
        )
    return report.max_rel


def _reject_stray_writes(out: Array, before: Array | int, written: Sequence[Region]) -> None:
    """Whether everything outside of the ``written`` regions still is what it was ``before`` the last launch.

    Raises:
        WrongResultError: An element is not.
    """
    stray = out != before
    for region in written:
        stray[region.rows.start : region.rows.stop, region.columns.start : region.columns.stop] = False
    if stray.any():
        m, n = (int(index) for index in np.argwhere(stray)[0])
        size = counted(int(stray.sum()), "element")
        raise WrongResultError(f"C[{m}, {n}] was written by a workgroup of another tile ({size})")


def load_calls(compiled: Sequence[CompiledCall]) -> list[SimulatedCall]:
    """The launches, decoded for the simulator.

    Raises:
        SimulatorLimitError: The code has an instruction that is not modelled.
    """
    try:
        return [SimulatedCall(one.call, _loaded(one), one.kernel.num_warps, one.kernel.lds_bytes) for one in compiled]
    except SimulationError as error:
        raise SimulatorLimitError(f"not checked: {error}") from error


def _loaded(one: CompiledCall) -> Kernel:
    if isinstance(one.call.kernel, PrebuiltKernel):
        return loaded_code_object(one.call.kernel)
    return load_assembly(one.kernel.assembly)
