"""Executes AITER's FP4 GEMM kernels on operands of one's choice; the gate executes whole programs of ``staged_ck``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch

from kernels.code_object_launch import THREADS, CodeObjectCoverage, launch_grid, prebuilt_kernel
from kernels.code_objects import CodeObject, accumulates_in_bf16, slice_elements
from kernels.formats import Mxfp4Tensor, quantize
from kernels.layouts import padded_scale_shape, shuffle_scales, shuffle_weight
from kernels.problem import BLOCK, GemmShape
from kernels.weights import PackedWeight
from search.gfx950.region_check import Array, CheckedRun, Tile, check_regions, judged_error, simulate_clean
from search.gfx950.simulator import Buffer, Kernel, Launch
from search.tolerance import bf16_sum_bound

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
    summed = accumulates_in_bf16(log2_k_split)
    out = np.full((shape.M, shape.N), 0 if summed else UNWRITTEN, np.uint16)
    launch = _launch(code_object, operands, log2_k_split, Buffer(out, initialised=summed))

    def largest_error(stored: Array, tile: Tile) -> float:
        a, b = operands.values(tile)
        bound = bf16_sum_bound(a, b, slice_elements(shape.K, log2_k_split)) if summed else None
        return judged_error(torch.from_numpy(stored).view(torch.bfloat16), a @ b.T, bound)

    coverage = CodeObjectCoverage(shape, code_object, log2_k_split)
    execute = partial(simulate_clean, kernel, launch)
    return check_regions(shape, coverage, tiles, out, execute, largest_error)


def _launch(code_object: CodeObject, operands: Operands, log2_k_split: int, out: Buffer) -> Launch:
    shape = operands.shape
    packed = prebuilt_kernel(code_object, shape, log2_k_split)
    arguments: dict[str, Buffer | Array] = {
        "out": out,
        "a": operands.codes.numpy(),
        "a_scale": operands.scales.numpy(),
        "b": operands.weight.data.numpy(),
        "b_scale": operands.weight.scale.numpy(),
    }
    return Launch(
        arguments,
        launch_grid(shape, code_object, log2_k_split),
        (THREADS, 1, 1),
        pack=lambda addresses: packed.pack({name: addresses[name] for name in packed.arg_names}),
    )
