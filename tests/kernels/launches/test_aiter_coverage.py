"""kernels.launches.aiter_coverage: every part of C once, whatever the order; orders by hand."""

from __future__ import annotations

import pytest

from kernels.launches.aiter_coverage import SplitFirstCoverage, TileGridCoverage
from kernels.launches.coverage import grid_fault


@pytest.mark.parametrize("split_k", [1, 3])
@pytest.mark.parametrize("num_xcds", [1, 8])
@pytest.mark.parametrize("GROUP_M", [1, 2, 4])
def test_each_tile_and_slice_is_taken_once(GROUP_M: int, num_xcds: int, split_k: int) -> None:
    coverage = SplitFirstCoverage(100, 192, 32, 64, GROUP_M, num_xcds, split_k)
    assert grid_fault(coverage, (4 * 3 * split_k, 1, 1), 100, 192) is None


def test_slices_of_a_tile_follow_each_other_and_dies_have_ranges() -> None:
    plain = SplitFirstCoverage(32, 128, 32, 64, split_k=2)
    assert [tuple(map(int, part)) for part in zip(*plain.tiles(), strict=True)] == [
        (0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1),
    ]  # fmt: skip
    # Ten workgroups on eight dies: the first two dies have two each, as AITER's remap counts.
    dies = SplitFirstCoverage(32, 640, 32, 64, num_xcds=8)
    assert dies.tiles()[1].tolist() == [0, 2, 4, 5, 6, 7, 8, 9, 1, 3]


def test_all_slices_of_the_tiles_of_a_region_are_found() -> None:
    coverage = SplitFirstCoverage(64, 128, 32, 64, split_k=2)
    assert coverage.workgroups(range(32, 33), range(64, 65)) == ((6, 0, 0), (7, 0, 0))


def test_where_c_ends_a_tile_begins_anew_and_so_needs_all_rows() -> None:
    coverage = TileGridCoverage(20, 128, 16, 64)
    assert coverage.begins_anew
    assert coverage.extent(range(16, 20), range(64)) == (range(20), range(64))
    assert coverage.extent(range(3), range(64)) == (range(16), range(64))
    assert coverage.workgroups(range(20), range(64, 128)) == ((0, 1, 0), (1, 1, 0))
    assert grid_fault(coverage, (2, 2, 1), 20, 128) is None
    assert not TileGridCoverage(32, 128, 16, 64).begins_anew
