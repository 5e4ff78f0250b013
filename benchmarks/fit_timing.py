"""Refit the constants of the issue-order simulation to public timings, and say how good they are on rows left out.

    python benchmarks/fit_timing.py [--gpumode CSV] [--code-objects CSV] [--fit-s 60] [--every 1] [--seed 0]

CSV files, with the columns that are needed:

--gpumode       logged configurations of AITER's fused Triton kernel: shape, BSM, BSN, BSK, NW, NS, WPE, SPLITK, cache,
                us, rel, ref, version. The kernel is compiled from the AITER that MXFP4_AITER names.
--code-objects  AITER's tuned a4w4 shapes as AITER has them, with a column kernel_family (asm): M, N, K, tile_m,
                tile_n, splitK, us.

The constants of the product are held against every row. With --fit-s, those that are marked *fit* are searched as well:
once on all rows, whose result is printed, and once on the shapes outside of each of five folds, whose errors are those
of the shapes in it. Nothing is judged on shapes that it was fitted to, but the first line.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from timed_rows import TimedRow, code_object_rows, logged_configurations

from kernels.errors import InputError
from search.gfx950.machine import AITER, GPUMODE, Harness, Machine
from search.gfx950.model.constants import CONSTANTS, Constants, sources
from search.terminal import one_line_errors

FOLDS = 5
SAME = 0.012  # relative difference of two runs of one configuration: pairs within it have no order
HARNESS_FIELDS = ("launch_us", "extra_kernel_us")
Ranges = Mapping[str, tuple[float, float]]
GPUMODE_RANGES: Ranges = {
    "launch_us": (4.24, 5.0), "extra_kernel_us": (0.4, 2.6), "cold_latency_clks": (300, 1200),
    "handed_latency_clks": (300, 1500), "lds_latency_clks": (48, 130), "barrier_clks": (0, 60),
    "scalar_load_clks": (100, 350), "store_latency_clks": (200, 1200), "crowding": (0, 1),
}  # fmt: skip
AITER_RANGES: Ranges = {
    "launch_us": (1.5, 3.3), "unit_bytes_per_clk": (20, 45), "cold_latency_clks": (300, 1200),
    "warm_latency_clks": (300, 1000), "write_tbs": (2.5, 8), "exposed_share": (0, 0.5), "mfma_throttle": (0, 0.6),
    "dispatch_clks": (0, 8), "fill_gain": (1, 3),
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """Constants and harness that are tried together."""

    constants: Constants
    harness: Harness

    def moved(self, chosen: random.Random, ranges: Ranges) -> Point:
        """A neighbour: one to three values shifted within their ranges."""
        values = {}
        for name in chosen.sample(sorted(ranges), chosen.choice((1, 1, 2, 3))):
            low, high = ranges[name]
            own = getattr(self.harness if name in HARNESS_FIELDS else self.constants, name)
            values[name] = min(high, max(low, own + chosen.gauss(0, 0.15) * (high - low)))
        outer = {name: value for name, value in values.items() if name in HARNESS_FIELDS}
        inner = {name: value for name, value in values.items() if name not in HARNESS_FIELDS}
        return Point(replace(self.constants, **inner), replace(self.harness, **outer))


@dataclass(frozen=True)
class Scores:
    """How predictions agree with measurements."""

    rows: int
    median: float
    p90: float
    mean: float
    pairs: float
    regret: float

    def __str__(self) -> str:
        return (
            f"{self.rows:4d} rows  median |error| {self.median:5.1%}  p90 {self.p90:5.1%}  mean {self.mean:5.1%}"
            f"  pairs in order {self.pairs:.3f}  regret of the pick {self.regret:.1%}"
        )


def predicted(rows: Sequence[TimedRow], point: Point) -> np.ndarray:
    """Predicted time of each row in microseconds."""
    machine = Machine(harness=point.harness)
    return np.array([row.predicted_us(machine, point.constants) for row in rows])


def scores(rows: Sequence[TimedRow], times: np.ndarray) -> Scores:
    """Agreement of ``times`` [rows] with what was measured."""
    absolute = [abs(us / row.us - 1) for row, us in zip(rows, times, strict=True) if not row.relative]
    groups: dict[str, list[tuple[float, float]]] = {}
    for row, us in zip(rows, times, strict=True):
        groups.setdefault(row.group, []).append((row.us, float(us)))
    order = [
        (a[0] < b[0]) == (a[1] < b[1])
        for group in groups.values()
        for a, b in itertools.combinations(group, 2)
        if abs(a[0] / b[0] - 1) > SAME
    ]
    several = [group for group in groups.values() if len(group) > 1]
    regrets = [min(group, key=lambda one: one[1])[0] / min(group)[0] - 1 for group in several]
    return Scores(
        len(absolute), float(np.median(absolute)), float(np.quantile(absolute, 0.9)), float(np.mean(absolute)),
        float(np.mean(order)) if order else float("nan"), float(np.mean(regrets)) if regrets else float("nan"),
    )  # fmt: skip


def loss(found: Scores) -> float:
    """What the fit makes small."""
    order = 0.0 if np.isnan(found.pairs) else 0.25 * (1 - found.pairs)
    return found.mean + 0.3 * found.median + 0.1 * found.p90 + order


def fitted(rows: Sequence[TimedRow], start: Point, ranges: Ranges, s: float, seed: int) -> Point:
    """The best point found in ``s`` seconds of random search from ``start``."""
    chosen, best = random.Random(seed), start
    least = loss(scores(rows, predicted(rows, start)))
    end = time.monotonic() + s
    while time.monotonic() < end:
        tried = best.moved(chosen, ranges)
        found = loss(scores(rows, predicted(rows, tried)))
        if found < least:
            least, best = found, tried
    return best


def held_out(rows: Sequence[TimedRow], start: Point, ranges: Ranges, seconds: float, seed: int) -> np.ndarray:
    """Predicted time of each row by constants that were fitted to the rows of other shapes only."""
    shapes = sorted({str(row.shape) for row in rows})
    random.Random(seed).shuffle(shapes)
    times = np.zeros(len(rows))
    for fold in range(min(FOLDS, len(shapes))):
        out = np.array([str(row.shape) in shapes[fold::FOLDS] for row in rows])
        kept = [row for row, left in zip(rows, out, strict=True) if not left]
        point = fitted(kept, start, ranges, seconds / FOLDS, seed + fold)
        times[out] = predicted([row for row, left in zip(rows, out, strict=True) if left], point)
    return times


def report(title: str, rows: Sequence[TimedRow], start: Point, ranges: Ranges, seconds: float, seed: int) -> None:
    """Print how the product's constants agree with ``rows``, and after a fit the rows left out of it."""
    print(f"{title}\n  constants as they are       {scores(rows, predicted(rows, start))}")
    if not seconds:
        return
    print(f"  fitted, shapes left out     {scores(rows, held_out(rows, start, ranges, seconds, seed))}")
    best = fitted(rows, start, ranges, seconds, seed)
    for name in sorted(ranges):
        print(f"    {name} = {_value(best, name):.4g} (was {_value(start, name):.4g})")


def _value(point: Point, name: str) -> float:
    return float(getattr(point.harness if name in HARNESS_FIELDS else point.constants, name))


def main(
    gpumode: Annotated[Path | None, typer.Option(metavar="CSV", help="Logged configurations.")] = None,
    code_objects: Annotated[Path | None, typer.Option(metavar="CSV", help="AITER's tuned a4w4 shapes.")] = None,
    fit_s: Annotated[float, typer.Option(min=0, help="Seconds of each search of constants; 0 fits nothing.")] = 0,
    every: Annotated[int, typer.Option(min=1, help="Take one of so many rows of --code-objects.")] = 1,
    seed: Annotated[int, typer.Option(help="Of folds and search.")] = 0,
) -> None:
    """Print agreement, and after a fit the constants."""
    if gpumode is None and code_objects is None:
        raise InputError("no rows: name a file with --gpumode or --code-objects")
    if gpumode is not None:
        rows = list(logged_configurations(gpumode, Machine()))
        report(f"{gpumode}, harness gpumode", rows, Point(CONSTANTS, GPUMODE), GPUMODE_RANGES, fit_s, seed)
    if code_objects is not None:
        rows = list(code_object_rows(code_objects))[::every]
        report(f"{code_objects}, harness aiter", rows, Point(CONSTANTS, AITER), AITER_RANGES, fit_s, seed)
    for name, value, unit, origin, source in sources():
        print(f"{name:24} {value:>9g} {unit:6} {origin:5} {source}")


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
