"""Whether every prediction is a number, no less than the roofline, and no less at more rows: random candidates.

    python benchmarks/model_sanity.py [--candidates 2000] [--ladder 20] [--seed 0]

Random legal configurations of the Triton families at the layers of the GPU MODE competition, each at a ladder of M that
rises by whole groups of GROUP_M tile rows, so that one compilation serves many candidates. Workgroup i runs on die
i % 8: a group of fewer rows is dealt to the dies in another order, so that those of one die may share less of the
operands, and the time may rightly fall when the group becomes whole. The first workgroup of each launch is executed and
predicted as in a sweep. A line a fault; the last one counts them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from timed_rows import program_launches

from kernels.config import KernelConfig
from kernels.device import GFX950
from kernels.errors import KernelError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.commands.sweep import SPACES
from search.device.peaks import roofline_us
from search.gfx950.machine import MI355X
from search.gfx950.model.executed import predict_works
from search.space.legal_set import legal_sets
from search.space.space import load_spaces
from search.study.priors import sweep_points
from search.terminal import one_line_errors

FAMILY_NAMES = ("fused", "fused_splitk_atomic", "fused_splitk_workspace", "staged_triton")
LAYERS = ((2880, 512), (2112, 7168), (4096, 512), (7168, 2048), (3072, 1536))
LARGEST_M = 4096
ROUNDING = 1e-9


@dataclass(frozen=True)
class Ladder:
    """A configuration at several M."""

    family: str
    config: KernelConfig
    shapes: tuple[GemmShape, ...]


def ladders(count: int, rungs: int, seed: int) -> Iterator[Ladder]:
    """``count`` random configurations, each at ``rungs`` numbers of whole groups of tile rows."""
    random = np.random.default_rng(seed)
    spaces = {name: space for name, space in load_spaces(SPACES).items() if name in FAMILY_NAMES}
    for index in range(count):
        N, K = LAYERS[index % len(LAYERS)]
        family = FAMILY_NAMES[index // len(LAYERS) % len(FAMILY_NAMES)]
        shape = GemmShape(int(random.choice((16, 64, 256))), N, K)
        points = sweep_points(legal_sets([spaces[family]], shape, GFX950)[0], GFX950, int(random.integers(1 << 30)))
        _, config = points.random(family)
        group = int(config.to_dict()["BLOCK_M"]) * int(config.to_dict()["GROUP_M"])
        most = max(1, LARGEST_M // group)
        groups = sorted({int(most ** (rung / max(1, rungs - 1))) for rung in range(rungs)})
        yield Ladder(family, config, tuple(GemmShape(group * count, N, K) for count in groups))


def predicted(ladder: Ladder) -> Iterator[tuple[GemmShape, float]]:
    """(shape, predicted us) of each rung that the configuration is legal at and compiles for."""
    for shape in ladder.shapes:
        if ladder.config.check(shape, GFX950) is not None:
            continue
        try:
            works = program_launches(FAMILIES[ladder.family].program(shape, ladder.config), MI355X)
        except KernelError:
            return  # it spills or does not compile, at any M
        yield shape, predict_works(works, shape, MI355X).predicted_us


def faults(times: Sequence[tuple[GemmShape, float]]) -> Iterator[str]:
    """What does not hold of the times of one ladder."""
    before = 0.0
    for shape, us in times:
        if not math.isfinite(us):
            yield f"{shape}: {us} us"
        elif us < (roofline_us(shape, GFX950) or 0.0) * (1 - ROUNDING):
            yield f"{shape}: {us:.3f} us is below the roofline"
        elif us < before * (1 - ROUNDING):
            yield f"{shape}: {us:.3f} us, fewer rows take {before:.3f} us"
        before = max(before, us)


def main(
    candidates: Annotated[int, typer.Option(min=1, help="Predictions at least.")] = 2000,
    ladder: Annotated[int, typer.Option(min=1, help="Values of M of each configuration.")] = 20,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
) -> None:
    """Print the faults and their number."""
    done = found = configurations = 0
    for one in ladders(candidates, ladder, seed):  # more than are needed: some compile at no M
        times = list(predicted(one))
        done, configurations = done + len(times), configurations + bool(times)
        for fault in faults(times):
            found += 1
            print(f"{one.family} {one.config}: {fault}", flush=True)
        if done >= candidates:
            break
    print(f"{done} candidates of {configurations} configurations: {found} faults")
    raise typer.Exit(1 if found else 0)


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
