"""Other orders in which the workgroups of a tile arrive, where they hand work to one another.

The simulator executes workgroups side by side, and where several change one word, in the order in which they are given.
So another order of the list is another order of arrival. Tiles are many, so each launch gives each of them another one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from kernels.launches.coverage import GridIndex, TileCoverage

EXHAUSTIVE = 4  # workgroups of a tile of which every order is executed
SAMPLED = 8  # orders of more
SEED = 17

Order = tuple[int, ...]


def orders(count: int) -> list[Order]:
    """Orders of ``count`` workgroups but the given one: all of a few, else a sample, the reversed one first."""
    given = tuple(range(count))
    if count <= EXHAUSTIVE:
        return list(itertools.permutations(given))[1:]
    random = np.random.default_rng((SEED, count))
    drawn = [tuple(random.permutation(count).tolist()) for _ in range(SAMPLED - 1)]
    return list(dict.fromkeys([given[::-1], *drawn]))


def rearranged(workgroups: Sequence[GridIndex], coverage: TileCoverage) -> Iterator[tuple[GridIndex, ...]]:
    """``workgroups``, those of each tile in another order, as often as every order takes to be that of some tile."""
    tiles = list(_positions(workgroups, coverage).values())
    turns = orders(max(map(len, tiles)))
    for first in range(0, len(turns), len(tiles)):
        found = list(workgroups)
        for number, positions in enumerate(tiles):
            order = turns[(first + number) % len(turns)]
            for position, taken in zip(positions, order, strict=True):
                found[position] = workgroups[positions[taken]]
        yield tuple(found)


def _positions(workgroups: Sequence[GridIndex], coverage: TileCoverage) -> dict[tuple[int, int], list[int]]:
    """Where the workgroups of each tile are in the list."""
    tile_m, tile_n, _ = coverage.tiles()
    columns = coverage.num_m * coverage.num_n
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for position, (x, y, _) in enumerate(workgroups):
        linear = x + y * columns
        found[int(tile_m[linear]), int(tile_n[linear])].append(position)
    return found
