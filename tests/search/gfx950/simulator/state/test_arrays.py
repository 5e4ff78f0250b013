"""search.gfx950.simulator.state.arrays: large arrays take the memory of what was written to."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from search.gfx950.simulator.state.arrays import LAZY_BYTES, lazy_zeros


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_tile_of_a_terabyte_takes_the_pages_of_its_rows() -> None:
    array = lazy_zeros((1 << 20, 1 << 19), np.uint16)
    before = resident_bytes()
    array[: 1 << 18 : 1 << 10, 7] = 3  # 256 rows, a MB apart: as huge pages 512 MB
    assert resident_bytes() - before < 1 << 24
    assert array[: 1 << 10 : 1 << 9, 6:9].tolist() == [[0, 3, 0], [0, 0, 0]]


@pytest.mark.parametrize("items", [0, 5, LAZY_BYTES // 4])
def test_small_and_large_ones_are_writable_zeros(items: int) -> None:
    array = lazy_zeros(items, np.float32)
    assert (array.shape, array.dtype, array.any()) == ((items,), np.float32, False)
    array[...] = 1
    assert array.sum() == items


def test_what_no_machine_can_address_is_too_much_memory() -> None:
    with pytest.raises(MemoryError, match=r"^1125899906842624 bytes cannot be mapped"):
        lazy_zeros(1 << 50, np.uint8)
