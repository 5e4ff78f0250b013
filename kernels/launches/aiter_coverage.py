"""How the workgroups of AITER's Triton kernels lie over C: all on the x axis, or a tile an index of x and y."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels.launches.coverage import GridIndex, Indices, TileCoverage


@dataclass(frozen=True)
class SplitFirstCoverage(TileCoverage):
    """Tiles of C whose slices of K come one after the other, on one axis.

    Source: AITER's ``pid_preprocessing`` and its GEMM kernels: the dies' ranges first, then the slice, then the tile,
    in groups of rows only where K is not split.
    """

    def tiles(self) -> tuple[Indices, Indices, Indices]:
        """(tile row, tile column, slice) of every workgroup."""
        linear = self._on_dies(np.arange(self.num_m * self.num_n * self.split_k))
        tile, split = linear // self.split_k, linear % self.split_k
        if self.split_k > 1:
            return tile // self.num_n, tile % self.num_n, split
        group = self.GROUP_M * self.num_n
        first = tile // group * self.GROUP_M
        height = np.minimum(self.num_m - first, self.GROUP_M)
        return first + tile % group % height, tile % group // height, split

    def _on_dies(self, workgroup: Indices) -> Indices:
        """Place of each workgroup in an order in which every die has a contiguous range."""
        share, rest = divmod(len(workgroup), self.num_xcds)
        die = workgroup % self.num_xcds
        return die * share + np.minimum(die, rest) + workgroup // self.num_xcds

    def grid_of(self, M: int, N: int) -> GridIndex:
        """Slices of all tiles in x."""
        return -(-M // self.BLOCK_M) * -(-N // self.BLOCK_N) * self.split_k, 1, 1

    def workgroups(self, rows: range, columns: range) -> tuple[GridIndex, ...]:
        """All slices of the tiles that meet the region."""
        tiles = self.num_m * self.num_n
        return tuple((x + tiles * y, 0, 0) for x, y, _ in super().workgroups(rows, columns))


@dataclass(frozen=True)
class TileGridCoverage(TileCoverage):
    """Tiles of C on a grid of two axes, x along the rows; where C ends, a tile goes on at its first row or column."""

    def tiles(self) -> tuple[Indices, Indices, Indices]:
        """(tile row, tile column, 0) of every workgroup."""
        linear = np.arange(self.num_m * self.num_n)
        return linear % self.num_m, linear // self.num_m, np.zeros_like(linear)

    @property
    def begins_anew(self) -> bool:
        """Whether some tile goes on at the first row or column, and so stores again what another one does."""
        return bool(self.M % self.BLOCK_M or self.N % self.BLOCK_N)

    def grid_of(self, M: int, N: int) -> GridIndex:
        """Tile rows in x, tile columns in y."""
        return -(-M // self.BLOCK_M), -(-N // self.BLOCK_N), 1

    def workgroups(self, rows: range, columns: range) -> tuple[GridIndex, ...]:
        """The tiles that meet the region."""
        tiles_m = range(rows.start // self.BLOCK_M, (rows.stop - 1) // self.BLOCK_M + 1)
        tiles_n = range(columns.start // self.BLOCK_N, (columns.stop - 1) // self.BLOCK_N + 1)
        return tuple((m, n, 0) for n in tiles_n for m in tiles_m)

    def extent(self, rows: range, columns: range) -> tuple[range, range]:
        """The region grown to whole tiles, and to all rows or columns where a tile begins anew."""
        return _wrapped(rows, self.BLOCK_M, self.M), _wrapped(columns, self.BLOCK_N, self.N)


def _wrapped(span: range, block: int, extent: int) -> range:
    stop = -(-span.stop // block) * block
    return range(extent) if stop > extent else range(span.start // block * block, stop)
