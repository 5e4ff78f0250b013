"""search.results.undecided: the candidates to measure first, and their way through a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from result_rows import measured, predicted, results

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.evaluators.replay import named_points
from search.results import save
from search.results.undecided import read_points, shape_counts, undecided

SHAPE = GemmShape(16, 2112, 7168)
EQUAL = (predicted(10.0, num_warps=8, predicted_tie=0.03), predicted(10.2, predicted_tie=0.03))


def test_the_winner_and_what_it_is_not_told_from_are_listed() -> None:
    rows = undecided(results(*EQUAL, predicted(11.0, num_warps=2, predicted_tie=0.03)))
    assert sorted(rows["num_warps"]) == [4, 8]
    assert shape_counts(rows) == {SHAPE: 2}


def test_a_winner_that_is_told_apart_or_was_measured_is_not_listed() -> None:
    assert not len(undecided(results(predicted(10.0), predicted(11.0, num_warps=8))))
    assert not len(undecided(results(*EQUAL, measured(9.0, num_warps=2))))


def test_the_file_names_the_same_points(tmp_path: Path) -> None:
    save(undecided(results(*EQUAL)), tmp_path / "x.csv")
    assert read_points(tmp_path / "x.csv") == {SHAPE: [("fused", TileConfig(num_warps=8)), ("fused", TileConfig())]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("M,N,K\n1,64,64\n", "no column family"),
        ("M,N,K,family\n1,64,64,none\n", "line 2: no family 'none'"),
        ("M,N,K,family\n1,65,64,fused\n", "line 2: N = 65"),
    ],
)
def test_a_file_of_something_else_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InputError, match=said):
        read_points(tmp_path / "x.csv")


def test_only_the_named_points_are_searched() -> None:
    points = named_points([("fused", TileConfig()), ("fused", TileConfig())], SHAPE, GFX950)
    assert [len(found) for found in points.values()] == [1]
    with pytest.raises(InputError, match="take it out"):
        named_points([("fused", TileConfig(num_warps=64))], SHAPE, GFX950)
    with pytest.raises(InputError, match="--only"):
        named_points([], SHAPE, GFX950)
