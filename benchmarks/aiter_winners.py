"""Where AITER's own choices of configuration stand among others, by predictions of AITER's own Triton kernel.

    python benchmarks/aiter_winners.py [--shapes 4] [--candidates 16] [--seed 0]

MXFP4_AITER names the AITER whose preshuffled a4w4 kernel is compiled for gfx950, executed and predicted, and whose JSON
files hold the choices. For a few shapes of these files, the choice competes with configurations that AITER chose for
other shapes with the same tile rows or fewer. Its rank is 1 + the share of these that are predicted faster or equal.
"""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from aiter_kernels import Knobs, gemm_program
from timed_rows import program_launches

from kernels.errors import InputError, KernelError
from kernels.problem import GemmShape
from kernels.rocm.aiter_triton import triton_root
from search.gfx950.machine import AITER, Machine
from search.gfx950.model.executed import predict_works
from search.terminal import one_line_errors

NAME = re.compile(r"AFP4WFP4_PRESHUFFLED(?:_\w+)?-N=(\d+)-K=(\d+)\.json$")
MACHINE = Machine(harness=AITER)


def choices(root: Path) -> Iterator[tuple[GemmShape, Knobs]]:
    """Shape and configuration of each entry of AITER's tuned files whose M is told."""
    for path in sorted(root.glob("aiter/ops/triton/configs/**/*.json")):
        found = NAME.search(path.name)
        if found is None or not re.search("gfx950|MI35", str(path.relative_to(root))):
            continue
        for bucket, entry in json.loads(path.read_text()).items():
            limit = re.search(r"(\d+)$", bucket)
            if limit and int(found[1]) % 64 == 0:
                yield GemmShape(int(limit[1]), int(found[1]), int(found[2])), _knobs(entry)


def _knobs(entry: Mapping[str, Any]) -> Knobs:
    return Knobs(
        int(entry["BLOCK_SIZE_M"]), int(entry["BLOCK_SIZE_N"]), int(entry["BLOCK_SIZE_K"]),
        int(entry.get("NUM_KSPLIT", 1)), int(entry["num_warps"]), int(entry["num_stages"]),
        int(entry["waves_per_eu"]), int(entry["matrix_instr_nonkdim"]), entry["cache_modifier"] or "",
        int(entry["GROUP_SIZE_M"]),
    )  # fmt: skip


def predicted_us(shape: GemmShape, knobs: Knobs) -> float | None:
    """Predicted time in microseconds; None where the configuration does not compile or is not for this shape."""
    try:
        works = program_launches(gemm_program(shape, knobs, fused=False), MACHINE)
    except KernelError as error:
        print(f"{shape} {knobs}: {error}", file=sys.stderr)
        return None
    return predict_works(works, shape, MACHINE).predicted_us


def fits(shape: GemmShape, knobs: Knobs) -> bool:
    """Whether AITER's wrapper allows it: scales of A are shuffled from 32 rows on, and K has whole steps."""
    rows = knobs.block_m >= 32 if shape.M >= 32 else knobs.block_m <= 16
    return rows and shape.K % (knobs.block_k * knobs.split_k) == 0


def main(
    shapes: Annotated[int, typer.Option(min=1, help="Shapes to look at.")] = 4,
    candidates: Annotated[int, typer.Option(min=1, help="Competitors of each.")] = 16,
    seed: Annotated[int, typer.Option(help="Of the choice of both.")] = 0,
) -> None:
    """Print a line a shape and the median rank."""
    known = [(shape, knobs) for shape, knobs in choices(triton_root()) if fits(shape, knobs)]
    if not known:
        raise InputError(f"{triton_root()} has no tuned files of the preshuffled a4w4 kernel; name another AITER")
    chosen = random.Random(seed)
    ranks = []
    for shape, own in chosen.sample(known, min(shapes, len(known))):
        others = sorted({replace(knobs) for _, knobs in known if fits(shape, knobs) and knobs != own}, key=repr)
        winner = predicted_us(shape, own)
        rivals = [predicted_us(shape, knobs) for knobs in chosen.sample(others, min(candidates, len(others)))]
        times = [us for us in rivals if us is not None]
        if winner is None or not times:
            continue
        ranks.append(float(np.mean([us <= winner for us in times])))
        print(f"{shape}: AITER's choice {winner:.2f} us, {ranks[-1]:.0%} of {len(times)} others are no slower")
    print(f"median {np.median(ranks):.0%} of others no slower, {len(ranks)} shapes")


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
