"""Which part of C a check executes: tiles with the tails of M and N, and what earlier launches must make for them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.launches.coverage import GridIndex, TiledCoverage
from kernels.launches.native import NativeKernel
from kernels.launches.program import Buffer, KernelCall, Program
from kernels.problem import GemmShape
from search.gfx950.code.triton import WAVE_SIZE

# Tiles, and the multiplications of all of them together, unless those that are needed have more: about 0.1 s.
AFFORDABLE = ((5, 1.6e8), (8, 4e7))
TOGETHER = 32  # workgroups, where all tiles are executed: what the registers of so many take fits the caches
MATRIX = 2 * 16 * 16  # elements of C that cost a wave as much as fewer do: the work around them is the same
CHECKED_ROWS, CHECKED_COLUMNS = 64, 64  # of a tile, where a further kernel writes the output
WRAPS = (1 << 31, 1 << 32, 1 << 33)  # bytes, where offsets of bytes, or of elements of 2 or 4, no longer fit 32 bits
Tile = tuple[int, int]


@dataclass(frozen=True)
class Region:
    """Rows and columns of C."""

    rows: range
    columns: range


@dataclass(frozen=True)
class Regions:
    """A part of C that is executed together.

    Args:
        checked: Regions to compare.
        touched: For each launch the regions that it must work on. It touches whole tiles of its own, so the launches
            before it must cover these.
    """

    checked: list[Region]
    touched: list[list[Region]]

    def first(self) -> Regions:
        """The first of them alone."""
        return Regions(self.checked[:1], [parts[:1] for parts in self.touched])

    @classmethod
    def of(cls, paths: Sequence[list[Region]]) -> Regions:
        """From the regions of each launch, path by path."""
        return cls([path[-1] for path in paths], [list(regions) for regions in zip(*paths, strict=True)])


def choose_regions(program: Program, shape: GemmShape) -> Regions:
    """A few tiles, see :func:`_tiles_in_order`, as long as they are affordable."""
    gemm, tiles = gemm_call(program)
    position = program.calls.index(gemm)
    fused = gemm is program.calls[-1]
    each = _multiplications(gemm, tiles, shape.K)
    paths: list[list[Region]] = []
    work: set[GridIndex] = set()
    for tile, needed in _tiles_in_order(program, tiles, shape):
        path = _path(program, tile if fused else _window(tile))
        more = work.union(tiles.workgroups(path[position].rows, path[position].columns))
        if not needed and not any(len(paths) < count and len(more) * each <= limit for count, limit in AFFORDABLE):
            break
        paths.append(path)
        work = more
    return Regions.of(paths)


def multiplications(program: Program, shape: GemmShape) -> float:
    """Of all workgroups of the launch that reads the weight, those of padding among them."""
    gemm, tiles = gemm_call(program)
    return _multiplications(gemm, tiles, shape.K) * gemm.workgroups


def every_region(program: Program, shape: GemmShape, limit: float) -> Iterator[Regions]:
    """All tiles of C in an order drawn by the candidate, some at a time, until there were ``limit`` multiplications."""
    gemm, tiles = gemm_call(program)
    total = tiles.num_m * tiles.num_n
    each = multiplications(program, shape) / total
    chosen = np.random.default_rng(fingerprint(program)).permutation(total)[: max(1, int(limit / each))].tolist()
    together = max(1, TOGETHER * total // gemm.workgroups)
    for first in range(0, len(chosen), together):
        places = (divmod(place, tiles.num_n) for place in chosen[first : first + together])
        yield Regions.of([_path(program, _tile(tiles, m, n, shape)) for m, n in places])


def _path(program: Program, region: Region) -> list[Region]:
    """What each launch must work on for ``region`` of the output."""
    path: list[Region] = []
    for call in reversed(program.calls):
        region = Region(*call.coverage.extent(region.rows, region.columns))
        path.insert(0, region)
    return path


def _multiplications(gemm: KernelCall, tiles: TiledCoverage, K: int) -> float:
    """Of one workgroup; where its waves have less than a matrix instruction each, they do the same work."""
    kernel = gemm.kernel
    waves = kernel.threads // WAVE_SIZE if isinstance(kernel, NativeKernel) else gemm.options.get("num_warps", 1)
    splits = math.prod(gemm.grid) / (tiles.num_m * tiles.num_n)
    return max(tiles.BLOCK_M * tiles.BLOCK_N, waves * MATRIX) * K / splits


def _tiles_in_order(program: Program, coverage: TiledCoverage, shape: GemmShape) -> Iterator[tuple[Region, bool]]:
    """Tiles to compute, and whether they must be: both tails, where 32 bits end, the first, tails, any others.

    The others are drawn by the candidate, so that a search sees many places of one tiling.
    """
    last_m, last_n = coverage.num_m - 1, coverage.num_n - 1
    random = np.random.default_rng(fingerprint(program))
    needed = [(last_m, last_n), *_wrapping_tiles(program, coverage, shape)]
    wanted = [*needed, (0, 0), (last_m, 0), (0, last_n)]
    wanted += [(_between(random, coverage.num_m), _between(random, coverage.num_n)) for _ in range(8)]
    for m, n in dict.fromkeys(wanted):
        yield _tile(coverage, m, n, shape), (m, n) in needed


def _tile(tiles: TiledCoverage, m: int, n: int, shape: GemmShape) -> Region:
    return Region(
        range(m * tiles.BLOCK_M, min((m + 1) * tiles.BLOCK_M, shape.M)),
        range(n * tiles.BLOCK_N, min((n + 1) * tiles.BLOCK_N, shape.N)),
    )


def fingerprint(program: Program) -> int:
    """A number of the candidate's own: the same on every machine."""
    facts = [(c.name, c.grid, dict(c.args), dict(c.constexprs), dict(c.options)) for c in program.calls]
    return zlib.crc32(repr(facts).encode())


def _wrapping_tiles(program: Program, coverage: TiledCoverage, shape: GemmShape) -> Iterator[Tile]:
    """The tiles behind whose operands or results an offset passes the end of 32 bits."""
    for buffer in program.buffers:
        for wrap in WRAPS:
            if buffer.bytes > wrap:
                row, column = _place(buffer, wrap, shape)
                yield row // coverage.BLOCK_M, column // coverage.BLOCK_N


def _place(buffer: Buffer, byte: int, shape: GemmShape) -> tuple[int, int]:
    """Row and column of C that depend on ``byte`` of the buffer."""
    item = byte // (buffer.bytes // int(np.prod(buffer.shape)))
    row, column = item // buffer.shape[-1], item % buffer.shape[-1]
    if buffer.name.startswith("b"):
        return 0, min(row, shape.N - 1)
    return min(row % buffer.shape[-2], shape.M - 1), column if buffer.shape[-1] == shape.N else 0


def _between(random: np.random.Generator, count: int) -> int:
    """A random one of ``count`` places; an odd one if the first and the last are even.

    Rows and columns 16 apart share words of scales, so tiles of 16 take turns in which bytes they use.
    """
    odd = count // 2
    return int(2 * random.integers(odd) + 1 if count % 2 and odd else random.integers(count))


def gemm_call(program: Program) -> tuple[KernelCall, TiledCoverage]:
    """The launch that reads the weight, and its tiles.

    Raises:
        ValueError: There is no such launch, or nobody knows which workgroup of it computes what.
    """
    for call in program.calls:
        if "b" in call.args.values() and isinstance(call.coverage, TiledCoverage):
            return call, call.coverage
    raise ValueError("the program has no launch that reads the weight")


def _window(tile: Region) -> Region:
    """The last rows and columns of a tile, where its tails are."""
    rows, columns = tile.rows, tile.columns
    return Region(
        range(max(rows.start, rows.stop - CHECKED_ROWS), rows.stop),
        range(max(columns.start, columns.stop - CHECKED_COLUMNS), columns.stop),
    )
