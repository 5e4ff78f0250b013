"""benchmarks/timed_rows.py and timing_contradictions.py: what is read of public timings, and what these can tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from timed_rows import between, read_rows
from timing_contradictions import agreement, contained, excess, nearest_growing

from kernels.errors import InputError
from kernels.problem import GemmShape

SMALL, LARGE, OTHER = GemmShape(1, 128, 256), GemmShape(2, 128, 512), GemmShape(4, 64, 256)


def test_a_line_that_begins_with_a_number_sign_is_left_out_and_one_inside_of_a_cell_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("# measured by others\nkernel,us\nquantise of #452,2.7\n")
    assert read_rows(path, ("kernel", "us")) == [{"kernel": "quantise of #452", "us": "2.7"}]
    with pytest.raises(InputError, match="has no column tile"):
        read_rows(path, ("tile",))


def test_a_value_lies_on_the_line_of_its_two_neighbours_or_of_the_last_two() -> None:
    assert between(2560, (1024, 4096, 12288)) == {1024: 0.5, 4096: 0.5}
    assert between(1024, (1024, 4096, 12288)) == {1024: 1.0, 4096: 0.0}
    assert between(20480, (1024, 4096, 12288)) == {4096: -1.0, 12288: 2.0}


def test_a_problem_fits_into_one_that_is_no_smaller_in_any_extent() -> None:
    assert contained([SMALL, LARGE, OTHER]).tolist() == [[False, True, False], [False] * 3, [False] * 3]


def test_a_problem_that_took_longer_than_a_larger_one_contradicts_it() -> None:
    inside = contained([SMALL, LARGE, OTHER])
    assert excess(inside, np.array([5.0, 4.0, 1.0])).tolist() == [0.25, 0.0, 0.0]
    times = nearest_growing(inside, np.array([5.0, 4.0, 1.0]))
    assert times[0] <= times[1] * (1 + 1e-6)
    assert np.abs(np.log(times / (5.0, 4.0, 1.0))).sum() == pytest.approx(np.log(5 / 4), abs=1e-5)
    assert nearest_growing(inside, np.array([3.0, 4.0, 1.0])) == pytest.approx([3.0, 4.0, 1.0], rel=1e-5)


def test_winners_are_compared_where_every_kernel_has_one_row_of_tiles() -> None:
    small, large = (32, 128), (64, 128)
    won = [(small, 1, 512), (large, 2, 512), (small, 32, 512), (large, 33, 512), (large, 1, 1024)]
    shapes = [GemmShape(M, 128, K) for _, M, K in won]
    found = agreement([tile for tile, _, _ in won], shapes)
    assert found.startswith("M <= 32: 3 rows of 1 layers")
    assert "same winner in 33.3%, its usual winner is right in 66.7%" in found
    assert agreement([large], shapes[:1]) == "no layer has two rows with M <= 64"
