"""benchmarks/model_sanity.py: laws of every prediction, over a small sample, and that it sees what breaks them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
from model_sanity import faults, ladders, predicted

from kernels.launches.coverage import TileCoverage
from kernels.problem import GemmShape
from search.gfx950.model.executed import tile_sharing

SHAPES = [GemmShape(m, 2880, 512) for m in (16, 32, 48)]


def test_a_time_that_is_no_number_below_the_roofline_or_falls_is_a_fault() -> None:
    assert list(faults([(SHAPES[0], 3.0), (SHAPES[1], 3.0), (SHAPES[2], 3.1)])) == []
    assert list(faults([(SHAPES[0], float("nan"))])) == ["16x2880x512: nan us"]
    assert "is below the roofline" in next(faults([(SHAPES[0], 0.01)]))
    assert "fewer rows take 3.000 us" in next(faults([(SHAPES[0], 3.0), (SHAPES[1], 2.9)]))


def test_a_die_reads_fewer_columns_of_b_once_a_group_of_tile_rows_is_whole() -> None:
    """Why a ladder rises by groups: workgroup i of 4 x 32 tiles is in row i % 4, so that die i % 8 has 16 columns."""
    columns = {}
    for rows in (7, 8):
        tile_m, tile_n, split = TileCoverage(rows, 32, 1, 1, GROUP_M=4).tiles()
        columns[rows] = tile_sharing({"b_ptr": "b"}, tile_m, tile_n, split, 256).dies["b_ptr"] * rows * 32
    assert columns[8] == 8 * 16
    assert columns[7] > columns[8]  # of the last three rows a die has all, and with them other columns


def test_a_ladder_rises_by_whole_groups_of_tile_rows() -> None:
    for ladder in ladders(6, 4, seed=3):
        knobs = ladder.config.to_dict()
        assert all(shape.M % (knobs["BLOCK_M"] * knobs["GROUP_M"]) == 0 for shape in ladder.shapes)


@pytest.mark.parametrize("index", range(4))
def test_predictions_of_random_candidates_keep_the_laws(index: int) -> None:
    (ladder,) = islice(ladders(index + 1, 3, seed=3), index, None)
    times = list(predicted(replace(ladder, shapes=ladder.shapes[:3])))
    assert list(faults(times)) == []
