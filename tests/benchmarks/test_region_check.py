"""native_checks: what is executed for a part of C, compared, and demanded to stay blank."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from native_checks import Array, CheckedRun, Tile, check_regions, judged_error

from kernels.errors import WrongResultError
from kernels.launches.coverage import GridIndex, TileCoverage
from kernels.problem import GemmShape
from search.gfx950.simulator import Histogram

SHAPE = GemmShape(40, 128, 64)
COVERAGE = TileCoverage(40, 128, 16, 64)  # 3 x 2 tiles, the last row of them with 8 rows of C
BLANK = 0xFFFF
NOTHING = Histogram({}, {}, {}, 0, 0, 0, 0, 0, 0)


class Tiles:
    """Stands for a kernel: each workgroup adds 1 + its number to its tile, and one stores at ``stray`` as well."""

    def __init__(self, stray: tuple[int, int] | None = None, columns: int = 128) -> None:
        self.bits: Array = np.full((40, columns), BLANK, np.uint16)
        self.stray = stray
        self.ran: list[GridIndex] = []
        self.compared: list[Tile] = []

    def execute(self, chosen: list[GridIndex]) -> Histogram:
        self.ran = chosen
        for x, _, _ in chosen:
            m, n = divmod(x, 2)
            self.bits[16 * m : 16 * m + 16, 64 * n : 64 * n + 64] = 1 + x
        if self.stray is not None:
            self.bits[self.stray] = 0
        return NOTHING

    def largest_error(self, stored: Array, tile: Tile) -> float:
        self.compared.append(tile)
        assert stored.shape == (len(tile[0]), len(tile[1]))
        assert (stored == stored[0, 0]).all()
        return float(stored[0, 0])

    def check(self, *tiles: Tile) -> CheckedRun:
        return check_regions(SHAPE, COVERAGE, tiles, self.bits, self.execute, self.largest_error)


def test_a_part_grows_to_the_tiles_of_its_workgroups() -> None:
    kernel = Tiles()
    done = kernel.check((range(39, 40), range(70, 71)), (range(3, 4), range(0, 1)))
    assert kernel.ran == [(5, 0, 0), (0, 0, 0)]
    assert kernel.compared == [(range(32, 40), range(64, 128)), (range(16), range(64))]
    assert (done.elements, done.max_abs_error) == (8 * 64 + 16 * 64, 6.0)


def test_a_workgroup_that_two_parts_share_runs_once() -> None:
    kernel = Tiles()
    kernel.check((range(0, 1), range(0, 1)), (range(1, 2), range(1, 2)))
    assert kernel.ran == [(0, 0, 0)]


def test_no_part_means_all_of_C_and_no_more() -> None:
    kernel = Tiles(columns=176)
    with pytest.raises(AssertionError):  # largest_error meets six values
        kernel.check()
    assert sorted(kernel.ran) == [(x, 0, 0) for x in range(6)]
    assert kernel.compared == [(range(40), range(128))]


@pytest.mark.parametrize("stray", [(0, 64), (16, 0), (15, 130)], ids=["next tile", "next rows", "guard columns"])
def test_a_store_beside_the_tiles_is_named(stray: tuple[int, int]) -> None:
    kernel = Tiles(stray, columns=176)
    message = rf"C\[{stray[0]}, {stray[1]}\] and 0 more elements beside the tiles were written"
    with pytest.raises(WrongResultError, match=message):
        kernel.check((range(0, 1), range(0, 1)))


def test_slices_of_K_are_compared_together_and_each_is_watched() -> None:
    def execute(chosen: list[GridIndex]) -> Histogram:
        slices[:, :16, :64] = 1
        slices[1, 16, 0] = 2
        return NOTHING

    def compare(stored: Array, tile: Tile) -> float:
        assert stored.shape == (2, 16, 64)
        return 0.0

    slices = np.full((2, 40, 128), 0xFFFFFFFF, np.uint32)
    with pytest.raises(WrongResultError, match=r"C\[1, 16, 0\] and 0 more elements beside the tiles were written"):
        check_regions(SHAPE, COVERAGE, [(range(1), range(1))], slices, execute, compare)


def test_one_bf16_step_is_right_and_two_are_wrong() -> None:
    expected = torch.ones(2, 3, dtype=torch.float64)
    for steps in (0, 1, 2):
        actual = torch.ones(2, 3, dtype=torch.bfloat16)
        actual[1, 2] = 1 + steps * 2**-7  # bf16 keeps 7 bits behind the point
        if steps < 2:
            assert judged_error(actual, expected) == steps * 2**-7
        else:
            with pytest.raises(WrongResultError, match=r"^1 of 6 elements are wrong, largest error 0\.015625$"):
                judged_error(actual, expected)
