"""Results of others are checked when they are read: what could mislead an export is refused by row and column."""

from __future__ import annotations

import math
from pathlib import Path

import optuna
import pandas as pd
import pytest
from result_rows import failed, measured, predicted, results

from kernels.errors import InputError
from search.evaluation import Value
from search.results import load, save
from search.results.checks import check_results
from search.results.record import RECORD
from search.results.storage import open_storage


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan, 1e-6])
@pytest.mark.parametrize("column", ["predicted_us", "time_us", "time_lo_us", "baseline_us"])
def test_what_is_no_time_is_refused_by_row_and_column(value: float, column: str) -> None:
    frame = results(predicted(5.0), predicted(6.0, trial=1))
    frame[column] = pd.array([1.0, 1.0], dtype="Float64")
    frame[column].array._data[1] = value  # past pandas, which takes NaN for a missing value
    with pytest.raises(InputError, match=rf"^here: row 2: {column} is no .*; correct it or remove it$"):
        check_results(frame, "here")


def test_a_bound_may_be_shorter_than_any_time_but_is_above_zero() -> None:
    check_results(results(predicted(5.0, roofline_us=3e-4)), "here")  # 1x64x64: 2.4 KB at 8 TB/s
    for value in (0.0, -1.0):
        with pytest.raises(InputError, match="row 1: roofline_us is no time above 0"):
            check_results(results(predicted(5.0, roofline_us=value)), "here")


def test_other_numbers_may_be_zero_or_negative_but_not_infinite() -> None:
    check_results(results(measured(5.0, margin_us=-0.1, compile_s=0.0)), "here")
    with pytest.raises(InputError, match="row 1: compile_s is no finite number"):
        check_results(results(measured(5.0, compile_s=math.inf)), "here")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"arch": "../../elsewhere/x"}, "arch: '../../elsewhere/x' is no architecture"),
        ({"arch": "gfx950/../../x"}, "arch: 'gfx950/../../x' is no architecture"),
        ({"arch": "GFX950"}, "arch: 'GFX950' is no architecture"),
        ({"arch": ""}, "arch: '' is no architecture"),
        ({"cu_count": 0}, "cu_count: 0 is less than 1"),
        ({"N": 100}, "N = 100 must be a positive multiple of 64"),
        ({"M": 0}, "M = 0 must be at least 1"),
        ({"BLOCK_M": 2**62}, "BLOCK_M = 4611686018427387904 is not within 1..1048576"),
        ({"num_warps": 0}, "num_warps = 0 is not within 1..32"),
        ({"quantizer": "hw"}, "quantizer 'hw' is unknown"),
        ({"cache_modifier": '""'}, "cache_modifier '\"\"' is unknown"),
        ({"outcome": "fine"}, "outcome 'fine' is unknown"),
        ({"evidence": "guessed"}, "evidence 'guessed' is unknown"),
        ({"family": None}, "no family"),
    ],
)
def test_a_word_a_name_or_an_extent_that_is_none_is_refused(changes: dict[str, Value], problem: str) -> None:
    frame = results(predicted(5.0), predicted(6.0, trial=1, **changes), predicted(7.0, trial=2, **changes))
    with pytest.raises(InputError) as caught:
        check_results(frame, "here")
    assert str(caught.value).startswith(f"here: row 2, 3: {problem}")


def test_trials_that_failed_and_families_of_other_versions_pass() -> None:
    other = predicted(5.0, family="fused_by_magic", cache_modifier="new")
    check_results(results(failed("compile_error"), other, measured(5.0, 0.1)), "here")


def test_what_a_database_holds_is_checked_too(tmp_path: Path) -> None:
    study = optuna.create_study(storage=open_storage(tmp_path, create=True), study_name="s")
    trial = study.ask()
    trial.set_user_attr(RECORD, predicted(5.0, quantizer="hw"))
    study.tell(trial, 5.0)
    with pytest.raises(InputError, match="row 1: quantizer 'hw' is unknown; use one of hardware, software"):
        load(tmp_path)


def test_a_csv_that_pandas_read_and_wrote_again_is_refused_where_its_empty_texts_became_quotes(tmp_path: Path) -> None:
    save(results(predicted(5.0)), tmp_path / "p.csv")
    pd.read_csv(tmp_path / "p.csv").to_parquet(tmp_path / "p.parquet")
    with pytest.raises(InputError, match=r"p\.parquet: row 1: cache_modifier .* is unknown; use one of '', \.cg"):
        load(tmp_path / "p.parquet")
