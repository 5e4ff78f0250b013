"""search.gate.regions: which tiles of C a check executes."""

from __future__ import annotations

import pytest

from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.gate.regions import Region, choose_regions, every_region, multiplications


def checked(shape: GemmShape, block_m: int, block_n: int) -> list[Region]:
    """The regions compared of a kernel of these tiles."""
    config = FAMILIES["fused"].config({"BLOCK_M": block_m, "BLOCK_N": block_n})
    return choose_regions(FAMILIES["fused"].program(shape, config), shape).checked


@pytest.mark.parametrize("tiles_m", range(2, 12))
@pytest.mark.parametrize("N", [64, 192, 320, 2112])
def test_tiles_at_odd_and_at_even_places_are_checked(tiles_m: int, N: int) -> None:
    regions = checked(GemmShape(16 * tiles_m - 3, N, 256), 16, 64)
    assert {region.rows.start // 16 % 2 for region in regions} == {0, 1}
    assert {region.columns.start // 64 % 2 for region in regions} == ({0} if N == 64 else {0, 1})


def test_two_candidates_of_one_tiling_look_at_different_tiles() -> None:
    shape, family = GemmShape(4000, 4096, 256), FAMILIES["fused"]
    configs = [family.config({"BLOCK_M": 16, "BLOCK_N": 64, "num_stages": stages}) for stages in (1, 2)]
    first, second = (choose_regions(family.program(shape, config), shape).checked for config in configs)
    assert first[:4] == second[:4]
    assert set(first[4:]).isdisjoint(second[4:])


@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        (GemmShape(20000, 65536, 64), (16384 // 16, 0)),  # byte 2**31 of C [M, N] of 2 bytes: row 2**30 / 2**16
        (GemmShape(16, 140032, 65536), (0, 65536 // 64)),  # byte 2**31 of B [N, K // 2]: row 2**31 / 2**15
        (GemmShape(70000, 64, 16384), (65536 // 16, 0)),  # byte 2**31 of A [M, K] of 2 bytes: row 2**30 / 2**14
    ],
)
def test_the_tile_where_an_offset_passes_2_gb_is_always_checked(shape: GemmShape, tile: tuple[int, int]) -> None:
    places = {(region.rows.start // 16, region.columns.start // 64) for region in checked(shape, 16, 64)}
    assert tile in places


def test_both_tails_come_first() -> None:
    regions = checked(GemmShape(77, 192, 256), 32, 128)
    assert regions[0] == Region(range(64, 77), range(128, 192))
    assert Region(range(0, 32), range(0, 128)) in regions


def every_place(limit: float) -> list[tuple[int, int]]:
    """Tile rows and columns, 3 by 5, in the order in which they are executed."""
    shape, family = GemmShape(80, 320, 256), FAMILIES["fused_splitk_workspace"]
    program = family.program(shape, family.config({"BLOCK_M": 32, "BLOCK_N": 64, "split_k": 2}))
    assert multiplications(program, shape) == 96 * 320 * 256
    found = [region for part in every_region(program, shape, limit) for region in part.checked]
    return [(region.rows.start // 32, region.columns.start // 64) for region in found]


def test_every_tile_comes_once_and_of_too_many_as_many_as_are_affordable() -> None:
    whole = every_place(96 * 320 * 256)
    assert sorted(whole) == [(m, n) for m in range(3) for n in range(5)]
    assert every_place(7.5 * 32 * 64 * 256) == whole[:7] != sorted(whole)[:7]
    assert len(every_place(0)) == 1


def test_a_single_tile_is_checked_once() -> None:
    assert checked(GemmShape(9, 64, 256), 16, 64) == [Region(range(0, 9), range(0, 64))]


def test_a_further_kernel_of_wide_tiles_is_compared_whole_and_fewer_of_them() -> None:
    family, shape = FAMILIES["fused_splitk_workspace"], GemmShape(8, 2112, 7168)
    program = family.program(shape, family.config({"BLOCK_M": 8, "BLOCK_N": 16, "BLOCK_K": 128, "split_k": 2}))
    regions = choose_regions(program, shape)
    compared, touched = regions.checked, regions.touched
    assert compared == touched[-1]
    gemm, reduce = program.calls
    needed = {index for region in touched[0] for index in gemm.coverage.workgroups(region.rows, region.columns)}
    products = len(needed) * (4 * 16 * 16) * 7168 / 2  # four waves of a matrix instruction each, half of K
    assert 0 < products <= 1.6e8
    assert reduce.coverage.extent(compared[0].rows, compared[0].columns) == (compared[0].rows, compared[0].columns)
