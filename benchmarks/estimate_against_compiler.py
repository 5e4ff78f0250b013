"""How near the estimates made before compilation come to what Triton compiles.

    python benchmarks/estimate_against_compiler.py [--configurations 20] [--seed 0]

Random tiles of each family at one shape are compiled for gfx950. Tiles that are estimated to spill are left out: some
take minutes to compile.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.device import GFX950
from kernels.errors import CompileError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.gfx950.code.assembly import analyze
from search.gfx950.code.calls import specialize
from search.gfx950.machine import MI355X
from search.gfx950.model.families import estimate_calls
from search.gfx950.model.formula import total_us
from search.gfx950.model.static_counts import static_counts, with_code
from search.gfx950.model.tile_work import TileWork
from search.terminal import one_line_errors

SHAPES = {
    "fused": GemmShape(32, 4096, 512),
    "fused_splitk_workspace": GemmShape(16, 2112, 7168),
    "fused_splitk_atomic": GemmShape(64, 3072, 1536),
    "staged_triton": GemmShape(256, 3072, 1536),
}
CHOICES: dict[str, list[Any]] = {
    "BLOCK_M": [4, 8, 16, 32, 64, 128, 256],
    "BLOCK_N": [32, 64, 128, 256],
    "BLOCK_K": [128, 256, 512, 1024],
    "num_warps": [2, 4, 8],
    "num_stages": [1, 2, 3, 4],
    "matrix_instr_nonkdim": [16, 32],
    "split_k": [1, 2, 4, 7, 8, 14],
    "quantizer": ["hardware", "software"],
}
COMPARED = ("mfma_clks", "valu_clks", "lds_clks", "resident")


def random_config(family: str, rng: np.random.Generator) -> Any:
    """A legal configuration that is not estimated to spill."""
    config_type = FAMILIES[family].config_type
    base = config_type()
    while True:
        drawn = {name: rng.choice(CHOICES[name]).item() for name in base.to_dict() if name in CHOICES}
        config = replace(base, **drawn)
        quantizer = None if family == "staged_triton" else config.quantizer
        tile = TileWork(config.BLOCK_M, config.BLOCK_N, config.BLOCK_K, config.num_warps, config.num_stages,
                        config.matrix_instr_nonkdim, quantizer)  # fmt: skip
        fits = tile.vgprs <= tile.vgpr_limit(MI355X) and tile.lds_bytes <= MI355X.lds_bytes
        if fits and config.check(SHAPES[family], GFX950) is None:
            return config


def compared(family: str, config: Any) -> dict[str, float]:
    """Estimated and compiled numbers of the GEMM kernel and of the whole program.

    Raises:
        CompileError: Triton rejects the configuration.
    """
    shape = SHAPES[family]
    program = FAMILIES[family].program(shape, config)
    works = estimate_calls(family, config.to_dict(), shape, MI355X)
    index = next(i for i, call in enumerate(program.calls) if "b" in call.args.values())
    call, work = program.calls[index], works[index]
    built = specialize(program, call).compile()
    analysis = analyze(built.assembly)
    counts = static_counts(built.assembly).executed(float(work.steps))
    exact = with_code(work, counts, analysis.resources, built.lds_bytes, MI355X)
    row = {f"{name}_estimated": float(getattr(work, name)) for name in COMPARED}
    row |= {name: float(getattr(exact, name)) for name in COMPARED}
    row["us_estimated"] = float(total_us(works, MI355X))
    row["us"] = float(total_us([*works[:index], exact, *works[index + 1 :]], MI355X))
    return row | {"spills": analysis.resources.vgpr_spills}


def rows(family: str, count: int, rng: np.random.Generator) -> Iterator[dict[str, float]]:
    """``count`` random configurations that compile."""
    left = count
    while left:
        try:
            yield compared(family, random_config(family, rng))
        except CompileError as error:
            print(f"  {family}: {error}", file=sys.stderr)
            continue
        left -= 1


def main() -> None:
    """Print ratios of estimate to compiled code (10 %, 50 % and 90 % quantiles) and rank correlations."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configurations", type=int, default=20, help="of each family")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    for family, shape in SHAPES.items():
        frame = pd.DataFrame(rows(family, arguments.configurations, rng))
        print(f"{family} at {shape}: {len(frame)} configurations, {(frame.spills > 0).sum()} spill")
        for name in (*COMPARED, "us"):
            ratio = (frame[f"{name}_estimated"] / frame[name]).quantile([0.1, 0.5, 0.9])
            rank = spearmanr(frame[f"{name}_estimated"], frame[name]).statistic
            print(f"  {name:10} estimate / compiled {ratio.iloc[0]:5.2f} {ratio.iloc[1]:5.2f} {ratio.iloc[2]:5.2f}  "
                  f"Spearman {rank:.3f}")  # fmt: skip


if __name__ == "__main__":
    with one_line_errors():
        main()
