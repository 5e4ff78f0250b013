"""Orders in which the workgroups of a tile may arrive, where they hand work to one another.

Side by side the simulator executes workgroups in an order of its own. Then the last one of each tile runs once more,
alone, on what the others left: the same memory in whatever order they come, for each has stored its slice and counted
itself, and has done nothing else, as the stores tell. For rows that are to serve, all of them run again, and wait for
their turn at the ticket. Tiles are many, so each round gives each of them another order.
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
Round = list[tuple[GridIndex, ...]]  # whose turn is first, and so on


def orders(count: int) -> list[Order]:
    """Orders of ``count`` workgroups: all of a few, else a sample, of which the first two are opposite."""
    given = tuple(range(count))
    if count <= EXHAUSTIVE:
        return list(itertools.permutations(given))
    random = np.random.default_rng((SEED, count))
    drawn = [tuple(random.permutation(count).tolist()) for _ in range(SAMPLED - 2)]
    return list(dict.fromkeys([given, given[::-1], *drawn]))


def last_arrivals(workgroups: Sequence[GridIndex], coverage: TileCoverage) -> Iterator[tuple[GridIndex, ...]]:
    """Workgroups of as many tiles, each the last one of its own, until each share of K was that of some tile."""
    tiles = list(_by_tile(workgroups, coverage).values())
    shares = range(len(tiles[0]))
    for first in range(0, len(shares), len(tiles)):
        yield tuple(tile[share] for tile, share in zip(tiles, shares[first:]))  # noqa: B905 - the fewer of both


def arrivals(workgroups: Sequence[GridIndex], coverage: TileCoverage) -> Iterator[Round]:
    """Rounds of ``workgroups``, as many as every order takes to be that of some tile: the first of each tile, the next.

    Tiles have as many workgroups each.
    """
    tiles = list(_by_tile(workgroups, coverage).values())
    turns = orders(len(tiles[0]))
    for first in range(0, len(turns), len(tiles)):
        chosen = [turns[(first + number) % len(turns)] for number in range(len(tiles))]
        yield [
            tuple(tile[order[place]] for tile, order in zip(tiles, chosen, strict=True))
            for place in range(len(tiles[0]))
        ]


def _by_tile(workgroups: Sequence[GridIndex], coverage: TileCoverage) -> dict[tuple[int, int], list[GridIndex]]:
    """The workgroups of each tile, as they are in the list."""
    tile_m, tile_n, _ = coverage.tiles()
    columns = coverage.num_m * coverage.num_n
    found: dict[tuple[int, int], list[GridIndex]] = defaultdict(list)
    for x, y, z in workgroups:
        linear = x + y * columns
        found[int(tile_m[linear]), int(tile_n[linear])].append((x, y, z))
    return found
