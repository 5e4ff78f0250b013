"""Rows for ranges of M, with regrets by hand."""

from __future__ import annotations

import pandas as pd
import pytest
from result_rows import measured, predicted, results

from kernels.problem import GemmShape
from search.evaluation import Value
from search.results.ranges import choose_ranges, only_ranges, unasked


def ladder(times: dict[int, dict[int, float]]) -> pd.DataFrame:
    """Times by M and BLOCK_N."""
    rows: list[dict[str, Value]] = [
        predicted(us, M=M, BLOCK_N=block_n, study=f"s{M}", trial=trial)
        for M, points in times.items() for trial, (block_n, us) in enumerate(points.items())
    ]  # fmt: skip
    return results(*rows)


# 64 is within 2 % of the best up to M = 32; 128 is the best above and 10 % off below.
TIMES = {16: {64: 10.0, 128: 11.0}, 32: {64: 10.2, 128: 10.0}, 64: {64: 15.0, 128: 12.0}}


@pytest.mark.parametrize(
    ("max_regret", "rows"),
    [
        (0.0, [((16,), 64, 0.0), ((32, 64), 128, 0.0)]),
        (0.03, [((16,), 64, 0.0), ((32, 64), 128, 0.0)]),
        (0.1, [((16, 32, 64), 128, 0.1)]),
    ],
)
def test_the_fewest_rows_within_the_limit(max_regret: float, rows: list[tuple[tuple[int, ...], int, float]]) -> None:
    chosen = choose_ranges(ladder(TIMES), max_regret + 1e-9)
    assert [(row.Ms, row.config.to_dict()["BLOCK_N"], pytest.approx(row.worst)) for row in chosen] == rows


def test_of_as_many_rows_those_with_the_least_regret() -> None:
    times = {16: {64: 10.0, 128: 10.3, 32: 10.1}, 32: {64: 10.3, 128: 10.0, 32: 10.1}}
    (row,) = choose_ranges(ladder(times), 0.05)
    assert (row.config.to_dict()["BLOCK_N"], row.worst) == (32, pytest.approx(0.01))


def test_a_point_that_was_not_tried_at_every_M_cannot_serve_them() -> None:
    chosen = choose_ranges(ladder({16: {64: 10.0}, 32: {128: 10.0}}), 0.5)
    assert [row.Ms for row in chosen] == [(16,), (32,)]


def test_measured_times_choose_where_there_are_some_whatever_was_predicted() -> None:
    rows: list[dict[str, Value]] = []
    for M in (16, 32):
        rows += [predicted(us, M=M, BLOCK_N=n, study=f"p{M}", trial=n) for n, us in ((64, 1.0), (128, 2.0))]
        rows += [measured(us, M=M, BLOCK_N=n, study=f"m{M}", trial=n) for n, us in ((64, 12.0), (128, 10.0))]
    (row,) = choose_ranges(results(*rows), 0.03)
    assert (row.Ms, row.config.to_dict()["BLOCK_N"], row.worst) == ((16, 32), 128, 0.0)


def test_what_was_not_tried_is_asked_exactly() -> None:
    shapes = [GemmShape(16, 2112, 7168), GemmShape(32, 2112, 7168)]
    starts = unasked(ladder({16: {64: 10.0}, 32: {128: 10.0}}), shapes)
    assert {str(shape): [one.config.to_dict()["BLOCK_N"] for one in members] for shape, members in starts.items()} == {
        "16x2112x7168": [128],
        "32x2112x7168": [64],
    }
    assert all(one.exact for members in starts.values() for one in members)
    assert unasked(ladder(TIMES), [GemmShape(16, 2112, 7168)]) == {}


def test_an_export_sees_the_chosen_rows_only() -> None:
    frame = ladder(TIMES)
    kept = only_ranges(frame, choose_ranges(frame, 0.03))
    assert list(zip(kept["M"], kept["BLOCK_N"], strict=True)) == [(16, 64), (64, 128)]
    assert len(only_ranges(frame, [])) == 0
