"""How far AITER's tuned times contradict one another: what no model of shape and kernel can predict.

    python benchmarks/timing_contradictions.py CSV

CSV is the file of ``fit_timing.py --code-objects``. A row is the fastest of many kernels at its shape. A problem that
fits into another one, with no more rows, columns and depth, can be padded to it, so it takes no longer. Where a row
took longer than such a larger problem, one of the two was measured in another state of the machine. Printed are how
many rows did, by how much and of which layers, and the errors of the times nearest to the measured ones (least sum of
absolute differences of logarithms) that grow with M, N and K: no such model errs less, whatever it knows.

Winners contradict one another too. Where M is no more than the rows of the smallest tile, every kernel has one row of
tiles, and a layer's fastest is nearly the same problem at each such M. Printed is how often two of them name one
tile, and how often the tile that most of a layer's rows name, chosen with the answers known, is a row's own.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer
from scipy.optimize import linprog
from scipy.sparse import coo_matrix, eye, hstack, vstack

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from timed_rows import TIME_BANDS_US, code_object_times

from kernels.problem import GemmShape
from search.terminal import one_line_errors

Floats = npt.NDArray[np.float64]
Tile = tuple[int, int]
LIMITS = (0.01, 0.05, 0.10, 0.20)


def contained(shapes: Sequence[GemmShape]) -> npt.NDArray[np.bool_]:
    """Whether problem i fits into another problem j [i, j]."""
    extents = np.array([(shape.M, shape.N, shape.K) for shape in shapes])
    inside: npt.NDArray[np.bool_] = np.all(extents[:, None] <= extents[None], axis=2)
    np.fill_diagonal(inside, val=False)
    return inside


def excess(inside: npt.NDArray[np.bool_], us: Floats) -> Floats:
    """How much longer each row took than the fastest problem that it fits into [rows], relative; 0 where it did not."""
    least = np.where(inside, us[None], np.inf).min(axis=1)
    over: Floats = np.maximum(us / least - 1, 0.0)
    return over


def nearest_growing(inside: npt.NDArray[np.bool_], us: Floats) -> Floats:
    """Times [rows] that no problem's container undercuts, with the least sum of |log(time / us)|."""
    small, large = np.nonzero(inside)
    rows, pairs = len(us), np.arange(len(small))
    order = coo_matrix(
        (np.repeat((1.0, -1.0), len(pairs)), (np.tile(pairs, 2), np.concatenate((small, large)))), (len(pairs), rows)
    )
    # Columns are the logarithms, then what they differ by: their sum is made small.
    one, log_us = eye(rows), np.log(us)
    bounds = vstack((hstack((order, coo_matrix((len(pairs), rows)))), hstack((one, -one)), hstack((-one, -one))))
    limits = np.concatenate((np.zeros(len(pairs)), log_us, -log_us))
    weights = np.repeat((0.0, 1.0), rows)
    found = linprog(weights, A_ub=bounds.tocsr(), b_ub=limits, bounds=(None, None), method="highs-ipm")
    times: Floats = np.exp(found.x[:rows])
    return times


def layers(shapes: Sequence[GemmShape], over: Floats) -> str:
    """Layers (N, K) by rows that took a tenth longer than a larger problem."""
    names = [f"{shape.N}x{shape.K}" for shape, one in zip(shapes, over, strict=True) if one > 0.1]
    return ", ".join(f"{name} {names.count(name)}" for name in sorted(set(names), key=lambda name: -names.count(name)))


def agreement(tiles: Sequence[Tile], shapes: Sequence[GemmShape]) -> str:
    """How often rows of one layer (N, K), with one row of tiles whatever the tile, were won by the same tile."""
    one_row = min(tile_m for tile_m, _ in tiles)
    won: dict[tuple[int, int], list[Tile]] = {}
    for tile, shape in zip(tiles, shapes, strict=True):
        if one_row >= shape.M:
            won.setdefault((shape.N, shape.K), []).append(tile)
    several = [found for found in won.values() if len(found) > 1]
    same = [a == b for found in several for a, b in itertools.combinations(found, 2)]
    usual = [max(found.count(tile) for tile in found) for found in several]
    rows = sum(map(len, several))
    if not rows:
        return f"no layer has two rows with M <= {one_row}"
    return (f"M <= {one_row}: {rows} rows of {len(several)} layers; two of one layer have the same winner in "
            f"{np.mean(same):.1%}, its usual winner is right in {sum(usual) / rows:.1%}")  # fmt: skip


def main(path: Annotated[Path, typer.Argument(metavar="CSV", help="AITER's tuned a4w4 shapes.")]) -> None:
    """Print contradictions and the floor that they set."""
    rows = list(code_object_times(path))
    tiles, shapes = [tile for tile, _, _ in rows], [shape for _, shape, _ in rows]
    us = np.array([us for _, _, us in rows])
    inside = contained(shapes)
    over, errors = excess(inside, us), np.abs(nearest_growing(inside, us) / us - 1)
    counts = ", ".join(f"{(over > limit).sum()} by {limit:.0%}" for limit in LIMITS)
    print(f"{len(rows)} rows; longer than a larger problem took, by more than: {counts}")
    print(f"by more than 10% of layers NxK: {layers(shapes, over)}")
    for low, high in itertools.pairwise(TIME_BANDS_US):
        band = (us > low) & (us <= high)
        if band.any():
            floor = f"mean {errors[band].mean():.1%}, p90 {np.quantile(errors[band], 0.9):.1%}"
            print(f"{low:3g} to {high:3g} us: {band.sum():4d} rows, {(over[band] > 0.05).mean():.0%} longer by 5%; "
                  f"no growing model errs less than {floor}")  # fmt: skip
    print(agreement(tiles, shapes))


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
