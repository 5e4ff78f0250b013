"""Which workgroups compute which part of an output."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

GridIndex = tuple[int, int, int]
Indices = npt.NDArray[np.int64]


class Coverage(Protocol):
    """How the workgroups of one launch are laid over the output C [M, N]."""

    def workgroups(self, rows: range, columns: range) -> tuple[GridIndex, ...]:
        """Every workgroup that contributes to these rows and columns of C, in launch order."""

    def extent(self, rows: range, columns: range) -> tuple[range, range]:
        """Rows and columns of C that these workgroups touch, which earlier launches must have made."""

    def grid_of(self, M: int, N: int) -> GridIndex:
        """The only grid whose workgroups do each part of the work on C [M, N] exactly once."""


@runtime_checkable
class TiledCoverage(Coverage, Protocol):
    """The coverage of a kernel that works on whole tiles of C, one or more workgroups each."""

    @property
    def BLOCK_M(self) -> int:
        """Rows of a tile."""

    @property
    def BLOCK_N(self) -> int:
        """Columns of a tile."""

    @property
    def num_m(self) -> int:
        """Tile rows."""

    @property
    def num_n(self) -> int:
        """Tile columns."""

    def tiles(self) -> tuple[Indices, ...]:
        """(tile row, tile column) of every workgroup, and perhaps its split, in the order x fastest, then y."""


def grid_fault(coverage: Coverage, grid: GridIndex, M: int, N: int) -> str | None:
    """Why the workgroups of ``grid`` do not cover C [M, N] exactly once; None: they do.

    Only integers are looked at; nothing is executed.
    """
    needed = coverage.grid_of(M, N)
    if grid != needed:
        return f"its grid is {grid}, C [{M}, {N}] needs {needed}"
    if coverage.extent(range(M), range(N)) != (range(M), range(N)):
        return f"its tiles reach {coverage.extent(range(M), range(N))} of C [{M}, {N}]"
    return _repetition(coverage) if isinstance(coverage, TiledCoverage) else None


def _repetition(coverage: TiledCoverage) -> str | None:
    """Why the workgroups of a tiled coverage do not take each tile, and each split of it, once."""
    tile_m, tile_n, *split = coverage.tiles()
    tiles = coverage.num_m * coverage.num_n
    part = tile_m * coverage.num_n + tile_n + (split[0] * tiles if split else 0)
    inside = (tile_m >= 0) & (tile_m < coverage.num_m) & (tile_n >= 0) & (tile_n < coverage.num_n)
    if not inside.all():
        return f"workgroup {int(inside.argmin())} takes a tile that C does not have"
    times = np.bincount(part, minlength=tiles)
    if (times == 1).all():
        return None
    first = int((times != 1).argmax())
    place = (first % tiles // coverage.num_n, first % coverage.num_n)
    return f"{int(times[first])} workgroups take part {first // tiles} of tile {place}, not one"


@dataclass(frozen=True)
class TileCoverage:
    """Tiles of C, with the remaps of ``kernels.triton.tiles.tile_of_program``.

    Args:
        num_xcds: Dies that each get a contiguous range of tiles.
        split_k: Workgroups of one tile.
    """

    M: int
    N: int
    BLOCK_M: int
    BLOCK_N: int
    GROUP_M: int = 1
    num_xcds: int = 1
    split_k: int = 1

    @property
    def num_m(self) -> int:
        """Tile rows."""
        return -(-self.M // self.BLOCK_M)

    @property
    def num_n(self) -> int:
        """Tile columns."""
        return -(-self.N // self.BLOCK_N)

    def tiles(self) -> tuple[Indices, Indices, Indices]:
        """(tile row, tile column, split) of every workgroup, in the order x fastest, then y."""
        return _tiles(self)

    def grid_of(self, M: int, N: int) -> GridIndex:
        """Tiles in x, splits in y."""
        return -(-M // self.BLOCK_M) * -(-N // self.BLOCK_N), self.split_k, 1

    def workgroups(self, rows: range, columns: range) -> tuple[GridIndex, ...]:
        """All splits of the tiles that meet the region."""
        tile_m, tile_n, _ = self.tiles()
        wanted = (
            (tile_m >= rows.start // self.BLOCK_M)
            & (tile_m <= (rows.stop - 1) // self.BLOCK_M)
            & (tile_n >= columns.start // self.BLOCK_N)
            & (tile_n <= (columns.stop - 1) // self.BLOCK_N)
        )
        x = self.num_m * self.num_n
        return tuple((int(i) % x, int(i) // x, 0) for i in np.flatnonzero(wanted))

    def extent(self, rows: range, columns: range) -> tuple[range, range]:
        """The region grown to whole tiles."""
        return _grown(rows, self.BLOCK_M, self.M), _grown(columns, self.BLOCK_N, self.N)


@lru_cache(maxsize=8)
def _tiles(c: TileCoverage) -> tuple[Indices, Indices, Indices]:
    tiles = c.num_m * c.num_n
    total = tiles * c.split_k
    linear = np.arange(total)
    if c.num_xcds > 1:
        xcd = linear % c.num_xcds
        share, rest = divmod(total, c.num_xcds)
        linear = xcd * share + np.minimum(xcd, rest) + linear // c.num_xcds
    pid, split = linear % tiles, linear // tiles
    group = c.GROUP_M * c.num_n
    first = pid // group * c.GROUP_M
    height = np.minimum(c.num_m - first, c.GROUP_M)
    return first + pid % group % height, pid % group // height, split


class _ReadsInputs:
    """Of workgroups that read A at most, and nothing that earlier launches make."""

    def extent(self, rows: range, columns: range) -> tuple[range, range]:
        """The region itself."""
        return rows, columns


@dataclass(frozen=True)
class RowCoverage(_ReadsInputs):
    """Tiles of A [M, K], row by row: every tile of a row of A matters to the same row of C."""

    K: int
    BLOCK_M: int
    BLOCK_K: int

    def workgroups(self, rows: range, columns: range) -> tuple[GridIndex, ...]:
        """All tiles of the rows."""
        num_k = -(-self.K // self.BLOCK_K)
        first, last = rows.start // self.BLOCK_M, (rows.stop - 1) // self.BLOCK_M
        return tuple((index, 0, 0) for index in range(first * num_k, (last + 1) * num_k))

    def grid_of(self, M: int, N: int) -> GridIndex:
        """Tiles of A in x."""
        return -(-M // self.BLOCK_M) * -(-self.K // self.BLOCK_K), 1, 1


QUANTIZE_COLUMNS = 256  # of A, that a workgroup of hip/quantize.hip works on side by side


def quantize_height(threads: Any, groups: Any, vector: Any) -> Any:
    """How many teams of a workgroup of ``hip/quantize.hip`` are above each other; numbers, or arrays of them.

    Args:
        groups: Blocks of a team, 1, 2 or 4; with 4 they lie 4 groups apart, in two columns of teams' width.
        vector: Values of a block that one lane holds.
    """
    return threads * vector // 32 // (8 - 4 * (groups == 4))


@dataclass(frozen=True)
class QuantizeCoverage(_ReadsInputs):
    """Workgroups of ``hip/quantize.hip`` over A [M, K]: ``QUANTIZE_COLUMNS`` wide, numbered along K first.

    Args:
        groups: Blocks of 32 values that a team of lanes quantises; with 2 and 4 it works on two rows, 16 apart.
        vector: Values of a block that one lane holds.
    """

    M: int
    K: int
    threads: int
    groups: int
    vector: int

    @property
    def grid(self) -> GridIndex:
        """Workgroups of the launch in x, y, z."""
        last = self.M - 1
        teams = last // 32 * 16 + min(last % 32, 15) + 1 if self.groups > 1 else self.M
        return -(-teams // self._height) * self._tiles_k, 1, 1

    @property
    def _tiles_k(self) -> int:
        return -(-self.K // QUANTIZE_COLUMNS)

    @property
    def _height(self) -> int:
        height: int = quantize_height(self.threads, self.groups, self.vector)
        return height

    def _tile_row(self, row: int) -> int:
        team = row // 32 * 16 + row % 16 if self.groups > 1 else row
        return team // self._height

    def workgroups(self, rows: range, columns: range) -> tuple[GridIndex, ...]:
        """All workgroups of the rows."""
        tile_rows = sorted({self._tile_row(row) for row in rows})
        return tuple((row * self._tiles_k + tile, 0, 0) for row in tile_rows for tile in range(self._tiles_k))

    def grid_of(self, M: int, N: int) -> GridIndex:
        """Tiles of A in x."""
        return replace(self, M=M).grid


@dataclass(frozen=True)
class FlatCoverage(_ReadsInputs):
    """Runs of the elements of C in row-major order.

    Args:
        block: Elements of a run.
    """

    N: int
    block: int

    def workgroups(self, rows: range, columns: range) -> tuple[GridIndex, ...]:
        """All runs that hold an element of the region."""
        found: set[int] = set()
        for row in rows:
            first, last = row * self.N + columns.start, row * self.N + columns.stop - 1
            found.update(range(first // self.block, last // self.block + 1))
        return tuple((index, 0, 0) for index in sorted(found))

    def grid_of(self, M: int, N: int) -> GridIndex:
        """Runs in x."""
        return -(-M * N // self.block), 1, 1


def _grown(span: range, block: int, extent: int) -> range:
    return range(span.start // block * block, min(-(-span.stop // block) * block, extent))


@dataclass(frozen=True)
class WholeCoverage:
    """One workgroup, as it were, that computes all of C [M, N]."""

    M: int
    N: int

    def workgroups(self, rows: range, columns: range) -> tuple[GridIndex, ...]:
        """The only one."""
        return ((0, 0, 0),)

    def extent(self, rows: range, columns: range) -> tuple[range, range]:
        """All of C."""
        return range(self.M), range(self.N)

    def grid_of(self, M: int, N: int) -> GridIndex:
        """One workgroup."""
        return 1, 1, 1
