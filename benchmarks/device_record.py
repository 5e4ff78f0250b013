"""Sweep shapes over a small space exhaustively on the local GPU, and write each as a Parquet file to replay.

Usage: python benchmarks/device_record.py --output DIR [--shapes 16x2112x7168,...] [--spaces DIR] [--families fused,...]
       [--budget-s 500] [--results DIR]

The spaces are those of benchmarks/recorded_spaces unless --spaces names others, such as configs/spaces. A shape
that the budget cuts short is written as far as it came; the same command with the same --results goes on. About
8 candidates a second on a machine with 16 cores.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from search.commands.sweep import SweepRequest, run_sweep
from search.report.progress import TerminalReporter
from search.results import load, save
from search.space.shapes import parse_shapes
from search.terminal import one_line_errors, output_console

SPACES = Path(__file__).resolve().parent / "recorded_spaces"
SHAPES = "16x2112x7168,32x2880x512,256x2880x512"
EVERY = 1_000_000  # trials: more than the space has


def main(
    output: Annotated[Path, typer.Option(help="Folder of the Parquet files.")],
    shapes: Annotated[str, typer.Option(help="Comma-separated.")] = SHAPES,
    budget_s: Annotated[float, typer.Option(help="Of all shapes.")] = 500.0,
    results: Annotated[Path, typer.Option(help="Where the studies are kept.")] = Path("results/record"),
    spaces: Annotated[Path, typer.Option(help="Folder of the spaces.")] = SPACES,
    families: Annotated[str | None, typer.Option(help="Comma-separated; default: all that have a space.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Compiling processes.")] = None,
) -> None:
    """Sweep and write."""
    asked = parse_shapes(shapes.split(","))
    request = SweepRequest(
        asked, "local", families=tuple(families.split(",")) if families else None, trials=EVERY,
        time_budget_s=budget_s, sampler="random", results=results, jobs=jobs, spaces=spaces,
    )  # fmt: skip
    with TerminalReporter(output_console()) as reporter:
        run_sweep(request, reporter)
    frame = load(results)
    output.mkdir(parents=True, exist_ok=True)
    for shape in asked:
        rows = frame[(frame["M"] == shape.M) & (frame["N"] == shape.N) & (frame["K"] == shape.K)]
        if len(rows):
            device = f"{rows['arch'].iloc[0]}-{rows['cu_count'].iloc[0]}cu"
            path = output / f"{device}-{shape}.parquet"
            save(rows, path)
            print(f"{path.name}: {len(rows)} trials, {path.stat().st_size} bytes, {gpu_wait_text(rows)}")


def gpu_wait_text(rows: object) -> str:
    """Share of the GPU's time that it waited for a compiled candidate."""
    from search.report.finals import gpu_wait_share

    return f"GPU waited {100 * gpu_wait_share(rows):.1f} % of its time"  # type: ignore[arg-type]


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
