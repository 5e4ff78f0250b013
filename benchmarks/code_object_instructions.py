"""What AITER's FP4 GEMM kernels execute for each step of K (256 elements), counted on the simulator.

    python benchmarks/code_object_instructions.py [--aiter FOLDER] [--k 1024 2560] [TILE ...]

FOLDER is an AITER install or an unpacked amd-aiter wheel (default: MXFP4_AITER, else the installed one); TILE is for
example 32x128 (default: every tile). One workgroup runs at two values of K; the difference divided by the steps between
them is a step of the main loop, and what is left at the smaller K is the prologue and the epilogue. Instructions are
those of one wave, bytes those of the workgroup. Needs an LLVM disassembler.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from native_checks import code_object_run_checked, random_operands

from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.rocm.code_objects import K_STEP, CodeObject, find_catalogue
from search.gfx950.simulator import Histogram, InstructionClass, load_code_object
from search.terminal import TextTable, one_line_errors

MATRIX_CLKS = 16  # of v_mfma_scale_f32_16x16x128_f8f6f4 with FP4 operands, the only one that these kernels use


def of_class(kind: InstructionClass) -> Callable[[Histogram], float]:
    """Instructions of a class, per wave."""
    return lambda histogram: histogram.by_class[kind] / histogram.waves


def of_name(pattern: str) -> Callable[[Histogram], float]:
    """Instructions whose whole mnemonic matches, per wave."""
    return lambda histogram: (
        sum(count for name, count in histogram.by_mnemonic.items() if re.fullmatch(pattern, name)) / histogram.waves
    )


COLUMNS: Mapping[str, Callable[[Histogram], float]] = {
    "mfma": of_class(InstructionClass.MFMA),
    "valu": of_class(InstructionClass.VALU),
    "ds_read_b128": of_name("ds_read_b128"),
    "ds_read_b32": of_name("ds_read_b32"),
    "load_x4": of_name("buffer_load_dwordx4"),
    "load_x1": of_name("buffer_load_dword"),
    "scalar": of_class(InstructionClass.SCALAR),
    "waits": of_class(InstructionClass.WAIT),
    "barriers": of_class(InstructionClass.BARRIER),
    "all": lambda histogram: histogram.total / histogram.waves,
    "global_bytes": lambda histogram: histogram.global_read_bytes,
    "lds_bytes": lambda histogram: histogram.lds_written_bytes,
}


def executed(code_object: CodeObject) -> Callable[[int], Histogram]:
    """Instructions of one whole tile at a given K; the result is compared with the reference."""
    kernel = load_code_object(code_object.path, code_object.symbol)

    def run(K: int) -> Histogram:
        operands = random_operands(GemmShape(*code_object.tile, K), seed=1)
        return code_object_run_checked(kernel, code_object, operands).histogram

    return run


def step_counts(
    columns: Mapping[str, Callable[[Histogram], float]], run: Callable[[int], Histogram], short: int, long: int
) -> tuple[dict[str, float], float]:
    """Counts of one step of K, and the ``all`` of what is outside of the loop.

    Args:
        columns: What to count, with a column ``all``.
        run: Executes a tile at a given K.
        short: K of one run.
        long: K of the other.
    """
    few, many = run(short), run(long)
    step = {name: (count(many) - count(few)) * K_STEP / (long - short) for name, count in columns.items()}
    return step, columns["all"](few) - step["all"] * short / K_STEP


def row(code_object: CodeObject, short: int, long: int) -> tuple[str, ...]:
    """Cells of one kernel: a step's counts, the clocks of the matrix core, and all instructions outside of the loop."""
    step, outside = step_counts(COLUMNS, executed(code_object), short, long)
    counts = (*step.values(), step["mfma"] * MATRIX_CLKS, outside)
    return (str(code_object), *(f"{value:.2f}".removesuffix(".00") for value in counts))


def checked_depths(short: int, long: int) -> tuple[int, int]:
    """Both values of K.

    Raises:
        InputError: One is no whole number of steps, or the second is not the larger.
    """
    if short % K_STEP or long % K_STEP or not 0 < short < long:
        raise InputError(f"--k {short} {long}: name two multiples of {K_STEP}, the smaller first")
    return short, long


def tile_of(text: str) -> tuple[int, int]:
    """Rows and columns of a tile, from 32x128.

    Raises:
        InputError: It is no tile.
    """
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None:
        raise InputError(f"tile {text!r}: write rows x columns, for example 32x128")
    return int(match[1]), int(match[2])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiles", nargs="*", metavar="TILE")
    parser.add_argument("--aiter", type=Path)
    parser.add_argument("--k", nargs=2, type=int, default=(1024, 2560), metavar=("SHORT", "LONG"))
    arguments = parser.parse_args()
    short, long = checked_depths(*arguments.k)
    torch.set_num_threads(1)
    catalogue = find_catalogue(arguments.aiter)
    wanted = [catalogue.find(*tile_of(text)) for text in arguments.tiles] or catalogue.preshuffled
    header = ("tile", *COLUMNS, "mfma_clks", "outside_loop")
    rows = tuple(row(one, short, long) for one in wanted)
    print(TextTable(header, rows, frozenset(header[1:])).plain())


if __name__ == "__main__":
    with one_line_errors():
        main()
