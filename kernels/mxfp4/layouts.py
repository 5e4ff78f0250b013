"""The two byte orders that CDNA 4's MXFP4 kernels read: weights in (16, 16) tiles, scales in (32, 8) tiles.

Both are bijections of a [rows, bytes] matrix onto a flat array of the same size, kept here as a matrix of the
same shape. Source: AITER's ``shuffle_weight(layout=(16, 16))`` and ``e8m0_shuffle``, restated as offsets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import torch

WEIGHT_TILE: Final = (16, 32)  # rows, bytes: two halves of 16 rows x 16 bytes, 512 bytes together
SCALE_TILE: Final = (32, 8)  # rows, bytes: 256 bytes together
SCALE_PAD: Final = (256, 8)  # scale matrices are padded to multiples of these with zero bytes (2**-127)
Index = TypeVar("Index", int, "torch.Tensor")


def weight_offset(n: Index, b: Index, row_bytes: int) -> Index:
    """Return the offset in bytes, once shuffled, of byte ``b`` of row ``n`` of a weight [N, row_bytes]."""
    return (n // 16) * 16 * row_bytes + (b // 32) * 512 + ((b // 16) % 2) * 256 + (n % 16) * 16 + b % 16


def scale_offset(row: Index, group: Index, padded_groups: int) -> Index:
    """Return the offset in bytes, once shuffled, of the scale of block ``group`` of ``row``.

    Args:
        row: Row (n or m).
        group: k // 32.
        padded_groups: Groups of a row after padding to a multiple of 8.
    """
    tile = (row // 32) * 32 * padded_groups + (group // 8) * 256
    return tile + (group % 4) * 64 + (row % 16) * 4 + ((group // 4) % 2) * 2 + (row // 16) % 2


def padded_scale_shape(rows: int, groups: int) -> tuple[int, int]:
    """Return (rows, groups) of a scale matrix rounded up to multiples of 256 and 8.

    Raises:
        ValueError: An extent is negative.
    """
    if rows < 0 or groups < 0:
        raise ValueError(f"scale extents must not be negative, got [{rows}, {groups}]")
    return (-(-rows // SCALE_PAD[0]) * SCALE_PAD[0], -(-groups // SCALE_PAD[1]) * SCALE_PAD[1])


def shuffle_weight(packed: torch.Tensor) -> torch.Tensor:
    """Return packed codes [N, K // 2] in the order of :func:`weight_offset`, same shape, a new tensor.

    Raises:
        ValueError: Not a uint8 matrix with N % 16 == 0 and (K // 2) % 32 == 0.
    """
    N, row_bytes = _tiled_extents("packed weight", packed, WEIGHT_TILE)
    tiles = packed.reshape(N // 16, 16, row_bytes // 32, 2, 16)
    return tiles.permute(0, 2, 3, 1, 4).reshape(N, row_bytes)


def unshuffle_weight(shuffled: torch.Tensor) -> torch.Tensor:
    """Return the packed codes [N, K // 2] in natural order: the inverse of :func:`shuffle_weight`.

    Raises:
        ValueError: Not a uint8 matrix with N % 16 == 0 and (K // 2) % 32 == 0.
    """
    N, row_bytes = _tiled_extents("shuffled weight", shuffled, WEIGHT_TILE)
    tiles = shuffled.reshape(N // 16, row_bytes // 32, 2, 16, 16)
    return tiles.permute(0, 3, 1, 2, 4).reshape(N, row_bytes)


def shuffle_scales(scales: torch.Tensor) -> torch.Tensor:
    """Return scale bytes [rows, groups] padded with zeros and in the order of :func:`scale_offset`.

    Returns:
        uint8 of :func:`padded_scale_shape`, contiguous.

    Raises:
        ValueError: ``scales`` is not a uint8 matrix.
    """
    rows, groups = _tiled_extents("scales", scales, (1, 1))
    padded_rows, padded_groups = padded_scale_shape(rows, groups)
    padded = scales.new_zeros(padded_rows, padded_groups)
    padded[:rows, :groups] = scales
    return shuffle_scale_tiles(padded)


def shuffle_scale_tiles(scales: torch.Tensor) -> torch.Tensor:
    """Return scale bytes of whole (32, 8) tiles in the order of :func:`scale_offset`, same shape, a new tensor.

    Raises:
        ValueError: Not a uint8 matrix of such tiles.
    """
    rows, groups = _tiled_extents("scales", scales, SCALE_TILE)
    tiles = scales.reshape(rows // 32, 2, 16, groups // 8, 2, 4)
    return tiles.permute(0, 3, 5, 2, 4, 1).reshape(rows, groups)


def unshuffle_scales(shuffled: torch.Tensor, rows: int, groups: int) -> torch.Tensor:
    """Return scale bytes [rows, groups] in natural order, unpadded: the inverse of :func:`shuffle_scales`.

    Raises:
        ValueError: ``shuffled`` is not a uint8 matrix of (32, 8) tiles that holds ``rows`` and ``groups``.
    """
    padded_rows, padded_groups = _tiled_extents("shuffled scales", shuffled, SCALE_TILE)
    if not (0 <= rows <= padded_rows and 0 <= groups <= padded_groups):
        raise ValueError(f"shuffled scales are {tuple(shuffled.shape)} and cannot hold [{rows}, {groups}]")
    tiles = shuffled.reshape(padded_rows // 32, padded_groups // 8, 4, 16, 2, 2)
    natural = tiles.permute(0, 5, 3, 1, 4, 2).reshape(padded_rows, padded_groups)
    return natural[:rows, :groups].contiguous()


def _tiled_extents(name: str, matrix: torch.Tensor, tile: tuple[int, int]) -> tuple[int, int]:
    """Return the extents of a uint8 matrix whose extents are multiples of ``tile``, or raise ValueError."""
    import torch

    if matrix.ndim != 2 or matrix.dtype != torch.uint8:
        raise ValueError(f"{name} must be a uint8 matrix, got {matrix.dtype} {tuple(matrix.shape)}")
    rows, row_bytes = matrix.shape
    if rows % tile[0] or row_bytes % tile[1]:
        raise ValueError(f"{name} is [{rows}, {row_bytes}]: extents must be multiples of {list(tile)}")
    return rows, row_bytes
