"""Execute a candidate's machine code on the simulator and compare its output with the float64 reference.

A few output tiles of the real shape are computed: those with the tails of M and N, the first, and random ones. Every
launch runs the workgroups that these tiles depend on. That the grids have every workgroup once is a matter of integers.
Where workgroups hand work to one another, they run again in orders of arrival, and the bits must be the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from kernels.errors import WrongResultError
from kernels.launches.coverage import GridIndex, TileCoverage
from kernels.launches.native import NativeKernel
from kernels.launches.program import KernelCall, Program
from kernels.problem import BLOCK, GemmShape
from kernels.wording import counted
from search.gate.arrivals import arrivals, last_arrivals
from search.gate.inputs import LATER_TURNS
from search.gate.regions import choose_regions, every_region
from search.gate.sample import Sample, needs_nan_first, take_sample
from search.gfx950.code.calls import CompiledCall
from search.gfx950.simulator import (
    DecodedKernel,
    Histogram,
    SimulatedBuffer,
    SimulatedLaunch,
    SimulationError,
    SimulationResult,
    simulate,
)
from search.gfx950.simulator.launch import DEFAULT_BUDGET, KernargPacker
from search.gfx950.simulator.state.findings import SimulatorLimitError
from search.gfx950.simulator.state.recording import Recording


@dataclass(frozen=True)
class SimulatedCall:
    """A launch with its loaded machine code."""

    call: KernelCall
    kernel: DecodedKernel
    waves: int
    lds_bytes: int


@dataclass(frozen=True)
class GateReport:
    """What a clean execution showed.

    Args:
        max_rel_error: Largest relative error of the elements compared.
        histograms: Executed instructions of each launch.
        recordings: What each launch executed, for whoever times it.
    """

    max_rel_error: float
    elements: int
    histograms: tuple[Histogram, ...]
    recordings: tuple[Recording, ...]
    check_s: float


def check_program(
    program: Program,
    calls: Sequence[SimulatedCall],
    shape: GemmShape,
    budget: int = DEFAULT_BUDGET,
    *,
    stride_am: int | None = None,
    every_order: bool = False,
) -> GateReport:
    """Execute the chosen tiles of ``program``.

    Args:
        budget: Instructions that a wave may execute.
        stride_am: Elements from one row of A to the next, NaN between them, that ``program`` was made for; None: K.
        every_order: Where workgroups of a tile hand work to one another, let all of them arrive in every order (of more
            than a few in a sample of orders), instead of each as the last one.

    Raises:
        WrongResultError: A grid with gaps, a finding of the simulator, a result beyond what rounding can do to a sum,
            or a store beside a workgroup's tile.
        SimulatorLimitError: An instruction that is not modelled, or a workspace larger than the memory.
    """
    start = time.perf_counter()
    with _limits():
        sample = take_sample(program, shape, stride_am=stride_am)
        results = _execute(sample, calls, budget)
        _arrive_otherwise(sample, calls, results, budget, every_order)
        max_rel_error = sample.compare()
        if needs_nan_first(program, shape):
            tile = choose_regions(program, shape).first()
            _compared(take_sample(program, shape, nan_first=True, stride_am=stride_am, regions=tile), calls, budget)
    return GateReport(
        max_rel_error,
        sample.elements,
        tuple(result.histogram for result in results),
        tuple(result.recording for result in results),
        time.perf_counter() - start,
    )


def check_every_tile(
    program: Program, calls: Sequence[SimulatedCall], shape: GemmShape, limit: float, budget: int = DEFAULT_BUDGET
) -> None:
    """Execute each tile of C, or as many as ``limit`` multiplications are enough for.

    Raises:
        WrongResultError, SimulatorLimitError: As :func:`check_program`.
    """
    with _limits():
        for regions in every_region(program, shape, limit):
            _compared(take_sample(program, shape, regions=regions), calls, budget)


def check_every_step(
    program: Program, calls: Sequence[SimulatedCall], shape: GemmShape, step: int, budget: int = DEFAULT_BUDGET
) -> None:
    """Execute a tile until a NaN and an Inf were in each ``step`` columns of K, and every rule of rounding showed.

    Raises:
        WrongResultError, SimulatorLimitError: As :func:`check_program`.
    """
    tile = choose_regions(program, shape).first()
    rows, groups = tile.checked[0].rows, range(0, shape.K // BLOCK, step // BLOCK)
    with _limits():
        for turn in LATER_TURNS:
            _compared(take_sample(program, shape, turn=turn, regions=tile), calls, budget)
        for first in range(0, len(groups), len(rows)):
            sample = take_sample(program, shape, nan_first=True, regions=tile)
            sample.inputs.place_nans(dict(zip(rows, groups[first:])))  # noqa: B905 - as many as there are rows
            _compared(sample, calls, budget)


def _compared(sample: Sample, calls: Sequence[SimulatedCall], budget: int) -> None:
    _execute(sample, calls, budget)
    sample.compare()


@contextmanager
def _limits() -> Iterator[None]:
    """What keeps the simulator from executing a program, as an outcome of the candidate."""
    try:
        yield
    except SimulationError as error:
        raise SimulatorLimitError(f"not checked: {error}") from error
    except MemoryError as error:
        raise SimulatorLimitError("not checked: its workspace does not fit the memory") from error


def _execute(sample: Sample, calls: Sequence[SimulatedCall], budget: int) -> list[SimulationResult]:
    """Run every launch on the sample's memory."""
    results = []
    for number, one in enumerate(calls):
        result = _run(one, sample.memory, sample.workgroups[number], budget)
        sample.reject_stray_stores(number, result)
        results.append(result)
    sample.reject_repeated_stores(len(calls) - 1, results[-1])
    sample.reject_open_tickets()
    return results


def _arrive_otherwise(
    sample: Sample, calls: Sequence[SimulatedCall], results: Sequence[SimulationResult], budget: int, every_order: bool
) -> None:
    """Run again each launch that takes tickets, in orders of arrival.

    Raises:
        WrongResultError: A finding, other bits, or a ticket that is left open.
    """
    taken = {buffer.name for buffer in sample.program.tickets}
    for number, one in enumerate(calls):
        coverage = one.call.coverage
        if taken.isdisjoint(one.call.args.values()) or not isinstance(coverage, TileCoverage):
            continue
        for again, chosen, turns in _orders(sample, number, results[number], coverage, every_order):
            _run(one, again.memory, chosen, budget, turns)
            again.reject_open_tickets()
            again.reject_other_bits(sample)


def _orders(
    sample: Sample, number: int, result: SimulationResult, coverage: TileCoverage, every_order: bool
) -> Iterator[tuple[Sample, Sequence[GridIndex], Sequence[int] | None]]:
    """Memory, workgroups and their turns: of all orders on the tickets that the last run left, or of the last ones."""
    workgroups = sample.workgroups[number]
    if not every_order:
        for last in last_arrivals(workgroups, coverage):
            yield sample.before_last(number, result, last), last, None
        return
    for one in arrivals(workgroups, coverage):
        turns = {workgroup: turn for turn, chosen in enumerate(one) for workgroup in chosen}
        yield sample.before_stores(number, result), list(turns), list(turns.values())


def _run(
    one: SimulatedCall, memory: Mapping[str, SimulatedBuffer], workgroups: Sequence[GridIndex], budget: int,
    turns: Sequence[int] | None = None,
) -> SimulationResult:  # fmt: skip
    call = one.call
    arguments = {name: memory[value] if isinstance(value, str) else value for name, value in call.args.items()}
    pack = _packer(call, call.kernel) if isinstance(call.kernel, NativeKernel) else None
    launch = SimulatedLaunch(arguments, call.grid, (64 * one.waves, 1, 1), one.lds_bytes, pack)
    result = simulate(one.kernel, launch, workgroups, budget, turns)
    if result.findings:
        first, *more = result.findings
        others = f" (and {counted(len(more), 'more finding')})" if more else ""
        raise WrongResultError(f"{call.name}: {first}{others}")
    return result


def _packer(call: KernelCall, kernel: NativeKernel) -> KernargPacker:
    """The argument buffer as the launcher of the native kernel packs it."""
    integers = {name: value for name, value in call.args.items() if isinstance(value, int)}

    def pack(addresses: Mapping[str, int]) -> bytes:
        pointers = {name: addresses[name] for name in call.args if name not in integers}
        return kernel.pack({**integers, **pointers})

    return pack


def load_calls(compiled: Sequence[CompiledCall]) -> list[SimulatedCall]:
    """The launches, decoded for the simulator.

    Raises:
        SimulatorLimitError: The code has an instruction that is not modelled.
    """
    try:
        return [SimulatedCall(one.call, one.decoded(), one.kernel.num_warps, one.kernel.lds_bytes) for one in compiled]
    except SimulationError as error:
        raise SimulatorLimitError(f"not checked: {error}") from error
