"""Execute single native kernels on chosen tiles and compare what they must and must not store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from kernels.errors import WrongResultError
from kernels.families.staged_hip import GEMM_POINTERS, STAGED_HIP, StagedHipConfig
from kernels.launches.code_object import THREADS, CodeObjectCoverage, launch_grid, prebuilt_kernel
from kernels.launches.coverage import Coverage, GridIndex
from kernels.launches.program import KernelCall
from kernels.mxfp4.layouts import padded_scale_shape, shuffle_scales, shuffle_weight
from kernels.mxfp4.numerics import Mxfp4Tensor, quantize
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import BLOCK, GemmShape
from kernels.rocm.code_objects import CodeObject, accumulates_in_bf16, slice_elements
from kernels.wording import counted
from search.gate.tolerance import bf16_sum_bound, judge_result
from search.gfx950.simulator import DecodedKernel, Histogram, SimulatedBuffer, SimulatedLaunch, simulate

Array = npt.NDArray[Any]
Tile = tuple[range, range]  # rows and columns of C


@dataclass(frozen=True)
class CheckedRun:
    """A right execution.

    Args:
        histogram: Executed instructions.
        elements: Values compared.
        max_abs_error: Largest error.
    """

    histogram: Histogram
    elements: int
    max_abs_error: float


def check_regions(
    shape: GemmShape,
    coverage: Coverage,
    tiles: Sequence[Tile],
    bits: Array,
    execute: Callable[[list[GridIndex]], Histogram],
    largest_error: Callable[[Array, Tile], float],
) -> CheckedRun:
    """Execute the workgroups behind ``tiles``; they must store right values there and nothing elsewhere.

    Args:
        shape: Problem.
        coverage: Of the launch.
        tiles: (rows, columns) of C; none for all of C. They grow to what their workgroups touch.
        bits: [..., M, N or more], what the launch stores to, with one pattern all over.
        execute: Runs these workgroups.
        largest_error: Of a region's part of ``bits`` [..., rows, columns]; raises WrongResultError for a wrong element.

    Raises:
        WrongResultError: By ``execute`` and ``largest_error``, or there was a store beside the regions.
    """
    regions = [coverage.extent(*tile) for tile in tiles or [(range(shape.M), range(shape.N))]]
    chosen = dict.fromkeys(index for region in regions for index in coverage.workgroups(*region))
    blank = bits.flat[0]
    histogram = execute(list(chosen))
    errors = [largest_error(_part(bits, region), region) for region in regions]
    for region in regions:
        _part(bits, region)[...] = blank
    stray = np.argwhere(bits != blank)
    if len(stray):
        others = counted(len(stray) - 1, "more element")
        raise WrongResultError(f"C{stray[0].tolist()} and {others} beside the tiles were written")
    return CheckedRun(histogram, sum(len(rows) * len(columns) for rows, columns in regions), max(errors))


def _part(bits: Array, region: Tile) -> Array:
    rows, columns = region
    return bits[..., rows.start : rows.stop, columns.start : columns.stop]


def simulate_clean(kernel: DecodedKernel, launch: SimulatedLaunch, chosen: Sequence[GridIndex]) -> Histogram:
    """What the workgroups ``chosen`` executed.

    Raises:
        WrongResultError: A finding of the simulator.
        SimulationError: The simulator does not model an instruction.
    """
    result = simulate(kernel, launch, chosen)
    if result.findings:
        raise WrongResultError(f"{result.findings[0]} (and {counted(len(result.findings) - 1, 'more finding')})")
    return result.histogram


def judged_error(actual: torch.Tensor, expected: torch.Tensor, bound: torch.Tensor | None = None) -> float:
    """Largest error of ``actual``.

    Args:
        actual: bf16 result.
        expected: float64 reference.
        bound: As :func:`search.gate.tolerance.judge_result` has it.

    Raises:
        WrongResultError: An element is off by more than that.
    """
    report = judge_result(actual, expected, bound)
    if not report.ok:
        raise WrongResultError(
            f"{report.mismatches} of {report.elements} elements are wrong, largest error {report.max_abs:g}"
        )
    return report.max_abs


UNWRITTEN: Final = 0xFFFF  # bf16 NaN
POISON: Final = 0xFF  # E8M0 NaN


@dataclass(frozen=True, eq=False)
class Operands:
    """What a kernel reads, and the values that it stands for.

    Args:
        shape: Problem.
        codes: [M, K // 2] uint8, A.
        scales: Shuffled scales of A, padded.
        weight: B.
        a_values: [M, K] float64.
        b_values: [N, K] float64.
    """

    shape: GemmShape
    codes: torch.Tensor
    scales: torch.Tensor
    weight: PackedWeight
    a_values: torch.Tensor
    b_values: torch.Tensor

    def product(self, tile: Tile) -> torch.Tensor:
        """C [rows, columns] in float64."""
        a, b = self.values(tile)
        return a @ b.T

    def values(self, tile: Tile) -> tuple[torch.Tensor, torch.Tensor]:
        """Float64 rows of A and of B behind a tile of C."""
        rows, columns = tile
        return self.a_values[rows.start : rows.stop], self.b_values[columns.start : columns.stop]


def random_operands(shape: GemmShape, seed: int, column_pad: int = POISON) -> Operands:
    """Normal values whose blocks differ in scale; padding rows of the scales hold NaN.

    Args:
        shape: Problem.
        seed: Of the random numbers.
        column_pad: Byte between K // 32 and the next multiple of 8 of each row of scales.
    """
    random = torch.Generator().manual_seed(seed)
    a = quantize(_blocks(shape.M, shape.K, random).to(torch.bfloat16))
    b = quantize(_blocks(shape.N, shape.K, random))
    weight = PackedWeight.from_shuffled(
        shuffle_weight(b.codes), padded_scales(b.scales, column_pad), N=shape.N, K=shape.K
    )
    return Operands(shape, a.codes, padded_scales(a.scales, column_pad), weight, _values(a), _values(b))


def _blocks(rows: int, K: int, random: torch.Generator) -> torch.Tensor:
    exponents = torch.randint(-2, 3, (rows, K // BLOCK, 1), generator=random)
    return torch.randn(rows, K // BLOCK, BLOCK, generator=random).mul_(torch.exp2(exponents)).reshape(rows, K)


def _values(tensor: Mxfp4Tensor) -> torch.Tensor:
    return tensor.dequantize(torch.float64)


def padded_scales(scales: torch.Tensor, column_pad: int) -> torch.Tensor:
    """Scales [rows, K // 32] shuffled, rows padded with NaN and columns with ``column_pad``."""
    rows, groups = scales.shape
    padded = torch.full(padded_scale_shape(rows, groups), POISON, dtype=torch.uint8)
    padded[:rows, groups:] = column_pad
    padded[:rows, :groups] = scales
    return shuffle_scales(padded)


def code_object_run_checked(
    kernel: DecodedKernel,
    code_object: CodeObject,
    operands: Operands,
    log2_k_split: int = 0,
    tiles: Sequence[Tile] = (),
) -> CheckedRun:
    """Execute the workgroups behind ``tiles`` and compare what they must and must not store.

    Args:
        kernel: ``code_object``, loaded.
        code_object: Tile and limits.
        operands: Of the problem.
        log2_k_split: See :func:`kernels.rocm.code_objects.check`; 0 demands C up to one bf16 step, more what
            :func:`search.gate.tolerance.bf16_sum_bound` allows.
        tiles: (rows, columns) of C; default all of C.

    Raises:
        WrongResultError: A finding of the simulator, a wrong element, or a store beside the tiles.
        SimulationError: The simulator does not model an instruction.
    """
    shape = operands.shape
    summed = accumulates_in_bf16(log2_k_split)
    out = np.full((shape.M, shape.N), 0 if summed else UNWRITTEN, np.uint16)
    launch = code_object_launch(code_object, operands, log2_k_split, SimulatedBuffer(out, initialised=summed))

    def largest_error(stored: Array, tile: Tile) -> float:
        a, b = operands.values(tile)
        bound = bf16_sum_bound(a, b, slice_elements(shape.K, log2_k_split)) if summed else None
        return judged_error(torch.from_numpy(stored).view(torch.bfloat16), a @ b.T, bound)

    coverage = CodeObjectCoverage(shape, code_object, log2_k_split)
    execute = partial(simulate_clean, kernel, launch)
    return check_regions(shape, coverage, tiles, out, execute, largest_error)


def code_object_launch(
    code_object: CodeObject, operands: Operands, log2_k_split: int, out: SimulatedBuffer
) -> SimulatedLaunch:
    """The launch of ``code_object`` on ``operands``, as AITER makes it."""
    shape = operands.shape
    packed = prebuilt_kernel(code_object, shape, log2_k_split)
    arguments: dict[str, SimulatedBuffer | Array] = {
        "out": out,
        "a": operands.codes.numpy(),
        "a_scale": operands.scales.numpy(),
        "b": operands.weight.data.numpy(),
        "b_scale": operands.weight.scale.numpy(),
    }
    return SimulatedLaunch(
        arguments,
        launch_grid(shape, code_object, log2_k_split),
        (THREADS, 1, 1),
        pack=lambda addresses: packed.pack({name: addresses[name] for name in packed.arg_names}),
    )


GUARD_COLUMNS: Final = 48  # between the rows of C, that nobody may touch


def hip_gemm_run_checked(
    kernel: DecodedKernel, config: StagedHipConfig, operands: Operands, tiles: Sequence[Tile] = ()
) -> CheckedRun:
    """Execute the workgroups behind ``tiles`` and compare what they must and must not store.

    Rows of C lie further apart than N. Where K is split, the fp32 slices are summed here.

    Args:
        kernel: The build of ``config``'s GEMM, loaded.
        config: Its parameters.
        operands: Of the problem.
        tiles: (rows, columns) of C; default all of C.

    Raises:
        WrongResultError: A finding of the simulator, a wrong element, or a store beside the tiles.
        SimulationError: The simulator does not model an instruction.
    """
    shape = operands.shape
    call = STAGED_HIP.program(shape, config).calls[1]
    bits = _blank_output(config, operands)

    def largest_error(stored: Array, tile: Tile) -> float:
        return judged_error(_summed(stored), operands.product(tile))

    execute = partial(simulate_clean, kernel, _hip_gemm_launch(call, operands, bits))
    return check_regions(shape, call.coverage, tiles, bits, execute, largest_error)


def _blank_output(config: StagedHipConfig, operands: Operands) -> Array:
    """Bits of bf16 C [M, N + guard] or of its fp32 slices [split_k, M, N], all NaN."""
    shape = operands.shape
    if config.split_k == 1:
        return np.full((shape.M, shape.N + GUARD_COLUMNS), UNWRITTEN, np.uint16)
    return np.full((config.split_k, shape.M, shape.N), np.iinfo(np.uint32).max, np.uint32)


def _summed(stored: Array) -> torch.Tensor:
    """The bf16 that a part of the output stands for."""
    if stored.dtype == np.uint32:
        return torch.from_numpy(stored.view(np.float32).sum(axis=0)).to(torch.bfloat16)
    return torch.from_numpy(stored).view(torch.bfloat16)


def _hip_gemm_launch(call: KernelCall, operands: Operands, bits: Array) -> SimulatedLaunch:
    integers = {name: value for name, value in call.args.items() if isinstance(value, int)}
    integers["stride_om"] = bits.shape[-1]
    inputs = (operands.codes, operands.scales, operands.weight.data, operands.weight.scale)
    arrays: list[Array | SimulatedBuffer] = [tensor.numpy() for tensor in inputs]
    arrays.append(SimulatedBuffer(bits, initialised=False))

    def pack(addresses: Mapping[str, int]) -> bytes:
        packed: bytes = call.kernel.pack({name: addresses[name] for name in GEMM_POINTERS} | integers)
        return packed

    named = dict(zip(GEMM_POINTERS, arrays, strict=True))
    return SimulatedLaunch(named, call.grid, (call.kernel.threads, 1, 1), pack=pack)
