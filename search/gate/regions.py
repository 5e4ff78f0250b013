"""Which part of C a check executes: tiles with the tails of M and N, and what earlier launches must make for them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernels.launches.coverage import TiledCoverage
from kernels.launches.program import Buffer, Program
from kernels.problem import GemmShape

# Tiles, and the multiplications of all of them together, unless a single tile has more: what takes about 0.1 s.
AFFORDABLE = ((5, 2e8), (8, 4e7))
CHECKED_ROWS, CHECKED_COLUMNS = 64, 64  # of a tile, where a further kernel writes the output
WRAPS = (1 << 31, 1 << 32, 1 << 33)  # bytes, where offsets of bytes, or of elements of 2 or 4, no longer fit 32 bits
Tile = tuple[int, int]


@dataclass(frozen=True)
class Region:
    """Rows and columns of C."""

    rows: range
    columns: range


def choose_regions(program: Program, shape: GemmShape) -> tuple[list[Region], list[list[Region]]]:
    """The regions of C to compare, and for each launch the regions that it must work on.

    A launch touches whole tiles of its own, so the launches before it must cover these.
    """
    tiles = _choose_tiles(program, gemm_coverage(program), shape)
    fused = "b" in program.calls[-1].args.values()
    checked = tiles if fused else [_window(tile) for tile in tiles]
    touched: list[list[Region]] = []
    regions = checked
    for call in reversed(program.calls):
        regions = [Region(*call.coverage.extent(region.rows, region.columns)) for region in regions]
        touched.insert(0, regions)
    return checked, touched


def _choose_tiles(program: Program, coverage: TiledCoverage, shape: GemmShape) -> list[Region]:
    """Tiles to compute, as many as are affordable: both tails, where 32 bits end, the first, tails, any others.

    The others are drawn by the candidate, so that a search sees many places of one tiling.
    """
    last_m, last_n = coverage.num_m - 1, coverage.num_n - 1
    random = np.random.default_rng(_fingerprint(program))
    needed = [(last_m, last_n), *_wrapping_tiles(program, coverage, shape)]
    wanted = [*needed, (0, 0), (last_m, 0), (0, last_n)]
    wanted += [(_between(random, coverage.num_m), _between(random, coverage.num_n)) for _ in range(8)]
    each = coverage.BLOCK_M * coverage.BLOCK_N * shape.K
    count = max(len(set(needed)), *(min(tiles, int(limit / each)) for tiles, limit in AFFORDABLE))
    return [
        Region(
            range(m * coverage.BLOCK_M, min((m + 1) * coverage.BLOCK_M, shape.M)),
            range(n * coverage.BLOCK_N, min((n + 1) * coverage.BLOCK_N, shape.N)),
        )
        for m, n in list(dict.fromkeys(wanted))[:count]
    ]


def _fingerprint(program: Program) -> int:
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


def gemm_coverage(program: Program) -> TiledCoverage:
    """Tiles of the launch that reads the weight.

    Raises:
        ValueError: There is no such launch, or nobody knows which workgroup of it computes what.
    """
    for call in program.calls:
        if "b" in call.args.values() and isinstance(call.coverage, TiledCoverage):
            return call.coverage
    raise ValueError("the program has no launch that reads the weight")


def _window(tile: Region) -> Region:
    """The last rows and columns of a tile, where its tails are."""
    rows, columns = tile.rows, tile.columns
    return Region(
        range(max(rows.start, rows.stop - CHECKED_ROWS), rows.stop),
        range(max(columns.start, columns.stop - CHECKED_COLUMNS), columns.stop),
    )
