"""The timing model in GPU MODE's harness against what is publicly known of the six benchmark shapes of its problem.

Usage: python benchmarks/model_against_public_logs.py [--each 3] [--families A,B]

For each shape and family the points with the smallest estimates are compiled for gfx950, executed on the simulator and
predicted as in a sweep, but with the constants of GPU MODE's harness, in which caches are cold. A row of the table is a
shape; times are microseconds; * marks the family that is predicted to win. The last columns are the fastest time in
public logs of submissions, of whatever kernels these had, and what the model predicts over it. The logs are no fit of
the model, and nothing says which family made them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from predict_families import asked_spaces, shortlist

from kernels.config import KernelConfig
from kernels.device import GFX950
from kernels.disk import default_cache
from kernels.errors import KernelError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.evaluation import Candidate
from search.evaluators.execution import ExecutedCandidate
from search.gate.check import check_program, load_calls
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.calls import check_resources, compile_call
from search.gfx950.machine import GPUMODE, Machine
from search.gfx950.model.executed import predict_works
from search.space.space import SearchSpace
from search.terminal import TextTable, one_line_errors, output_console, print_table

NOTE = (
    f"us in GPU MODE's harness (a launch costs {GPUMODE.launch_us:g} us, caches are cold): a sweep's times differ; "
    "* is the family predicted to be fastest; - has no candidate that is right"
)
MACHINE = Machine(cu_count=GFX950.cu_count, harness=GPUMODE)
# us, fastest time in public logs of submissions to GPU MODE's amd-mxfp4-mm on an MI355X.
FASTEST_LOG_US = {
    GemmShape(4, 2880, 512): 6.34,
    GemmShape(16, 2112, 7168): 11.3,
    GemmShape(32, 4096, 512): 6.54,
    GemmShape(32, 2880, 512): 6.64,
    GemmShape(64, 7168, 2048): 13.7,
    GemmShape(256, 3072, 1536): 13.1,
}


def predicted_us(candidate: Candidate, cache: ArtifactCache) -> float:
    """Predicted time in microseconds of a candidate whose code was executed and is right.

    Raises:
        KernelError: It does not compile, spills, or is wrong.
    """
    program = FAMILIES[candidate.family].program(candidate.shape, candidate.config)
    with tempfile.TemporaryDirectory() as logs:
        compiled = [compile_call(program, call, cache, Path(logs)) for call in program.calls]
    for one in compiled:
        check_resources(one, MACHINE)
    report = check_program(program, load_calls(compiled), candidate.shape)
    works = ExecutedCandidate(program, compiled, report).works(MACHINE)
    return predict_works(works, candidate.shape, MACHINE).predicted_us


def best_us(family: str, shape: GemmShape, configs: list[KernelConfig], cache: ArtifactCache) -> float | None:
    """Smallest predicted time of the configurations that are right."""
    found = []
    for config in configs:
        try:
            found.append(predicted_us(Candidate(shape, family, config), cache))
        except KernelError as error:
            print(f"{shape} {family}: {error}", file=sys.stderr)
    return min(found, default=None)


def rows(spaces: Mapping[str, SearchSpace], each: int, cache: ArtifactCache) -> Iterator[tuple[str, ...]]:
    """A row a shape."""
    for shape, log_us in FASTEST_LOG_US.items():
        times = {
            family: best_us(family, shape, shortlist(space, shape, each, MACHINE), cache)
            for family, space in spaces.items()
        }
        least = min((us for us in times.values() if us is not None), default=float("nan"))
        cells = ["-" if us is None else f"{us:.2f}{'*' * (us == least)}" for us in times.values()]
        yield (str(shape), *cells, f"{log_us:.2f}", f"{least / log_us:.2f}")


def main(
    each: Annotated[int, typer.Option(min=1, help="Candidates of a family at a shape.")] = 3,
    families: Annotated[str | None, typer.Option(help="Families, with commas between; default: all.")] = None,
) -> None:
    """Print the table."""
    console = output_console()
    spaces = asked_spaces(families, console)
    start_s = time.perf_counter()
    found = tuple(rows(spaces, each, ArtifactCache(default_cache())))
    columns = (*spaces, "public log", "ratio")
    print_table(TextTable(("shape", *columns), found, right=frozenset(columns)), console)
    console.print(NOTE, soft_wrap=True)
    console.print(f"{each} candidates of a family, {time.perf_counter() - start_s:.0f} s")


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
