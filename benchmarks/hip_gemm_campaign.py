"""Compile random legal configurations of the HIP GEMM and execute them on the simulator: is every one right?

    python benchmarks/hip_gemm_campaign.py [--configurations 120] [--seed 0] [--accumulators 128]

The shapes are the ten of configs/shapes/gpumode.yaml, and M = 1, 33, 257, 1000 with N = 320 and K = 320, 576, 2304,
which leave tails everywhere. The tiles at the four corners of C are executed, with all their slices of K. Padding bytes
of both operands' scales are NaN. The exit code is 1 if any result is wrong. Tiles with more than --accumulators values
for each lane, most of which spill and compile for long, are not drawn.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from native_checks import Operands, Tile, hip_gemm_run_checked, random_operands

from kernels.device import GFX950
from kernels.errors import KernelError
from kernels.families.staged_hip import StagedHipConfig, gemm_kernel
from kernels.problem import GemmShape
from kernels.rocm.compiler import compile_hip
from search.gfx950.simulator import SimulationError, load_assembly
from search.space.shapes import load_shapes
from search.terminal import one_line_errors

SHAPES = Path(__file__).resolve().parent.parent / "configs" / "shapes" / "gpumode.yaml"
TAILS = tuple(GemmShape(M, 320, K) for M in (1, 33, 257, 1000) for K in (320, 576, 2304))
CHOICES = {
    "BLOCK_M": (16, 32, 64, 96, 128, 192, 256),
    "BLOCK_N": (16, 32, 64, 96, 128, 256, 384, 512),
    "BLOCK_K": (256, 512, 768, 1024),
    "waves_m": (1, 2, 4, 8),
    "waves_n": (1, 2, 4, 8),
    "num_stages": (1, 2, 3, 4),
    "matrix_instr_nonkdim": (16, 32),
    "GROUP_M": (1, 2, 4, 8),
    "num_xcds": (1, 8),
    "split_k": (1, 1, 2, 3, 7, 14),
}


def drawn(shape: GemmShape, random: np.random.Generator, accumulators: int) -> StagedHipConfig:
    """A configuration that is legal for ``shape``, with at most so many accumulators of a lane."""
    while True:
        config = StagedHipConfig(**{name: int(random.choice(values)) for name, values in CHOICES.items()})
        of_lane = config.BLOCK_M * config.BLOCK_N // (64 * config.waves_m * config.waves_n)
        if of_lane <= accumulators and config.check(shape, GFX950) is None:
            return config


def corners(shape: GemmShape) -> Iterator[Tile]:
    """One element at each corner of C."""
    for row in {0, shape.M - 1}:
        for column in {0, shape.N - 1}:
            yield range(row, row + 1), range(column, column + 1)


@functools.lru_cache(maxsize=2)
def operands_of(shape: GemmShape) -> Operands:
    """Operands of ``shape``."""
    return random_operands(shape, seed=1)


def judged(shape: GemmShape, config: StagedHipConfig) -> tuple[str, str]:
    """(outcome, what there is to say of it) of one configuration."""
    kernel = gemm_kernel(config)
    try:
        assembly = compile_hip(kernel).assembly
        run = hip_gemm_run_checked(
            load_assembly(assembly, kernel.name), config, operands_of(shape), tuple(corners(shape))
        )
    except (KernelError, SimulationError) as error:
        return type(error).__name__, str(error)
    spills = re.search(r"\.vgpr_spill_count:\s+(\d+)", assembly)
    spilled = int(spills[1]) if spills else 0
    return "right, with spills" if spilled else "right", f"{run.elements} elements, {spilled} spilled registers"


def main() -> None:
    """Print a line for each configuration, and how many there are of each outcome."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configurations", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--accumulators", type=int, default=128)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    shapes = (*load_shapes(SHAPES).shapes, *TAILS)
    random = np.random.default_rng(arguments.seed)
    outcomes: Counter[str] = Counter()
    start = time.perf_counter()
    for number in range(arguments.configurations):
        shape = shapes[number * len(shapes) // arguments.configurations]
        config = drawn(shape, random, arguments.accumulators)
        outcome, said = judged(shape, config)
        outcomes[outcome] += 1
        chosen = " ".join(f"{name}={getattr(config, name)}" for name in CHOICES)
        print(f"{outcome}: {shape} {chosen}: {said}", flush=True)
    print(f"{dict(outcomes)} in {time.perf_counter() - start:.0f} s")
    raise SystemExit(any(not outcome.startswith("right") for outcome in outcomes))


if __name__ == "__main__":
    with one_line_errors():
        main()
