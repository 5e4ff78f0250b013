"""The one type of all values: NumPy arrays of whatever dtype an instruction has; and large ones, mostly untouched."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
WORDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.complex128}  # by their bytes
LAZY_BYTES = 1 << 22  # from here on NumPy asks for huge pages: 2 MB for each row of a tile
MAP_NORESERVE = 0x4000  # of Linux's mman.h, which Python names from 3.13 on: more than the machine has may be mapped


def lazy_zeros(shape: int | Sequence[int], dtype: DTypeLike) -> Array:
    """Zeros of which only the pages of 4 KB that somebody writes to take memory, whatever the extents.

    Raises:
        MemoryError: The machine does not lend so many addresses.
    """
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    size = math.prod(extents) * np.dtype(dtype).itemsize
    if size < LAZY_BYTES:
        return np.zeros(extents, dtype)
    try:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    except OSError as error:
        raise MemoryError(f"{size} bytes cannot be mapped ({error.strerror})") from error
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype).reshape(extents)


def word_index(offsets: Array, size: int) -> tuple[int, Array]:
    """Bytes of the widest words that accesses of ``size`` bytes at ``offsets`` are made of, and which [*shape, …]."""
    width = min(size & -size, 16)
    if offsets.size:
        misaligned = int(np.bitwise_or.reduce(offsets, axis=None)) | width
        width = misaligned & -misaligned
    index = offsets >> (width.bit_length() - 1)
    if width != size:
        index = index[..., None] + np.arange(size // width)
    return width, index
