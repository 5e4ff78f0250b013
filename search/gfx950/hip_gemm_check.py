"""Executes the HIP GEMM on operands of one's choice; the gate executes whole programs of ``staged_hip``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from kernels.errors import WrongResultError
from kernels.native_config import StagedHipConfig
from kernels.native_programs import GEMM_POINTERS, staged_hip
from kernels.program import KernelCall
from kernels.spelling import counted
from kernels.tiling import GridIndex
from search.gfx950.code_object_check import UNWRITTEN, CheckedRun, Operands, Tile
from search.gfx950.simulator import Buffer, Histogram, Kernel, Launch, simulate
from search.tolerance import judge_result

Array = npt.NDArray[Any]
GUARD_COLUMNS: Final = 48  # between the rows of C, that nobody may touch


def run_checked(kernel: Kernel, config: StagedHipConfig, operands: Operands, tiles: Sequence[Tile] = ()) -> CheckedRun:
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
    call = staged_hip(shape, config, shape.K).calls[1]
    coverage = call.coverage
    regions = [coverage.extent(*tile) for tile in tiles or [(range(shape.M), range(shape.N))]]
    chosen = [index for region in regions for index in coverage.workgroups(*region)]
    bits = _blank_output(config, operands)
    histogram = _execute(kernel, call, operands, bits, list(dict.fromkeys(chosen)))
    errors = [_compare(bits, operands, region) for region in regions]
    blank = np.iinfo(bits.dtype).max
    for rows, columns in regions:
        bits[..., rows.start : rows.stop, columns.start : columns.stop] = blank
    stray = np.argwhere(bits != blank)
    if len(stray):
        others = counted(len(stray) - 1, "more element")
        raise WrongResultError(f"C{stray[0].tolist()} and {others} beside the tiles were written")
    return CheckedRun(histogram, sum(len(rows) * len(columns) for rows, columns in regions), max(errors))


def _blank_output(config: StagedHipConfig, operands: Operands) -> Array:
    """Bits of bf16 C [M, N + guard] or of its fp32 slices [split_k, M, N], all NaN."""
    shape = operands.shape
    if config.split_k == 1:
        return np.full((shape.M, shape.N + GUARD_COLUMNS), UNWRITTEN, np.uint16)
    return np.full((config.split_k, shape.M, shape.N), np.iinfo(np.uint32).max, np.uint32)


def _execute(
    kernel: Kernel, call: KernelCall, operands: Operands, bits: Array, chosen: list[GridIndex]
) -> Histogram:
    integers = {name: value for name, value in call.args.items() if isinstance(value, int)}
    integers["stride_om"] = bits.shape[-1]
    inputs = (operands.codes, operands.scales, operands.weight.data, operands.weight.scale)
    arrays: list[Array | Buffer] = [tensor.numpy() for tensor in inputs]
    arrays.append(Buffer(bits, initialised=False))

    def pack(addresses: Mapping[str, int]) -> bytes:
        packed: bytes = call.kernel.pack({name: addresses[name] for name in GEMM_POINTERS} | integers)
        return packed

    launch = Launch(
        dict(zip(GEMM_POINTERS, arrays, strict=True)), call.grid, (call.kernel.threads, 1, 1), pack=pack
    )
    result = simulate(kernel, launch, chosen)
    if result.findings:
        raise WrongResultError(f"{result.findings[0]} (and {counted(len(result.findings) - 1, 'more finding')})")
    return result.histogram


def _compare(bits: Array, operands: Operands, tile: Tile) -> float:
    """Largest error of the tile.

    Raises:
        WrongResultError: An element is off by more than one bf16 step.
    """
    rows, columns = tile
    part = bits[..., rows.start : rows.stop, columns.start : columns.stop]
    if bits.dtype == np.uint32:
        actual = torch.from_numpy(part.view(np.float32).sum(axis=0)).to(torch.bfloat16)
    else:
        actual = torch.from_numpy(part).view(torch.bfloat16)
    report = judge_result(actual, operands.product(tile))
    if not report.ok:
        raise WrongResultError(
            f"{report.mismatches} of {report.elements} elements are wrong, largest error {report.max_abs:g}"
        )
    return report.max_abs
