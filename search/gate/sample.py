"""The part of a program that a check executes: operands, memory, workgroups, and what may be written where."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from kernels.errors import WrongResultError
from kernels.launches.aiter_coverage import TileGridCoverage
from kernels.launches.coverage import Coverage, GridIndex, TiledCoverage, grid_fault
from kernels.launches.program import Buffer, Program
from kernels.problem import GemmShape
from kernels.wording import counted
from search.gate.inputs import GateInputs
from search.gate.regions import Region, Regions, choose_regions, fingerprint
from search.gate.tolerance import judge_result
from search.gfx950.simulator import SimulatedBuffer, SimulationResult
from search.gfx950.simulator.state.arrays import Array, lazy_zeros
from search.gfx950.simulator.state.stores import StoredRuns

DTYPES = {"bf16": np.uint16, "fp32": np.float32, "u8": np.uint8, "i32": np.uint32}
SEED = 20240913
SHADOW_BYTES = 1 << 24  # larger workspaces are poisoned but not tracked byte by byte
POISONED = 0xFFFF  # bits of an output element that nobody wrote: a NaN


@dataclass(frozen=True, eq=False)
class Sample:
    """The part of a problem that is executed, with its memory.

    Args:
        memory: By name of the buffer; outputs and workspaces hold NaN, tickets zeros.
        checked: Regions of C that are compared.
        touched: Of each launch, the regions that it works on.
        workgroups: Of each launch, in order.
    """

    program: Program
    inputs: GateInputs
    memory: Mapping[str, SimulatedBuffer]
    checked: Sequence[Region]
    touched: Sequence[Sequence[Region]]
    workgroups: Sequence[Sequence[GridIndex]]

    @property
    def elements(self) -> int:
        """How many elements are compared."""
        return sum(len(region.rows) * len(region.columns) for region in self.checked)

    def compare(self) -> float:
        """Largest relative error of the output, once every launch has run.

        Raises:
            WrongResultError: An element is off.
        """
        out = torch.from_numpy(self.memory["out"].array).view(torch.bfloat16)
        return max(_compare(out, self, region) for region in self.checked)

    def reject_stray_values(self) -> None:
        """Whether everything outside of the tiles is still poison, where nobody tells who stored what.

        Raises:
            WrongResultError: An element is not.
        """
        out = self.memory["out"].array
        untouched = POISONED if out.nbytes <= SHADOW_BYTES else 0  # see _memory
        height = max(1, SHADOW_BYTES // out[0].nbytes)
        for top in range(0, len(out), height):
            stray = out[top : top + height] != untouched
            for region in self.touched[-1]:
                rows = slice(max(region.rows.start - top, 0), max(region.rows.stop - top, 0))
                stray[rows, region.columns.start : region.columns.stop] = False
            if stray.any():
                m, n = (int(index) for index in np.argwhere(stray)[0])
                size = counted(int(stray.sum()), "element")
                raise WrongResultError(f"C[{top + m}, {n}] was written by a workgroup of another tile ({size})")

    def reject_stray_stores(self, number: int, result: SimulationResult) -> None:
        """Whether launch ``number``, which works on tiles of C, stored and added within its workgroups' own tiles.

        Raises:
            WrongResultError: A store went to another tile, whoever stored there before or afterwards.
        """
        call = self.program.calls[number]
        if not isinstance(call.coverage, TiledCoverage):
            return
        extents = (self.inputs.shape.M, self.inputs.shape.N)
        for argument, name in call.args.items():
            if isinstance(name, str) and self.program.buffer(name).shape[-2:] == extents:
                self._reject_stray(number, name, result.stores[argument], result)

    def _reject_stray(self, number: int, name: str, runs: StoredRuns, result: SimulationResult) -> None:
        M, N = self.inputs.shape.M, self.inputs.shape.N
        item = self.memory[name].array.itemsize
        row, first = np.divmod(runs.offset // item, N)
        last = first + np.maximum(runs.size // item, 1)
        inside = np.zeros(len(row), np.bool_)
        for region, mine in self._owned(number, result, runs):
            rows, columns = region.rows, region.columns
            place = row % M
            inside |= (
                mine & (place >= rows.start) & (place < rows.stop) & (first >= columns.start) & (last <= columns.stop)
            )
        if not inside.all():
            worst = int(inside.argmin())
            workgroup = result.workgroups[int(result.wave_workgroup[int(runs.wave[worst])])]
            place_text = f"{name}[{int(row[worst] % M)}, {int(first[worst])}]"
            raise WrongResultError(
                f"{self.program.calls[number].name}: {place_text} was written by workgroup {workgroup}, whose tile it "
                f"is not ({counted(int((~inside).sum()), 'store')})"
            )

    def _owned(self, number: int, result: SimulationResult, runs: StoredRuns) -> Iterator[tuple[Region, Array]]:
        """Each region of the launch, and which of the ``runs`` its workgroups made."""
        coverage = self.program.calls[number].coverage
        position = {workgroup: index for index, workgroup in enumerate(result.workgroups)}
        owner = result.wave_workgroup[runs.wave] if len(runs.wave) else runs.wave
        for region in self.touched[number]:
            own = np.zeros(len(position), np.bool_)
            own[[position[workgroup] for workgroup in coverage.workgroups(region.rows, region.columns)]] = True
            yield region, own[owner]

    def reject_repeated_stores(self, number: int, result: SimulationResult) -> None:
        """Whether launch ``number`` stored each element of its tiles of the output once.

        A wave that writes beyond the end of its rows hits the beginning of the next ones, which may be its own: then
        only the number of bytes tells, whatever value came last.

        Raises:
            WrongResultError: It stored more or less.
        """
        call = self.program.calls[number]
        argument = next((name for name, buffer in call.args.items() if buffer == "out"), None)
        if argument is None or not isinstance(call.coverage, TiledCoverage):
            return
        if isinstance(call.coverage, TileGridCoverage) and call.coverage.begins_anew:
            return
        slices = len({z for _, _, z in self.workgroups[number]}) if self.program.bf16_slice_k is not None else 1
        expected = _area(self.touched[number]) * slices * self.memory["out"].array.itemsize
        stored = int(result.stores[argument].size.sum())
        if stored != expected:
            raise WrongResultError(f"{call.name} stored {stored} bytes of the output, its tiles have {expected}")

    def before_stores(self, number: int, result: SimulationResult) -> Sample:
        """This sample with what launch ``number`` stored poisoned again, but for tickets."""
        call = self.program.calls[number]
        stored = {call.args[name] for name, runs in result.stores.items() if name in call.args and len(runs.offset)}
        again = {
            buffer.name: _memory(buffer, self.inputs, self.touched[0])
            for buffer in self.program.buffers
            if buffer.name in stored and buffer.role != "tickets"
        }
        return replace(self, memory={**self.memory, **again})

    def before_last(self, number: int, result: SimulationResult, last: Sequence[GridIndex]) -> Sample:
        """What those workgroups of launch ``number`` find that are ``last`` in their tiles; the output is poisoned."""
        call = self.program.calls[number]
        again = {"out": _memory(self.program.buffer("out"), self.inputs, self.touched[-1])}
        for argument, name in call.args.items():
            if name in {buffer.name for buffer in self.program.tickets}:
                left = _left_by_others(result, argument, last)
                again[name] = _memory(self.program.buffer(name), self.inputs, ())
                again[name].array.reshape(-1)[[offset // 4 for offset in left]] = list(left.values())
        mine = [
            region
            for region in self.touched[number]
            if not set(last).isdisjoint(call.coverage.workgroups(region.rows, region.columns))
        ]
        touched = [*self.touched[:-1], mine]
        return replace(self, memory={**self.memory, **again}, touched=touched)

    def reject_other_bits(self, first: Sample) -> None:
        """Whether the tiles of the output have the bits of ``first``.

        Raises:
            WrongResultError: An element has others.
        """
        for region in self.touched[-1]:
            rows, columns = region.rows, region.columns
            part = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
            other = self.memory["out"].array[part] != first.memory["out"].array[part]
            if other.any():
                m, n = np.argwhere(other)[0] + (rows.start, columns.start)
                count = counted(int(other.sum()), "element")
                raise WrongResultError(f"C[{m}, {n}] depends on the order in which workgroups arrive ({count})")

    def reject_open_tickets(self) -> None:
        """Whether every ticket is zero again, as the next launch needs it.

        Raises:
            WrongResultError: One is not.
        """
        for buffer in self.program.tickets:
            left = np.flatnonzero(self.memory[buffer.name].array)
            if left.size:
                value = int(self.memory[buffer.name].array[left[0]])
                raise WrongResultError(
                    f"{buffer.name}[{int(left[0])}] is {value} after the launch, not 0 ({counted(left.size, 'ticket')})"
                )


def _left_by_others(result: SimulationResult, argument: str, last: Sequence[GridIndex]) -> dict[int, int]:
    """What the atomics of whoever came last found first, by the offset; where one of ``last`` had a part."""
    runs, first = result.stores[argument], defaultdict[int, dict[GridIndex, int]](dict)
    owners = [result.workgroups[number] for number in result.wave_workgroup[runs.wave].tolist()]
    for offset, owner, before in zip(runs.offset.tolist(), owners, runs.before.tolist(), strict=True):
        first[offset].setdefault(owner, before)
    mine = {offset: found for offset, found in first.items() if not found.keys().isdisjoint(last)}
    return {offset: list(found.values())[-1] for offset, found in mine.items()}


def _area(regions: Sequence[Region]) -> int:
    """Elements of the union of regions that are made of the same tiles."""
    corners = sorted({edge for region in regions for edge in (region.rows.start, region.rows.stop)})
    area = 0
    for low, high in itertools.pairwise(corners):
        here = [region.columns for region in regions if region.rows.start <= low and high <= region.rows.stop]
        spans = sorted({(columns.start, columns.stop) for columns in here})
        end = 0
        for start, stop in spans:
            area += (high - low) * max(0, stop - max(start, end))
            end = max(end, stop)
    return area


def take_sample(
    program: Program, shape: GemmShape, *, extreme: bool = True, nan_first: bool = False, stride_am: int | None = None,
    turn: int = 0, regions: Regions | None = None,
) -> Sample:  # fmt: skip
    """Choose what to execute of ``program``, and lay out its operands, see :class:`~search.gate.inputs.GateInputs`.

    Args:
        program: To check at ``shape``, made for the stride.
        extreme: Operands go to the ends of their formats.
        nan_first: NaN in every row of A.
        stride_am: Elements from one row of A to the next; None: K.
        turn: Of the operands.
        regions: What to execute; None: a few tiles.

    Raises:
        WrongResultError: A launch's grid does not cover C once.
    """
    for call in program.calls:
        fault = grid_fault(call.coverage, call.grid, shape.M, shape.N)
        if fault is not None:
            raise WrongResultError(f"{call.name}: {fault}")
    inputs = shared_inputs(shape, extreme, nan_first, stride_am, program.ordinary_only, turn)
    regions = regions or choose_regions(program, shape)
    for region in regions.touched[0]:
        inputs.fill(region.rows, _whole_blocks(region.columns))
    inputs.move_nans(fingerprint(program))
    memory = {buffer.name: _memory(buffer, inputs, regions.touched[0]) for buffer in program.buffers}
    chosen = [_workgroups(call.coverage, parts) for call, parts in zip(program.calls, regions.touched, strict=True)]
    return Sample(program, inputs, memory, regions.checked, regions.touched, chosen)


def needs_nan_first(program: Program, shape: GemmShape) -> bool:
    """Whether the usual operands have no row with NaN, although the program must know it."""
    return shape.M == 1 and not program.ordinary_only


@functools.lru_cache(maxsize=4)
def shared_inputs(
    shape: GemmShape, extreme: bool = True, nan_first: bool = False, stride_am: int | None = None,
    ordinary: bool = False, turn: int = 0,
) -> GateInputs:  # fmt: skip
    """Operands of ``shape``, kept while this process checks its candidates."""
    return GateInputs(shape, SEED, extreme, nan_first, stride_am, ordinary, turn)


def _whole_blocks(columns: range) -> range:
    """Columns up to the padding that a wide scale load reads."""
    return range(columns.start, -(-columns.stop // 256) * 256)


def _memory(buffer: Buffer, inputs: GateInputs, touched: Sequence[Region]) -> SimulatedBuffer:
    given = {"a": inputs.a, "b": inputs.b, "b_scale": inputs.b_scale}
    if buffer.name in given:
        return SimulatedBuffer(given[buffer.name], writable=False)  # shared with the candidates to come
    array = lazy_zeros(buffer.shape, DTYPES[buffer.dtype])
    if buffer.role == "tickets":
        return SimulatedBuffer(array)
    if buffer.bytes <= SHADOW_BYTES:
        array.view(np.uint8)[...] = 0xFF  # NaN in every format
        # Packed operands have rows and groups of padding that reach no stored element: poisoned, but not forbidden.
        return SimulatedBuffer(array, initialised=buffer.dtype == "u8")
    bits = array.view({1: np.uint8, 2: np.uint16, 4: np.uint32}[array.itemsize])
    for region in touched:  # NaN where somebody may look; the rest of a huge workspace stays untouched memory
        columns = region.columns if buffer.shape[-1] == inputs.shape.N else range(buffer.shape[-1])
        bits[..., region.rows.start : region.rows.stop, columns.start : columns.stop] = np.iinfo(bits.dtype).max
    return SimulatedBuffer(array)


def _workgroups(coverage: Coverage, regions: Sequence[Region]) -> tuple[GridIndex, ...]:
    """Every workgroup that one of the regions depends on, once."""
    wanted: dict[GridIndex, None] = {}
    for region in regions:
        wanted.update(dict.fromkeys(coverage.workgroups(region.rows, region.columns)))
    return tuple(wanted)


def _compare(out: torch.Tensor, sample: Sample, region: Region) -> float:
    """Largest relative error of the region.

    Raises:
        WrongResultError: An element is off.
    """
    rows, columns = region.rows, region.columns
    expected = sample.inputs.expected(rows, columns, sample.program.bf16_slice_k)
    actual = out[rows.start : rows.stop, columns.start : columns.stop]
    report = judge_result(actual, expected.reference, expected.bound)
    if report.first_mismatch is not None:
        m, n = report.first_mismatch
        raise WrongResultError(
            f"C[{rows.start + m}, {columns.start + n}] is {float(actual[m, n]):g} instead of "
            f"{float(expected.reference[m, n]):g}; {report.mismatches} of {report.elements} elements of its tile are "
            "wrong"
        )
    return report.max_rel
