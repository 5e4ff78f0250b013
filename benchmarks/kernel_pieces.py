"""The timing model against measured pieces: quantise kernels alone, code objects in a loop, an empty kernel.

    python benchmarks/kernel_pieces.py CSV

CSV has the columns op, M, N, K, kernel, us, timing; a quantise kernel has no N. MXFP4_AITER names the AITER whose
quantise kernel and code objects are executed. No constant is fitted to these rows. A row is predicted where the machine
holds the code that was measured, in the harness that its column ``timing`` tells:

    AITER's Triton quantise kernel      as it is in that AITER, with its launcher's tile; harness aiter
    AITER's code objects                harness loop: calls one after the other on warm operands, a gap before each
    an empty kernel                     harness gpumode
    quantise kernels of others          this project's HIP kernel in the place of those that have the conversion
                                        instruction too, the best of a few shapes: told apart, for another code was
                                        measured; harness aiter or loop

The others are of kernels that are not here, and are counted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import triton
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from timed_rows import code_object_points, program_launches, read_rows

from kernels.families.stages import HipQuantize, compose
from kernels.launches.coverage import FlatCoverage, TileCoverage
from kernels.launches.program import Buffer, KernelCall, Program
from kernels.launches.triton_kernel import TritonKernel
from kernels.problem import BLOCK, GemmShape
from kernels.rocm.aiter_triton import Source, find_kernel
from search.gfx950.machine import AITER, GPUMODE, WARM, Machine
from search.gfx950.model.launch_time import launch_time
from search.terminal import one_line_errors

QUANTISE = Source(("_dynamic_mxfp4_quant_kernel",), ("quant.quant", "quant"))
GAP_US = 0.4  # between two kernels of one queue, a row of the file
LOOP = replace(WARM, name="loop", launch_us=GAP_US, extra_kernel_us=GAP_US)
FEW_ROWS = 64  # up to which a quantise kernel alone is asked for within 10 %
HIP_KNOBS = ((64, 1, 8), (256, 1, 8), (256, 1, 16), (256, 1, 32))  # threads, groups, vector
Row = Mapping[str, str]


@dataclass(frozen=True)
class Piece:
    """One measured time and the prediction of it.

    Args:
        kind: What was executed, with its harness.
    """

    kind: str
    row: Row
    predicted_us: float

    @property
    def error(self) -> float:
        """Of the prediction, relative to the measurement."""
        return self.predicted_us / float(self.row["us"]) - 1


@triton.jit
def empty_kernel():  # type: ignore[no-untyped-def]
    """Do nothing."""


def quantise_program(rows: int, columns: int) -> Program:
    """AITER's quantise kernel of bf16 [rows, columns], with the tile that its launcher takes.

    Source: AITER's ``dynamic_mxfp4_quant``.
    """
    block_m, block_n, repeat, stages, warps = (
        (triton.next_power_of_2(rows), 32, 1, 1, 1) if rows <= 32 else
        (32, 128, 4, 2, 4) if columns <= 16384 else (64, 64, 4, 2, 4)
    )  # fmt: skip
    if columns <= 1024:
        block_m, block_n, repeat, stages, warps = min(8, triton.next_power_of_2(rows)), 256, 1, 1, 4
    scales = -(-columns // BLOCK)
    args: dict[str, str | int] = {
        "x_ptr": "a", "x_fp4_ptr": "a_codes", "bs_ptr": "a_scale", "stride_x_m_in": columns,
        "stride_x_fp4_m_in": columns // 2, "stride_bs_n_in": rows, "M": rows, "N": columns,
    }  # fmt: skip
    constants = {
        "stride_x_n_in": 1, "stride_x_fp4_n_in": 1, "stride_bs_m_in": 1, "BLOCK_SIZE_M": block_m,
        "BLOCK_SIZE_N": block_n, "NUM_ITER": repeat, "NUM_STAGES": stages, "MXFP4_QUANT_BLOCK_SIZE": BLOCK,
        "EVEN_M_N": rows % block_m == 0 and columns % (block_n * repeat) == 0, "SCALING_MODE": 0,
    }  # fmt: skip
    ones = {name: 1 for name, value in args.items() if value == 1}
    call = KernelCall(
        TritonKernel(find_kernel(QUANTISE)), (-(-rows // block_m), -(-columns // (block_n * repeat)), 1),
        {name: value for name, value in args.items() if name not in ones}, {**constants, **ones},
        TileCoverage(rows, columns, block_m, block_n, 1, 1), {"num_warps": warps, "num_stages": 1, "waves_per_eu": 0},
    )  # fmt: skip
    buffers = (
        Buffer("a", "bf16", (rows, columns), "input"), Buffer("a_codes", "u8", (rows, columns // 2), "output"),
        Buffer("a_scale", "u8", (rows, scales), "output"),
    )  # fmt: skip
    return Program(buffers, (call,))


def time_us(program: Program, machine: Machine) -> float:
    """Predicted time of a program of one launch in the machine's harness."""
    (work,) = program_launches(program, machine)
    warm = machine.harness.is_warm(sum(buffer.bytes for buffer in program.buffers))
    return machine.harness.launch_us + launch_time(work, machine, warm=warm).work_us


def code_object_us(tile: tuple[int, int], shape: GemmShape, machine: Machine) -> float:
    """The same of one of AITER's code objects."""
    warm = machine.harness.is_warm(shape.unique_bytes)
    points = code_object_points(tile, shape)
    return machine.harness.launch_us + sum(
        one.share * launch_time(one.work, machine, warm=warm).work_us for one in points
    )


def of_quantise(row: Row) -> Piece | None:
    """AITER's Triton kernel as the found AITER has it, or this project's in place of another one."""
    rows, columns = int(row["M"]), int(row["K"])
    if re.search(r"of #452|^Triton, software", row["kernel"]):
        return Piece("quantise, AITER's", row, time_us(quantise_program(rows, columns), Machine(harness=AITER)))
    if "conversion instruction" not in row["kernel"]:
        return None
    kind, harness = ("ours in a loop", LOOP) if "loop" in row["timing"] else ("ours", AITER)
    shape = GemmShape(rows, BLOCK * 2, columns)
    programs = [compose((HipQuantize(*knobs),), shape, columns) for knobs in HIP_KNOBS]
    best = min(time_us(program, Machine(harness=harness)) for program in programs)
    return Piece(f"quantise, {kind}", row, best)


def of_gemm(row: Row) -> Piece | None:
    """One of AITER's code objects in a loop."""
    tile = re.fullmatch(r"AITER code object (\d+)x(\d+)", row["kernel"])
    if tile is None:
        return None
    shape = GemmShape(int(row["M"]), int(row["N"]), int(row["K"]))
    us = code_object_us((int(tile[1]), int(tile[2])), shape, Machine(harness=LOOP))
    return Piece("code objects in a loop", row, us)


def of_empty(row: Row) -> Piece | None:
    """A kernel that does nothing."""
    call = KernelCall(TritonKernel(empty_kernel), (1, 1, 1), {}, {}, FlatCoverage(1, 1), {"num_warps": 1})
    return Piece("empty kernel", row, time_us(Program((), (call,)), Machine(harness=GPUMODE)))


PIECES: Mapping[str, Callable[[Row], Piece | None]] = {
    "quantise bf16->mxfp4": of_quantise,
    "gemm mxfp4xmxfp4->bf16": of_gemm,
    "empty kernel in GPU MODE harness": of_empty,
}


def pieces(rows: Sequence[Row]) -> Iterator[Piece]:
    """What can be predicted of ``rows``."""
    for row in rows:
        known = PIECES.get(row["op"])
        piece = known(row) if known else None
        if piece is not None:
            yield piece


def summary(name: str, found: Sequence[Piece]) -> str:
    """How far predictions are off."""
    errors = np.abs([piece.error for piece in found])
    return f"{name:42} {len(found):3d} rows  median |error| {np.median(errors):6.1%}  worst {errors.max():6.1%}"


def main(path: Annotated[Path, typer.Argument(metavar="CSV", help="Measured pieces.")]) -> None:
    """Print a line a piece, then each kind's errors."""
    rows = read_rows(path, ("op", "M", "N", "K", "kernel", "us", "timing"))
    found = list(pieces(rows))
    for one in found:
        extents = "x".join(one.row[name] for name in ("M", "N", "K") if one.row[name])
        print(f"{one.kind:22} {extents:14} {float(one.row['us']):8.2f} measured {one.predicted_us:8.2f} predicted "
              f"{one.error:+6.1%}  {one.row['kernel']}")  # fmt: skip
    for kind in dict.fromkeys(one.kind for one in found):
        own = [one for one in found if one.kind == kind]
        print(summary(kind, own))
        few = [one for one in own if kind.startswith("quantise") and int(one.row["M"]) <= FEW_ROWS]
        if few:
            print(summary(f"  of these with M <= {FEW_ROWS}", few))
    print(f"{len(rows) - len(found)} of {len(rows)} rows are of kernels that are not here")


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
