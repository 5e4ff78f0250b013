"""What the LDS needs for one access, counted by hand: 64 banks of 4 bytes, 128 bytes a clock."""

from __future__ import annotations

import numpy as np
import pytest

from search.gfx950.simulator.state.recording import bank_clocks

LANE = np.arange(64)
ALL = np.ones(64, np.bool_)


@pytest.mark.parametrize(
    ("offsets", "active", "size", "clocks"),
    [
        (LANE * 4, ALL, 4, 2),  # 32 lanes a clock, each a bank of its own
        (LANE * 0, ALL, 4, 2),  # lanes of one dword share it
        (LANE * 256, ALL, 4, 64),  # every lane in bank 0: 32 turns for each half
        (LANE * 16, ALL, 16, 8),  # 8 lanes a clock
        (LANE * 128, ALL, 16, 32),  # of 8 lanes four start in bank 0 and four in bank 32
        (LANE * 256, LANE < 3, 4, 3),  # three active lanes in bank 0
        (LANE * 4, LANE < 0, 4, 0),
        (LANE, ALL, 1, 2),  # four lanes share a dword
    ],
)  # fmt: skip
def test_bank_clocks_by_hand(offsets: np.ndarray, active: np.ndarray, size: int, clocks: int) -> None:
    assert bank_clocks(offsets, active, size) == clocks
