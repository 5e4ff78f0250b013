"""Where AITER's own choices of configuration stand among others, by predictions of AITER's own Triton kernel.

    python benchmarks/aiter_winners.py [--shapes 4] [--candidates 16] [--seed 0]

MXFP4_AITER names the AITER whose preshuffled a4w4 kernel is compiled for gfx950, executed and predicted, and whose JSON
files hold the choices. For a few shapes of these files, the choice competes with two samples: of the legal points of
this project's space of that kernel, and of what AITER chose for other shapes, which are all near the best. Its place in
a sample is the share of it that is predicted faster or equal; what does not compile is slower. Where AITER splits K,
the line says whether the fastest of all predictions does.
"""

from __future__ import annotations

import json
import math
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from aiter_kernels import Knobs, gemm_program
from timed_rows import program_launches

from kernels.device import GFX950
from kernels.errors import InputError, KernelError
from kernels.problem import GemmShape
from kernels.rocm.aiter_triton import triton_root
from search.commands.sweep import SPACES
from search.gfx950.machine import AITER, Machine
from search.gfx950.model.executed import predict_works
from search.gfx950.simulator import SimulationError
from search.space.legal_set import legal_set
from search.space.space import load_spaces
from search.terminal import one_line_errors

NAME = re.compile(r"AFP4WFP4_PRESHUFFLED(?:_\w+)?-N=(\d+)-K=(\d+)\.json$")
MACHINE = Machine(harness=AITER)
FAMILY = "aiter_triton_a4w4"


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


def predicted_us(shape: GemmShape, knobs: Knobs) -> float:
    """Predicted time in microseconds; infinite where it does not compile, fit a compute unit or suit this shape."""
    try:
        works = program_launches(gemm_program(shape, knobs, fused=False), MACHINE)
    except (KernelError, SimulationError) as error:
        print(f"{shape} {knobs}: {error}", file=sys.stderr)
        return math.inf
    return predict_works(works, shape, MACHINE).predicted_us


def of_space(shape: GemmShape, count: int, chosen: random.Random) -> list[Knobs]:
    """Different random GEMMs of the legal points of this project's space of the kernel."""
    legal = legal_set(load_spaces(SPACES)[FAMILY], shape, GFX950)
    found: dict[Knobs, None] = {}
    for index in chosen.sample(range(len(legal)), min(len(legal), 8 * count)):
        found[_gemm_of(legal.config(index).to_dict())] = None
    return list(found)[:count]


def _gemm_of(config: Mapping[str, Any]) -> Knobs:
    return Knobs(
        config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"], config["split_k"], config["num_warps"],
        config["num_stages"], config["waves_per_eu"], config["matrix_instr_nonkdim"], config["cache_modifier"],
        config["GROUP_M"],
    )  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Where a choice of AITER's stands.

    Args:
        in_space: Share of points of the space that are predicted no slower.
        in_choices: Share of AITER's choices for other shapes, the same.
        splits: Whether the fastest of all predictions splits K.
    """

    in_space: float
    in_choices: float
    splits: bool


def place_of(shape: GemmShape, own: Knobs, space: Sequence[Knobs], choices: Sequence[Knobs]) -> Place | None:
    """The place of ``own``; None where it is not for this shape."""
    times = {knobs: predicted_us(shape, knobs) for knobs in dict.fromkeys((own, *space, *choices))}
    if math.isinf(times[own]):
        return None
    shares = [float(np.mean([times[knobs] <= times[own] for knobs in rivals])) for rivals in (space, choices)]
    best = min(times, key=lambda knobs: times[knobs])
    return Place(shares[0], shares[1], best.split_k > 1)


def fits(shape: GemmShape, knobs: Knobs) -> bool:
    """Whether AITER's wrapper allows it: scales of A are shuffled from 32 rows on, and K has whole steps."""
    rows = knobs.block_m >= 32 if shape.M >= 32 else knobs.block_m <= 16
    return rows and shape.K % (knobs.block_k * knobs.split_k) == 0


def main(
    shapes: Annotated[int, typer.Option(min=1, help="Shapes to look at.")] = 4,
    candidates: Annotated[int, typer.Option(min=1, help="Competitors of each kind.")] = 16,
    seed: Annotated[int, typer.Option(help="Of the choice of both.")] = 0,
) -> None:
    """Print a line a shape and the median rank."""
    known = [(shape, knobs) for shape, knobs in choices(triton_root()) if fits(shape, knobs)]
    if not known:
        raise InputError(f"{triton_root()} has no tuned files of the preshuffled a4w4 kernel; name another AITER")
    chosen = random.Random(seed)
    places: list[tuple[Knobs, Place]] = []
    for shape, own in chosen.sample(known, min(shapes, len(known))):
        others = sorted({knobs for _, knobs in known if fits(shape, knobs) and knobs != own}, key=repr)
        rivals = chosen.sample(others, min(candidates, len(others)))
        place = place_of(shape, own, of_space(shape, candidates, chosen), rivals)
        if place is None:
            continue
        places.append((own, place))
        split = f", K in {own.split_k} slices; the fastest splits: {place.splits}" if own.split_k > 1 else ""
        print(f"{shape}: no slower than AITER's choice are {place.in_space:.0%} of the space, {place.in_choices:.0%} "
              f"of its choices for other shapes{split}", flush=True)  # fmt: skip
    split_too = [place.splits for own, place in places if own.split_k > 1]
    in_space = float(np.median([place.in_space for _, place in places]))
    in_choices = float(np.median([place.in_choices for _, place in places]))
    print(f"median of {len(places)} shapes: no slower are {in_space:.1%} of the space, {in_choices:.1%} of choices for "
          f"other shapes; of {len(split_too)} that split K the model splits {sum(split_too)}")  # fmt: skip


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
