"""kernels.tables: which row serves a shape, by the rule "M is an upper bound"."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.device import GFX950, DeviceKey
from kernels.families import FAMILIES
from kernels.families.fused import SplitKAtomicConfig, TileConfig
from kernels.problem import GemmShape
from kernels.tables import lookup
from kernels.tables.rows import Made, TableRow, TunedTable, is_stale

MADE = Made(date(2026, 11, 30), "3.9.0", "2.13.0", "0123456789ab", "gfx950-t1", "gfx950-16x2112x7168")


def predicted(M: int, N: int = 2112, K: int = 7168, us: float = 10.0) -> TableRow:
    return TableRow(M, N, K, "fused", TileConfig(), "predicted", True, MADE, predicted_us=us)


def measured(M: int, us: float, *, spread_us: float = 0.1, N: int = 2112, K: int = 7168) -> TableRow:
    return TableRow(M, N, K, "fused", TileConfig(), "measured", True, MADE, time_us=us, spread_us=spread_us)


def atomic(M: int, us: float) -> TableRow:
    return TableRow(
        M, 2112, 7168, "fused_splitk_atomic", SplitKAtomicConfig(), "predicted", False, MADE, predicted_us=us
    )


FAR = replace(predicted(64), serves_to=100)
TABLE = TunedTable(GFX950, (predicted(16), FAR, predicted(4), predicted(4, N=2880, K=512)))


@pytest.mark.parametrize(
    ("M", "row_M", "how"),
    [
        (1, 4, "bucket"),
        (4, 4, "exact"),
        (5, 16, "bucket"),
        (16, 16, "exact"),
        (17, 64, "bucket"),
        (65, 64, "above"),
        (100, 64, "above"),
    ],
)
def test_smallest_row_not_below_serves_and_above_it_the_largest_as_far_as_it_says(M: int, row_M: int, how: str) -> None:
    found = lookup(TABLE, GemmShape(M, 2112, 7168))
    assert found.row is not None
    assert (found.row.M, found.how) == (row_M, how)


def test_bucket_explanation_names_the_range_of_the_row() -> None:
    assert "serves 5..16 at N = 2112, K = 7168" in lookup(TABLE, GemmShape(9, 2112, 7168)).explanation


def test_other_n_and_k_are_a_miss_with_the_cure() -> None:
    found = lookup(TABLE, GemmShape(5, 640, 448))
    assert (found.row, found.how) == (None, "miss")
    assert "N = 640, K = 448" in found.explanation and "sweep 5x640x448" in found.explanation


@pytest.mark.parametrize(
    ("here", "served"), [("3.5.1", False), ("3.5.1+rocm7.2.0.gita272dfa8", False), ("3.6.0", True), ("3.10.0", True)]
)
def test_below_triton_3_6_the_default_serves_and_the_explanation_says_why(
    here: str, served: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triton.__version__", here)
    found = lookup(TABLE, GemmShape(16, 2112, 7168))
    assert (found.row is not None) == served
    assert served or f"made with Triton 3.9.0, and {here} here makes wrong code of some; use 3.6" in found.explanation


def test_a_row_that_an_old_triton_made_itself_serves_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triton.__version__", "3.5.1")
    own = replace(predicted(16), made=replace(MADE, triton="3.5.0"))
    assert lookup(TunedTable(GFX950, (own,)), GemmShape(16, 2112, 7168)).row is own


@given(st.sets(st.integers(1, 300), min_size=1), st.integers(1, 400))
def test_lookup_agrees_with_a_walk_up_the_rows(ms: set[int], asked: int) -> None:
    table = TunedTable(GFX950, tuple(predicted(M) for M in ms))
    expected = next((M for M in sorted(ms) if M >= asked), None)  # noqa: SIM300
    found = lookup(table, GemmShape(asked, 2112, 7168)).row
    assert (None if found is None else found.M) == expected


@pytest.mark.parametrize(
    ("M", "row_M"),
    [(1, None), (7, None), (8, 16), (16, 16), (17, 16), (40, 16), (41, None), (255, None), (256, 512), (512, 512)],
)
def test_between_rows_that_are_far_apart_each_serves_as_far_as_it_says_and_the_default_the_rest(
    M: int, row_M: int | None
) -> None:
    rows = (replace(predicted(16), serves_from=8, serves_to=40), replace(predicted(512), serves_from=256))
    found = lookup(TunedTable(GFX950, rows), GemmShape(M, 2112, 7168))
    assert (None if found.row is None else found.row.M) == row_M
    if row_M is None:
        assert f"M = {M} is out of the reach of the rows next to it at N = 2112, K = 7168: M = " in found.explanation
        assert f"; sweep {M}x2112x7168 and export" in found.explanation


def test_of_two_rows_that_reach_an_m_the_one_for_more_rows_serves() -> None:
    rows = (replace(predicted(16), serves_to=1000), replace(predicted(512), serves_from=256))
    table = TunedTable(GFX950, rows)
    found = [lookup(table, GemmShape(M, 2112, 7168)).row for M in (255, 256, 600)]
    assert [row.M for row in found if row is not None] == [16, 512, 16]


def test_a_row_that_is_silent_about_its_reach_serves_up_to_its_own_m() -> None:
    found = lookup(TunedTable(GFX950, (predicted(64),)), GemmShape(65, 2112, 7168))
    assert (found.row, found.how) == (None, "miss")
    assert "M = 64 (1..64)" in found.explanation


def test_faster_nondeterministic_row_serves_unless_determinism_is_asked_for() -> None:
    reaching = replace(predicted(16, us=10.0), serves_to=20)
    table = TunedTable(GFX950, (reaching, atomic(16, us=8.0), atomic(32, us=8.0)))
    assert lookup(table, GemmShape(16, 2112, 7168)).row == atomic(16, us=8.0)
    assert lookup(table, GemmShape(16, 2112, 7168), deterministic_only=True).row == reaching
    assert lookup(table, GemmShape(20, 2112, 7168), deterministic_only=True).how == "above"
    only_atomic = TunedTable(GFX950, (atomic(16, us=8.0),))
    assert "is deterministic" in lookup(only_atomic, GemmShape(16, 2112, 7168), deterministic_only=True).explanation


def test_measured_row_serves_before_a_faster_prediction() -> None:
    table = TunedTable(GFX950, (measured(16, us=12.0), atomic(16, us=8.0)))
    assert lookup(table, GemmShape(16, 2112, 7168)).row == measured(16, us=12.0)


def test_row_whose_configuration_cannot_run_on_the_device_is_passed_over() -> None:
    nvidia = DeviceKey("sm_90", 132)  # no FP4 conversion instruction: quantizer=hardware is illegal
    software = replace(predicted(64), config=TileConfig(quantizer="software"))
    table = TunedTable(nvidia, (predicted(16), software))
    assert lookup(table, GemmShape(16, 2112, 7168)).row == software


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"M": 0}, "M = 0 must be at least 1"),
        ({"N": 100}, "N = 100"),
        ({"K": 50}, "K = 50"),
        ({"family": "warp"}, "family: 'warp' is unknown; use one of fused, "),
        ({"config": SplitKAtomicConfig()}, "config: SplitKAtomicConfig is not of family fused"),
        ({"evidence": "guessed"}, "evidence: 'guessed' is unknown"),
        ({"layout": "plain"}, "layout: 'plain' is unknown"),
        ({"out_dtype": "float16"}, "out_dtype: 'float16' is unknown"),
        ({"predicted_us": None}, "predicted_us: missing"),
        ({"time_us": 9.0}, "time_us: a predicted row must not have it"),
        ({"spread_us": 0.1}, "spread_us: a predicted row must not have it"),
        ({"predicted_us": float("inf")}, "predicted_us: inf is not a positive time"),
        ({"predicted_us": float("nan")}, "predicted_us: nan is not a positive time"),
        ({"predicted_us": 0.0}, "predicted_us: 0.0 is not a positive time"),
        (
            {"predicted_lo_us": 99.0, "predicted_hi_us": 100.0},
            "predicted_lo_us: 99..100 us does not hold predicted_us = 10",
        ),
        ({"predicted_lo_us": 9.0, "predicted_hi_us": float("inf")}, "predicted_lo_us: 9..inf us does not hold"),
        ({"predicted_lo_us": 9.0}, "predicted_lo_us: it and predicted_hi_us belong together"),
        ({"made": replace(MADE, trial=-5)}, "made: trial -5 is no number"),
        ({"tied": -1}, "tied: -1 is no number of candidates"),
    ],
)
def test_row_that_contradicts_itself_is_rejected(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match="^" + message.replace("(", r"\(")):
        replace(predicted(16), **change)  # type: ignore[arg-type]


def test_measured_row_must_not_carry_a_prediction_or_a_negative_spread() -> None:
    with pytest.raises(ValueError, match=r"^predicted_us: a measured row"):
        replace(measured(16, us=9.0), predicted_us=8.0)
    with pytest.raises(ValueError, match=r"^tied: a measured row"):
        replace(measured(16, us=9.0), tied=1)
    with pytest.raises(ValueError, match=r"^spread_us: -0.1"):
        measured(16, us=9.0, spread_us=-0.1)


def test_atomic_family_cannot_be_called_deterministic() -> None:
    with pytest.raises(ValueError, match=r"^deterministic: fused_splitk_atomic"):
        replace(atomic(16, us=9.0), deterministic=True)


def test_table_rejects_two_rows_of_one_key() -> None:
    with pytest.raises(ValueError, match="two rows for 16x2112x7168"):
        TunedTable(GFX950, (predicted(16, us=1.0), predicted(16, us=2.0)))


def test_row_of_other_kernels_is_stale() -> None:
    assert is_stale(predicted(16))
    assert not is_stale(replace(predicted(16), made=replace(MADE, source_hash=FAMILIES["fused"].source_hash)))
