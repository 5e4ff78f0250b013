"""Processor time of a suggestion of the search's own sampler, late in a search. Needs no GPU.

Usage: python benchmarks/suggestion_time.py [--points 2000,20000] [--trials 500] [--last 50]

A space of made-up knobs and times. A suggestion counts with learning what its trial took, and with a fit of the model
where one falls due: after every fifth more trials, which is why the longest of all is printed too.
"""

from __future__ import annotations

import os

if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as run_search.py does

import sys
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pandas as pd
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from search.study.features import PointSpace
from search.study.surrogate import SurrogateSearch
from search.terminal import one_line_errors

KNOBS, CHOICES = 9, 6  # about as many as a family of this project has


def made_up(points: int) -> tuple[PointSpace, npt.NDArray[np.float64]]:
    """So many different points, and a smooth time of each."""
    codes = np.sort(np.random.default_rng(0).choice(CHOICES**KNOBS, points, replace=False))
    digits = codes[:, None] // CHOICES ** np.arange(KNOBS) % CHOICES
    frame = pd.DataFrame({f"knob{i}": 2**column for i, column in enumerate(digits.T)})
    return PointSpace({"": frame}), 10 + ((digits - 2.5) ** 2 @ np.linspace(0.1, 1, KNOBS))


def suggestions_ms(points: int, trials: int) -> list[float]:
    """Milliseconds of each suggestion."""
    space, times = made_up(points)
    search, spent = SurrogateSearch(space, 0), []
    for _ in range(trials):
        begin_s = time.process_time()
        point = search.propose()
        search.tell(point, float(times[point]))
        spent.append(1e3 * (time.process_time() - begin_s))
    return spent


def main(
    points: Annotated[str, typer.Option(help="Sizes of the spaces, comma-separated.")] = "2000,20000",
    trials: Annotated[int, typer.Option(min=1)] = 500,
    last: Annotated[int, typer.Option(min=1, help="Trials that count.")] = 50,
) -> None:
    """Print one line a size."""
    for size in map(int, points.split(",")):
        spent = suggestions_ms(size, trials)
        late = spent[-last:]
        print(
            f"{size} points: mean of the last {len(late)} of {trials} trials {np.mean(late):.1f} ms; "
            f"of all {np.mean(spent):.1f} ms, the longest {max(spent):.0f} ms"
        )


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
