"""Executes the workgroups behind parts of C, and compares what they must and must not store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from kernels.errors import WrongResultError
from kernels.problem import GemmShape
from kernels.spelling import counted
from kernels.tiling import Coverage, GridIndex
from search.gfx950.simulator import Histogram, Kernel, Launch, simulate
from search.tolerance import judge_result

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


def simulate_clean(kernel: Kernel, launch: Launch, chosen: Sequence[GridIndex]) -> Histogram:
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
        bound: As :func:`search.tolerance.judge_result` has it.

    Raises:
        WrongResultError: An element is off by more than that.
    """
    report = judge_result(actual, expected, bound)
    if not report.ok:
        raise WrongResultError(
            f"{report.mismatches} of {report.elements} elements are wrong, largest error {report.max_abs:g}"
        )
    return report.max_abs
