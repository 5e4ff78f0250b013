"""Executes AITER's FP4 GEMM kernels on operands of one's choice; the gate executes whole programs of ``staged_ck``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from kernels.code_object_launch import THREADS, CodeObjectCoverage, launch_grid, prebuilt_kernel
from kernels.code_objects import CodeObject, accumulates_in_bf16, slice_elements
from kernels.errors import WrongResultError
from kernels.formats import Mxfp4Tensor, quantize
from kernels.layouts import padded_scale_shape, shuffle_scales, shuffle_weight
from kernels.problem import BLOCK, GemmShape
from kernels.spelling import counted
from kernels.tiling import GridIndex
from kernels.weights import PackedWeight
from search.gfx950.simulator import Buffer, Histogram, Kernel, Launch, simulate
from search.tolerance import bf16_sum_bound, judge_result

Array = npt.NDArray[Any]
UNWRITTEN: Final = 0xFFFF  # bf16 NaN
POISON: Final = 0xFF  # E8M0 NaN
Tile = tuple[range, range]  # rows and columns of C


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


def run_checked(
    kernel: Kernel,
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
        log2_k_split: See :func:`kernels.code_objects.check`; 0 demands C up to one bf16 step, more what
            :func:`search.tolerance.bf16_sum_bound` allows.
        tiles: (rows, columns) of C; default all of C.

    Raises:
        WrongResultError: A finding of the simulator, a wrong element, or a store beside the tiles.
        SimulationError: The simulator does not model an instruction.
    """
    shape = operands.shape
    coverage = CodeObjectCoverage(shape, code_object, log2_k_split)
    regions = [coverage.extent(*tile) for tile in tiles or [(range(shape.M), range(shape.N))]]
    chosen = [index for region in regions for index in coverage.workgroups(*region)]
    initial = 0 if accumulates_in_bf16(log2_k_split) else UNWRITTEN
    out = np.full((shape.M, shape.N), initial, np.uint16)
    histogram = _execute(kernel, code_object, operands, log2_k_split, out, list(dict.fromkeys(chosen)))
    errors = [_compare(out, operands, log2_k_split, region) for region in regions]
    for rows, columns in regions:
        out[rows.start : rows.stop, columns.start : columns.stop] = initial
    stray = np.argwhere(out != initial)
    if len(stray):
        m, n = stray[0]
        raise WrongResultError(f"C[{m}, {n}] and {counted(len(stray) - 1, 'more element')} of other tiles were written")
    return CheckedRun(histogram, sum(len(rows) * len(columns) for rows, columns in regions), max(errors))


def _execute(
    kernel: Kernel, code_object: CodeObject, operands: Operands, log2_k_split: int, out: Array, chosen: list[GridIndex]
) -> Histogram:
    shape = operands.shape
    packed = prebuilt_kernel(code_object, shape, log2_k_split)
    arguments: dict[str, Buffer | Array] = {
        "out": Buffer(out, initialised=accumulates_in_bf16(log2_k_split)),
        "a": operands.codes.numpy(),
        "a_scale": operands.scales.numpy(),
        "b": operands.weight.data.numpy(),
        "b_scale": operands.weight.scale.numpy(),
    }
    launch = Launch(
        arguments,
        launch_grid(shape, code_object, log2_k_split),
        (THREADS, 1, 1),
        pack=lambda addresses: packed.pack({name: addresses[name] for name in packed.arg_names}),
    )
    result = simulate(kernel, launch, chosen)
    if result.findings:
        raise WrongResultError(f"{result.findings[0]} (and {counted(len(result.findings) - 1, 'more finding')})")
    return result.histogram


def _compare(out: Array, operands: Operands, log2_k_split: int, tile: Tile) -> float:
    """Largest error of the tile.

    Raises:
        WrongResultError: An element is off.
    """
    rows, columns = tile
    actual = torch.from_numpy(out[rows.start : rows.stop, columns.start : columns.stop]).view(torch.bfloat16)
    a, b = operands.values(tile)
    bound = None
    if accumulates_in_bf16(log2_k_split):
        bound = bf16_sum_bound(a, b, slice_elements(operands.shape.K, log2_k_split))
    report = judge_result(actual, a @ b.T, bound)
    if not report.ok:
        raise WrongResultError(
            f"{report.mismatches} of {report.elements} elements are wrong, largest error {report.max_abs:g}"
        )
    return report.max_abs
