"""coverage: the map from output to workgroups agrees with the kernel's own arithmetic and misses nothing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.launches.coverage import (
    Coverage,
    FlatCoverage,
    GridIndex,
    Indices,
    QuantizeCoverage,
    RowCoverage,
    TileCoverage,
    grid_fault,
)

coverages = st.builds(
    TileCoverage,
    M=st.integers(1, 300), N=st.sampled_from((64, 192, 2112)),
    BLOCK_M=st.sampled_from((4, 16, 64)), BLOCK_N=st.sampled_from((16, 64, 256)),
    GROUP_M=st.sampled_from((1, 2, 4, 32)), num_xcds=st.sampled_from((1, 8)), split_k=st.sampled_from((1, 3, 16)),
)  # fmt: skip


@given(coverages)
def test_every_tile_and_split_belongs_to_one_workgroup(coverage: TileCoverage) -> None:
    found = set(zip(*(values.tolist() for values in coverage.tiles()), strict=True))
    expected = coverage.num_m * coverage.num_n * coverage.split_k
    assert len(found) == expected
    assert found == {
        (m, n, s) for m in range(coverage.num_m) for n in range(coverage.num_n) for s in range(coverage.split_k)
    }


def test_groups_walk_down_the_rows_first() -> None:
    # 3 tile rows, 2 tile columns, groups of 2 rows: (0,0) (1,0) (0,1) (1,1), then the last row alone.
    rows, columns, _ = TileCoverage(M=48, N=128, BLOCK_M=16, BLOCK_N=64, GROUP_M=2).tiles()
    assert list(zip(rows.tolist(), columns.tolist(), strict=True)) == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 1)]


def test_each_xcd_gets_a_contiguous_run_of_tiles() -> None:
    # 18 tiles over 8 XCDs: workgroups 0, 8 and 16 run on XCD 0, which owns tiles 0, 1 and 2.
    _, columns, _ = TileCoverage(M=16, N=18 * 64, BLOCK_M=16, BLOCK_N=64, num_xcds=8).tiles()
    assert [columns[0], columns[8], columns[16]] == [0, 1, 2]
    assert [columns[1], columns[9], columns[17]] == [3, 4, 5]
    assert [columns[7], columns[15]] == [16, 17]


@given(coverages, st.data())
def test_the_workgroups_of_a_region_are_those_whose_tiles_meet_it(coverage: TileCoverage, data: st.DataObject) -> None:
    row = data.draw(st.integers(0, coverage.M - 1))
    column = data.draw(st.integers(0, coverage.N - 1))
    x = coverage.num_m * coverage.num_n
    tiles = list(zip(*(values.tolist() for values in coverage.tiles()), strict=True))
    expected = {
        (index % x, index // x, 0)
        for index, (m, n, _) in enumerate(tiles)
        if m == row // coverage.BLOCK_M and n == column // coverage.BLOCK_N
    }
    assert set(coverage.workgroups(range(row, row + 1), range(column, column + 1))) == expected
    assert len(expected) == coverage.split_k


def test_rows_of_a_need_all_their_tiles_of_k() -> None:
    coverage = RowCoverage(K=576, BLOCK_M=32, BLOCK_K=256)  # 3 tiles along K
    assert coverage.workgroups(range(33, 65), range(0, 64)) == tuple((i, 0, 0) for i in range(3, 9))


@pytest.mark.parametrize("rows, columns, expected", [((0, 1), (0, 64), [0]), ((1, 3), (96, 128), [1, 2])])
def test_runs_of_elements_that_a_region_needs(
    rows: tuple[int, int], columns: tuple[int, int], expected: list[int]
) -> None:
    # N = 128, runs of 150: elements 0..63 lie in run 0, 224..255 in run 1, 352..383 in run 2.
    found = FlatCoverage(N=128, block=150).workgroups(range(*rows), range(*columns))
    assert [x for x, _, _ in found] == expected


def ids(coverage: QuantizeCoverage, rows: range) -> list[int]:
    return [x for x, _, _ in coverage.workgroups(rows, range(0, 64))]


def test_teams_of_one_block_take_rows_in_order() -> None:
    # 64 threads, 4 lanes a block: 16 blocks, 8 along K and 2 rows; 3 tiles of 256 along K.
    coverage = QuantizeCoverage(M=7, K=576, threads=64, groups=1, vector=8)
    assert coverage.grid == (4 * 3, 1, 1)
    assert ids(coverage, range(3, 5)) == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(
    "groups, height", [(2, 4), (4, 8)]
)  # 128 threads, 4 lanes: 32 teams, 8 along K or, where each has two blocks along K, 4
def test_teams_of_several_blocks_take_two_rows_sixteen_apart(groups: int, height: int) -> None:
    coverage = QuantizeCoverage(M=100, K=64, threads=128, groups=groups, vector=8)
    assert coverage.grid == ((3 * 16 + 4) // height + (1 if 52 % height else 0), 1, 1)
    assert ids(coverage, range(5, 6)) == ids(coverage, range(21, 22)) == [5 // height]
    assert ids(coverage, range(37, 38)) == [(16 + 5) // height]
    assert ids(coverage, range(14, 18)) == sorted({14 // height, 15 // height, 0})


@given(st.integers(1, 200), st.sampled_from((64, 256, 1024)), st.sampled_from((1, 2, 4)), st.sampled_from((4, 8, 32)))
def test_every_workgroup_of_the_quantiser_is_needed_by_some_row(M: int, threads: int, groups: int, vector: int) -> None:
    coverage = QuantizeCoverage(M, 576, threads, groups, vector)
    assert ids(coverage, range(M)) == list(range(coverage.grid[0]))
    assert sorted({x for row in range(M) for x in ids(coverage, range(row, row + 1))}) == list(range(coverage.grid[0]))


@given(coverages)
def test_the_grid_that_a_kernel_needs_has_no_fault_and_any_other_has(coverage: TileCoverage) -> None:
    x, y, z = coverage.grid_of(coverage.M, coverage.N)
    assert grid_fault(coverage, (x, y, z), coverage.M, coverage.N) is None
    for other in ((x - 1, y, z), (x + 1, y, z), (x, y + 1, z), (x, y, z + 1)):
        assert "needs" in (grid_fault(coverage, other, coverage.M, coverage.N) or "")


@pytest.mark.parametrize(
    ("coverage", "needed"),
    [
        (RowCoverage(K=576, BLOCK_M=32, BLOCK_K=256), (9, 1, 1)),  # 3 tile rows of 65 x 3 tiles along K
        (FlatCoverage(N=192, block=2048), (7, 1, 1)),  # 65 * 192 = 12480 elements, 6.1 runs
        (QuantizeCoverage(65, 576, threads=256, groups=1, vector=8), (27, 1, 1)),  # 8 rows a workgroup, 3 tiles along K
    ],
)
def test_a_launch_over_a_has_a_row_of_workgroups_for_every_row_of_c(coverage: Coverage, needed: GridIndex) -> None:
    assert grid_fault(coverage, needed, 65, 192) is None
    assert grid_fault(coverage, (needed[0] - 1, 1, 1), 65, 192) is not None


def test_a_coverage_of_fewer_rows_than_c_has_is_a_fault() -> None:
    # 33 rows need as many tiles of 16 as 48 do: only the reach of the tiles tells.
    coverage = TileCoverage(M=33, N=64, BLOCK_M=16, BLOCK_N=64)
    assert "reach" in (grid_fault(coverage, (3, 1, 1), 48, 64) or "")


@dataclass(frozen=True)
class Repeating(TileCoverage):
    """Every workgroup takes the first tile, or the one behind the last."""

    behind: bool = False

    def tiles(self) -> tuple[Indices, Indices, Indices]:
        rows, columns, split = super().tiles()
        return rows * 0 + (self.num_m if self.behind else 0), columns, split


def test_a_tile_that_two_workgroups_take_and_one_that_c_does_not_have_are_faults() -> None:
    two = Repeating(M=32, N=64, BLOCK_M=16, BLOCK_N=64)
    assert grid_fault(two, (2, 1, 1), 32, 64) == "2 workgroups take part 0 of tile (0, 0), not one"
    behind = Repeating(M=32, N=64, BLOCK_M=16, BLOCK_N=64, behind=True)
    assert "does not have" in (grid_fault(behind, (2, 1, 1), 32, 64) or "")
