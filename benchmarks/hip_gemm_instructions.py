"""What our HIP GEMM executes for each step of K (256 elements), beside AITER's kernel of the same tile.

    python benchmarks/hip_gemm_instructions.py [--aiter FOLDER] [--k 1024 2560] [TILE ...]

TILE is for example 64x256 (default: a selection). Ours is compiled with the HIP compiler that is found; FOLDER is an
AITER install or an unpacked amd-aiter wheel (default: MXFP4_AITER, else the installed one; without any, ours alone is
shown). One workgroup runs on the simulator at two values of K; the difference divided by the steps between them is a
step of the main loop, and what is left at the smaller K is the prologue and the epilogue. Instructions are those of one
wave, and the number of waves differs between the kernels of a large tile; `mfma_clks` is of a SIMD, for all its waves.
The VGPRs of AITER's kernels are what they declare, which is all there are.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import native_checks
from code_object_instructions import checked_depths, executed, of_class, step_counts
from native_checks import random_operands

from kernels.errors import InputError
from kernels.families.staged_hip import StagedHipConfig, gemm_kernel
from kernels.problem import GemmShape
from kernels.rocm.code_objects import K_STEP, Catalogue, find_catalogue
from kernels.rocm.compiler import compile_hip
from search.gfx950.simulator import Histogram, InstructionClass, load_assembly
from search.terminal import TextTable, one_line_errors

SIMDS = 4
MFMA_CLKS = {"16x16x128": 16, "32x32x64": 32}  # with FP4 operands (AMD CDNA4 ISA, "Matrix arithmetic instructions")


def hip(BLOCK_M: int, BLOCK_N: int, waves_m: int, waves_n: int, rows: int = 16, stages: int = 2) -> StagedHipConfig:
    """A configuration by its tile, waves, and instruction."""
    return StagedHipConfig(
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=K_STEP, waves_m=waves_m, waves_n=waves_n, num_stages=stages,
        matrix_instr_nonkdim=rows,
    )  # fmt: skip


CONFIGURATIONS = (
    hip(32, 128, 1, 4), hip(32, 256, 1, 4), hip(64, 128, 1, 4), hip(64, 256, 1, 4), hip(64, 256, 1, 4, stages=3),
    hip(64, 256, 1, 4, rows=32), hip(128, 128, 1, 4), hip(128, 128, 2, 2), hip(128, 128, 2, 2, rows=32),
    hip(128, 256, 1, 4), hip(128, 256, 2, 2), hip(128, 256, 2, 2, stages=3), hip(256, 128, 2, 2),
    hip(256, 256, 2, 4), hip(256, 256, 2, 4, rows=32), hip(256, 256, 1, 4),
)  # fmt: skip


def count_of(pattern: str) -> Callable[[Histogram], float]:
    """Instructions per wave whose whole text matches."""
    return lambda histogram: (
        sum(count for text, count in histogram.by_text.items() if re.fullmatch(pattern, text)) / histogram.waves
    )


def mfma_clks(histogram: Histogram) -> float:
    """Clocks that a SIMD's matrix core is busy."""
    busy = sum(
        count * clks
        for name, count in histogram.by_mnemonic.items()
        for size, clks in MFMA_CLKS.items()
        if name.startswith("v_mfma") and size in name
    )
    return busy / SIMDS


COLUMNS: Mapping[str, Callable[[Histogram], float]] = {
    "mfma": of_class(InstructionClass.MFMA),
    "valu": of_class(InstructionClass.VALU),
    "lds_reads": count_of("ds_read.*"),
    "direct": count_of("buffer_load.* lds"),
    "load_x4": count_of("buffer_load_dwordx4 (?!.* lds).*"),
    "load_x1": count_of("buffer_load_dword (?!.* lds).*"),
    "scalar": of_class(InstructionClass.SCALAR),
    "waits": of_class(InstructionClass.WAIT),
    "barriers": of_class(InstructionClass.BARRIER),
    "all": lambda histogram: histogram.total / histogram.waves,
    "mfma_clks": mfma_clks,
}


def a_step(run: Callable[[int], Histogram], short: int, long: int) -> tuple[str, ...]:
    """Cells: a step's counts, and all instructions outside of the loop."""
    step, outside = step_counts(COLUMNS, run, short, long)
    return (*(f"{value:.4g}" for value in step.values()), f"{outside:.0f}")


def ours(config: StagedHipConfig, short: int, long: int) -> tuple[str, ...]:
    """The row of a configuration; its result is compared with the reference."""
    kernel = gemm_kernel(config)
    assembly = compile_hip(kernel).assembly
    loaded = load_assembly(assembly, kernel.name)

    def run(K: int) -> Histogram:
        operands = random_operands(GemmShape(config.BLOCK_M, config.BLOCK_N, K), seed=1)
        return native_checks.hip_gemm_run_checked(loaded, config, operands).histogram

    facts = (re.search(rf"\.{name}:\s+(\d+)", assembly) for name in ("vgpr_count", "vgpr_spill_count"))
    vgprs, spills = (match[1] if match else "?" for match in facts)
    name = f"ours, {config.num_stages} stages, MFMA {config.matrix_instr_nonkdim}"
    waves = f"{config.waves_m}x{config.waves_n}"
    return (f"{config.BLOCK_M}x{config.BLOCK_N}", name, waves, *a_step(run, short, long), vgprs, spills)


def theirs(catalogue: Catalogue, BLOCK_M: int, BLOCK_N: int, short: int, long: int) -> tuple[str, ...]:
    """The row of AITER's kernel of a tile."""
    run = executed(catalogue.find(BLOCK_M, BLOCK_N))
    return (f"{BLOCK_M}x{BLOCK_N}", "AITER", "1x4", *a_step(run, short, long), "512", "0")


def chosen(tiles: Sequence[str]) -> list[StagedHipConfig]:
    """Configurations of the tiles that are named; all without any.

    Raises:
        InputError: There is none of a tile.
    """
    known = {one: f"{one.BLOCK_M}x{one.BLOCK_N}" for one in CONFIGURATIONS}
    unknown = sorted(set(tiles) - set(known.values()))
    if unknown:
        tiles_known = ", ".join(dict.fromkeys(known.values()))
        raise InputError(f"no configuration of tile {unknown[0]}; use one of {tiles_known}")
    return [one for one, tile in known.items() if not tiles or tile in tiles]


def table(
    configs: Sequence[StagedHipConfig], catalogue: Catalogue | None, short: int, long: int
) -> Iterator[tuple[str, ...]]:
    """Rows by tile: AITER's, then ours."""
    shown = set()
    for config in configs:
        tile = (config.BLOCK_M, config.BLOCK_N)
        if catalogue is not None and tile not in shown:
            yield theirs(catalogue, *tile, short, long)
        shown.add(tile)
        yield ours(config, short, long)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tiles", nargs="*", metavar="TILE")
    parser.add_argument("--aiter", type=Path)
    parser.add_argument("--k", nargs=2, type=int, default=(1024, 2560), metavar=("SHORT", "LONG"))
    arguments = parser.parse_args()
    short, long = checked_depths(*arguments.k)
    wanted = chosen(arguments.tiles)
    torch.set_num_threads(1)
    try:
        catalogue = find_catalogue(arguments.aiter)
    except InputError as error:
        catalogue = None
        print(f"without AITER's kernels: {error}")
    header = ("tile", "kernel", "waves", *COLUMNS, "outside_loop", "vgprs", "spills")
    rows = tuple(table(wanted, catalogue, short, long))
    print(TextTable(header, rows, frozenset(header[3:])).plain())


if __name__ == "__main__":
    with one_line_errors():
        main()
