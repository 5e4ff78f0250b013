"""The bar CLIMB of offline sweeps against some that executed every point: nothing near the best is left out."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from search.evaluators.offline_task import CLIMB
from search.results import load

RECORDED = sorted(Path(__file__).parents[3].glob("results/recorded/predicted/*.parquet"))
NEAR = 1.02  # of the best predicted time


def worst_ratio(frame: pd.DataFrame) -> float:
    """Largest formula time of a point near the best, as a part of a candidate's that may have been the best before it.

    Any slower candidate may: so the order in which a search came upon them does not matter.
    """
    rows = frame[(frame["outcome"] == "ok") & frame["formula_us"].notna()]
    near = rows[rows["predicted_us"] <= NEAR * rows["predicted_us"].min()]
    return max(
        float(point["formula_us"] / rows.loc[rows["predicted_us"] >= point["predicted_us"], "formula_us"].min())
        for _, point in near.iterrows()
    )


def test_there_are_recorded_sweeps() -> None:
    shapes = {"16x2112x7168", "256x3072x1536"}
    assert {path.name for path in RECORDED} == {f"gfx950-256cu-{shape}.parquet" for shape in shapes}


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_formula_refuses_no_point_near_the_best(path: Path) -> None:
    assert worst_ratio(load(path)) < CLIMB


def test_a_refusal_would_be_seen() -> None:
    rows = [("ok", 10.0, 16.0), ("ok", 11.0, 10.0), ("ok", 9.9, 12.0), ("compile_error", None, 1.0)]
    frame = pd.DataFrame(rows, columns=["outcome", "predicted_us", "formula_us"])
    assert worst_ratio(frame) == 1.6  # the first, near the best, after the second
