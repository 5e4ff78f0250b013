"""Executes the HIP GEMM on operands of one's choice; the gate executes whole programs of ``staged_hip``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
import torch

from kernels.native_config import StagedHipConfig
from kernels.native_programs import GEMM_POINTERS, staged_hip
from kernels.program import KernelCall
from search.gfx950.code_object_check import UNWRITTEN, Operands
from search.gfx950.region_check import Array, CheckedRun, Tile, check_regions, judged_error, simulate_clean
from search.gfx950.simulator import Buffer, Kernel, Launch

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
    bits = _blank_output(config, operands)

    def largest_error(stored: Array, tile: Tile) -> float:
        return judged_error(_summed(stored), operands.product(tile))

    execute = partial(simulate_clean, kernel, _launch(call, operands, bits))
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


def _launch(call: KernelCall, operands: Operands, bits: Array) -> Launch:
    integers = {name: value for name, value in call.args.items() if isinstance(value, int)}
    integers["stride_om"] = bits.shape[-1]
    inputs = (operands.codes, operands.scales, operands.weight.data, operands.weight.scale)
    arrays: list[Array | Buffer] = [tensor.numpy() for tensor in inputs]
    arrays.append(Buffer(bits, initialised=False))

    def pack(addresses: Mapping[str, int]) -> bytes:
        packed: bytes = call.kernel.pack({name: addresses[name] for name in GEMM_POINTERS} | integers)
        return packed

    named = dict(zip(GEMM_POINTERS, arrays, strict=True))
    return Launch(named, call.grid, (call.kernel.threads, 1, 1), pack=pack)
