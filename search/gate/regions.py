"""Which part of C a check executes: tiles with the tails of M and N, and what earlier launches must make for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kernels.launches.coverage import Coverage, TileCoverage
from kernels.launches.program import Program
from kernels.problem import GemmShape
from kernels.rocm.code_object_launch import CodeObjectCoverage

SEED = 7  # of the random tile
MULTIPLICATIONS = 3e8  # of all tiles together, at most, unless a single tile has more
CHECKED_ROWS, CHECKED_COLUMNS = 64, 64  # of a tile, where a further kernel writes the output


class TiledCoverage(Coverage, Protocol):
    """The coverage of a GEMM: whole tiles of C, one or more workgroups each."""

    @property
    def BLOCK_M(self) -> int:
        """Rows of a tile."""
        ...

    @property
    def BLOCK_N(self) -> int:
        """Columns of a tile."""
        ...

    @property
    def num_m(self) -> int:
        """Tile rows."""
        ...

    @property
    def num_n(self) -> int:
        """Tile columns."""
        ...


@dataclass(frozen=True)
class Region:
    """Rows and columns of C."""

    rows: range
    columns: range


def choose_regions(program: Program, shape: GemmShape) -> tuple[list[Region], list[list[Region]]]:
    """The regions of C to compare, and for each launch the regions that it must work on.

    A launch touches whole tiles of its own, so the launches before it must cover these.
    """
    tiles = _choose_tiles(gemm_coverage(program), shape)
    fused = "b" in program.calls[-1].args.values()
    checked = tiles if fused else [_window(tile) for tile in tiles]
    touched: list[list[Region]] = []
    regions = checked
    for call in reversed(program.calls):
        regions = [Region(*call.coverage.extent(region.rows, region.columns)) for region in regions]
        touched.insert(0, regions)
    return checked, touched


def _choose_tiles(coverage: TiledCoverage, shape: GemmShape) -> list[Region]:
    """Tiles to compute, as many as are affordable: both tails, the first, each tail alone, another."""
    last_m, last_n = coverage.num_m - 1, coverage.num_n - 1
    random = np.random.default_rng((SEED, coverage.num_m, coverage.num_n))
    wanted = [(last_m, last_n), (0, 0), (last_m, 0), (0, last_n)]
    wanted.append((_between(random, coverage.num_m), _between(random, coverage.num_n)))
    affordable = int(MULTIPLICATIONS / (coverage.BLOCK_M * coverage.BLOCK_N * shape.K))
    chosen = list(dict.fromkeys(wanted))[: max(1, affordable)]
    return [
        Region(
            range(m * coverage.BLOCK_M, min((m + 1) * coverage.BLOCK_M, shape.M)),
            range(n * coverage.BLOCK_N, min((n + 1) * coverage.BLOCK_N, shape.N)),
        )
        for m, n in chosen
    ]


def _between(random: np.random.Generator, count: int) -> int:
    """A random one of ``count`` places; an odd one if the first and the last are even.

    Rows and columns 16 apart share words of scales, so tiles of 16 take turns in which bytes they use.
    """
    odd = count // 2
    return int(2 * random.integers(odd) + 1 if count % 2 and odd else random.integers(count))


def gemm_coverage(program: Program) -> TiledCoverage:
    """Tiles of the launch that reads the weight.

    Raises:
        ValueError: There is no such launch, or nobody knows which workgroup of it computes what.
    """
    for call in program.calls:
        if "b" in call.args.values() and isinstance(call.coverage, (TileCoverage, CodeObjectCoverage)):
            return call.coverage
    raise ValueError("the program has no launch that reads the weight")


def _window(tile: Region) -> Region:
    """The last rows and columns of a tile, where its tails are."""
    rows, columns = tile.rows, tile.columns
    return Region(
        range(max(rows.start, rows.stop - CHECKED_ROWS), rows.stop),
        range(max(columns.start, columns.stop - CHECKED_COLUMNS), columns.stop),
    )
