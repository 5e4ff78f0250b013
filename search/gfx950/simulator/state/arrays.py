"""The one type of all values: NumPy arrays of whatever dtype an instruction has; and large ones, mostly untouched."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Array = NDArray[Any]
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
