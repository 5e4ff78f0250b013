"""Refit the constants of the issue-order simulation to public timings, and say how good they are on rows left out.

    python benchmarks/fit_timing.py [--gpumode CSV] [--code-objects CSV] [--fit-s 60] [--every 1] [--seed 0]

CSV files, with the columns that are needed:

--gpumode       logged configurations of AITER's fused Triton kernel: shape, BSM, BSN, BSK, NW, NS, WPE, SPLITK, cache,
                us, rel, ref, version. The kernel is compiled from the AITER that MXFP4_AITER names.
--code-objects  AITER's tuned a4w4 shapes as AITER has them, with a column kernel_family (asm): M, N, K, tile_m,
                tile_n, splitK, us. One author, one kernel a shape: ranks say where the winner stands among all tiles,
                and how often it is predicted as fast as the first but for the noise of a measurement.

The constants of the product are held against every row. With --fit-s, those that are marked *fit* are searched as well:
once on all rows, whose result is printed, and once on the layers (N, K) outside of each of five folds, whose errors,
pairs and ranks are those of the layers in it. Nothing is judged on layers that it was fitted to, but the first line.

What the left-out rows miss is what predictions say of themselves: the ``interval`` of a harness holds nine of ten of
their times, and half of the pairs of one shape miss their ratio by more than its ``tie``.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from code_object_surfaces import Place, SurfaceRow, prepared, tiles, winner_place
from timed_rows import TIME_BANDS_US, TimedRow, code_object_times, logged_configurations

from kernels.errors import InputError
from search.gfx950.machine import AITER, GPUMODE, Harness, Machine
from search.gfx950.model.constants import CONSTANTS, Constants, sources
from search.terminal import one_line_errors

FOLDS = 5
SAME = 0.012  # relative difference of two runs of one configuration: pairs within it have no order
UNKNOWN = Place(0, 0.0)
HARNESS_FIELDS = ("launch_us", "extra_kernel_us")
Ranges = Mapping[str, tuple[float, float]]
Row = TimedRow | SurfaceRow
GPUMODE_RANGES: Ranges = {
    "launch_us": (4.24, 5.0), "extra_kernel_us": (0.4, 2.6), "cold_latency_clks": (300, 1200),
    "handed_latency_clks": (300, 1500), "lds_latency_clks": (48, 130), "barrier_clks": (0, 60),
    "scalar_load_clks": (100, 350), "store_latency_clks": (200, 1200), "crowding": (0, 1),
}  # fmt: skip
AITER_RANGES: Ranges = {
    "launch_us": (1.5, 3.3), "unit_bytes_per_clk": (20, 45), "warm_latency_clks": (300, 1000), "write_tbs": (2.5, 8),
    "exposed_share": (0, 0.6), "mfma_throttle": (0, 1), "fill_gain": (0.5, 3), "overlap": (1.2, 8),
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
        order = f"  pairs in order {self.pairs:.3f}  regret of the pick {self.regret:.1%}"
        errors = f"median |error| {self.median:5.1%}  p90 {self.p90:5.1%}  mean {self.mean:5.1%}"
        return f"{self.rows:4d} rows  {errors}{'' if np.isnan(self.pairs) else order}"


def predicted(rows: Sequence[Row], point: Point) -> np.ndarray:
    """Predicted time of each row in microseconds."""
    machine = Machine(harness=point.harness)
    return np.array([row.predicted_us(machine, point.constants) for row in rows])


def scores(rows: Sequence[Row], times: np.ndarray) -> Scores:
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


def fitted(rows: Sequence[Row], start: Point, ranges: Ranges, s: float, seed: int) -> Point:
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


def folds(rows: Sequence[Row], seed: int) -> Iterator[np.ndarray]:
    """Which rows [rows] are left out in each fold: those of some layers (N, K), so of some models."""
    layers = sorted({(row.shape.N, row.shape.K) for row in rows})
    random.Random(seed).shuffle(layers)
    for fold in range(min(FOLDS, len(layers))):
        chosen = set(layers[fold::FOLDS])
        yield np.array([(row.shape.N, row.shape.K) in chosen for row in rows])


@dataclass(frozen=True)
class LeftOut:
    """Predictions of each row by constants that were fitted to other layers.

    Args:
        times: [rows] us.
        places: Of the tile that won [rows].
    """

    times: np.ndarray
    places: Sequence[Place]


def held_out(rows: Sequence[Row], start: Point, ranges: Ranges, seconds: float, seed: int) -> LeftOut:
    """Judge every fold by a fit to the others."""
    times, places = np.zeros(len(rows)), [UNKNOWN] * len(rows)
    for fold, out in enumerate(folds(rows, seed)):
        kept = [row for row, left in zip(rows, out, strict=True) if not left]
        point = fitted(kept, start, ranges, seconds / FOLDS, seed + fold)
        own = [row for row, left in zip(rows, out, strict=True) if left]
        times[out] = predicted(own, point)
        for index, place in zip(np.flatnonzero(out), places_of(own, point), strict=True):
            places[index] = place
    return LeftOut(times, places)


def places_of(rows: Sequence[Row], point: Point) -> list[Place]:
    """Place of each row's kernel among those that could have won."""
    machine = Machine(harness=point.harness)
    return [winner_place(row, machine, point.constants) if isinstance(row, SurfaceRow) else UNKNOWN for row in rows]


def top(places: Sequence[Place]) -> str:
    """Shares of winners that are predicted first, among the first three, and as fast as the first but for noise."""
    ranks, slower = np.array(places).T
    if not ranks.any():
        return ""
    near = f"within {SAME:.1%} of the first {(slower <= SAME).mean():.1%}"
    return f"winner first {(ranks == 1).mean():.1%}  among three {(ranks <= 3).mean():.1%}  {near}"


def widths(rows: Sequence[Row], times: np.ndarray) -> str:
    """What a harness says of its predictions, from rows that were left out: its interval, and its tie."""
    misses = {row: float(np.log(us / row.us)) for row, us in zip(rows, times, strict=True)}
    absolute = [abs(miss) for row, miss in misses.items() if not row.relative]
    interval = np.quantile(absolute, 0.9)
    groups = itertools.groupby(sorted(rows, key=lambda row: row.group), key=lambda row: row.group)
    pairs = [pair for _, group in groups for pair in itertools.combinations(group, 2)]
    told = [abs(misses[a] - misses[b]) for a, b in pairs]
    tie = f", tie = {np.median(told):.3f} from {len(told)} pairs" if told else ""
    return f"interval = {interval:.3f} from {len(absolute)} rows{tie}"


def by_time(rows: Sequence[Row], times: np.ndarray) -> Iterator[str]:
    """Agreement of ``times`` [rows] with rows that took about as long."""
    for low, high in itertools.pairwise(TIME_BANDS_US):
        pairs = [(us, row.us) for row, us in zip(rows, times, strict=True) if not row.relative]
        errors = [abs(us / measured - 1) for us, measured in pairs if low < measured <= high]
        if errors:
            share = f"median |error| {np.median(errors):5.1%}  p90 {np.quantile(errors, 0.9):5.1%}"
            yield f"{low:3g} to {high:3g} us: {len(errors):4d} rows  {share}"


def report(title: str, rows: Sequence[Row], start: Point, ranges: Ranges, seconds: float, seed: int) -> None:
    """Print how the product's constants agree with ``rows``, and after a fit the rows left out of it."""
    print(f"{title}\n  constants as they are  {scores(rows, predicted(rows, start))}  {top(places_of(rows, start))}")
    if not seconds:
        return
    left = held_out(rows, start, ranges, seconds, seed)
    print(f"  fitted, layers left out {scores(rows, left.times)}  {top(left.places)}")
    for line in by_time(rows, left.times):
        print(f"    {line}")
    print(f"  of these: {widths(rows, left.times)}", flush=True)
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
        logged = list(logged_configurations(gpumode, Machine()))
        report(f"{gpumode}, harness gpumode", logged, Point(CONSTANTS, GPUMODE), GPUMODE_RANGES, fit_s, seed)
    if code_objects is not None:
        rows = [SurfaceRow(shape, tile, us) for tile, shape, us in code_object_times(code_objects)][::every]
        prepared(tiles(0))
        report(f"{code_objects}, harness aiter", rows, Point(CONSTANTS, AITER), AITER_RANGES, fit_s, seed)
    for name, value, unit, origin, source in sources():
        print(f"{name:24} {value:>9g} {unit:6} {origin:5} {source}")


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
