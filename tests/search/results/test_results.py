"""search.results: what a trial records, and results that survive every file format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_records import predicted, record

from kernels.errors import InputError
from kernels.families.fused import SplitKWorkspaceConfig
from search.evaluation import Evaluation, Value
from search.results import load, save
from search.results.columns import COLUMNS, FLAG, INTEGER, NUMBER, TEXT, typed_frame
from search.results.record import RECORD
from search.results.storage import open_storage

optuna.logging.set_verbosity(optuna.logging.WARNING)


def study_with(storage: optuna.storages.BaseStorage, name: str, records: list[Any]) -> None:
    study = optuna.create_study(storage=storage, study_name=name)
    for attributes in records:
        trial = study.ask()
        if attributes is None:
            continue  # cut short: still running
        trial.set_user_attr(RECORD, attributes)
        if attributes["outcome"] == "ok":
            study.tell(trial, attributes["predicted_us"])
        else:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)


@pytest.mark.parametrize("name", ["", "studies.db", "other.sqlite3", "journal.log"])
def test_loads_every_finished_trial_of_every_study(tmp_path: Path, name: str) -> None:
    place = tmp_path / name if name else tmp_path
    storage = open_storage(place, create=True)
    failed = record(Evaluation("compile_error", "no such instruction"))
    study_with(storage, "a", [record(predicted(10.0)), None, failed])
    study_with(storage, "b", [record(predicted(7.0), SplitKWorkspaceConfig(split_k=8))])
    frame = load(place)
    assert list(frame.columns) == list(COLUMNS)
    assert {column: str(dtype) for column, dtype in frame.dtypes.items()} == dict(COLUMNS)
    assert frame["outcome"].tolist() == ["ok", "compile_error", "ok"]
    assert frame["predicted_us"].tolist() == [10.0, pd.NA, 7.0]
    assert frame["split_k"].tolist() == [pd.NA, pd.NA, 8]
    assert frame["trial"].tolist() == [0, 2, 0]


def test_trial_that_failed_or_has_no_record_is_skipped(tmp_path: Path) -> None:
    storage = open_storage(tmp_path, create=True)
    study = optuna.create_study(storage=storage, study_name="s")
    study.tell(study.ask(), 1.0)
    trial = study.ask()
    trial.set_user_attr(RECORD, record(predicted(1.0)))
    study.tell(trial, state=optuna.trial.TrialState.FAIL)
    assert len(load(tmp_path)) == 0


def test_empty_results_have_all_columns(tmp_path: Path) -> None:
    open_storage(tmp_path, create=True)
    assert list(load(tmp_path).columns) == list(COLUMNS)


def test_record_of_a_newer_version_is_named(tmp_path: Path) -> None:
    study_with(open_storage(tmp_path, create=True), "s", [record(predicted(1.0)) | {"novelty": 1}])
    with pytest.raises(InputError, match="unknown column novelty; use the version that wrote it"):
        load(tmp_path)


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    INTEGER: st.integers(-(1 << 63), (1 << 63) - 1),
    NUMBER: st.floats(allow_nan=False, allow_infinity=False),
    TEXT: TEXTS | st.sampled_from(["", '""', "\\", "NA", "<NA>", "nan", "None", "a,b", 'say "x"', "\r\n", "\r", " "]),
    FLAG: st.booleans(),
}
REQUIRED: dict[str, list[Value]] = {
    "arch": ["gfx950"], "cu_count": [256], "M": [1], "N": [64], "K": [64], "family": ["fused"], "outcome": ["ok"],
}  # fmt: skip
SAMPLE = ("study", "samples", "cache_modifier", "reason", "margin_us", "time_us", "vgprs", "deterministic")
LEGAL = {"cache_modifier": st.sampled_from(["", ".cg"]), "time_us": st.floats(1e-3, 1e9)}  # what may be read back
rows = st.integers(0, 4).flatmap(
    lambda n: st.fixed_dictionaries(
        {name: st.lists(st.none() | LEGAL.get(name, VALUES[COLUMNS[name]]), min_size=n, max_size=n) for name in SAMPLE}
    )
)


@settings(deadline=None, max_examples=40)
@given(rows, st.sampled_from(["x.csv", "x.parquet"]))
def test_saved_frame_loads_equal(tmp_path_factory: pytest.TempPathFactory, columns: Any, name: str) -> None:
    frame = typed_frame({**{k: v * len(columns["study"]) for k, v in REQUIRED.items()}, **columns})
    path = tmp_path_factory.mktemp("results") / name
    save(frame, path)
    pd.testing.assert_frame_equal(load(path), frame, check_exact=True)


def test_empty_cache_modifier_and_none_stay_apart_in_csv(tmp_path: Path) -> None:
    required = {name: value * 3 for name, value in REQUIRED.items()}
    frame = typed_frame(required | {"cache_modifier": ["", None, ".cg"]})
    save(frame, tmp_path / "x.csv")
    assert load(tmp_path / "x.csv")["cache_modifier"].tolist() == ["", pd.NA, ".cg"]


def test_csv_reads_with_plain_pandas(tmp_path: Path) -> None:
    save(typed_frame({"M": [16], "family": ["fused"], "time_us": [1 / 3]}), tmp_path / "x.csv")
    frame = pd.read_csv(tmp_path / "x.csv")
    assert (frame["M"][0], frame["family"][0], frame["time_us"][0]) == (16, "fused", pytest.approx(1 / 3))
    assert frame["outcome"].isna().all()


HEADER = "arch,cu_count,M,N,K,family,outcome"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "", "not results (holds nothing)"),
        ("x.csv", "arch,M\ngfx950,1\n", "not results: no column cu_count, N, K, family, outcome"),
        ("x.csv", HEADER + "\ngfx950,256,16\n", "row 2 has 3 cells, the header 7"),
        ("x.csv", HEADER + "\n,256,1,64,64,fused,ok\n", "row 1: no arch; correct it"),
        ("x.csv", HEADER + "\ngfx950,256,1,100,64,fused,ok\n", "row 1: N = 100 must be a positive"),
        ("x.csv", HEADER + "\ngfx950,256,many,64,64,fused,ok\n", "column M is not Int64"),
        ("x.csv", HEADER + ",arch\ngfx950,256,1,64,64,fused,ok,9\n", "column arch is there twice"),
        ("x.csv", HEADER + '\n"gfx950', "not CSV"),
        ("x.parquet", "PAR1", "not results"),
    ],
)
def test_broken_file_is_one_line_with_its_path(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError) as caught:
        load(tmp_path / name)
    assert str(caught.value).startswith(f"{tmp_path / name}: ") and message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_results_and_unknown_suffix_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"studies\.db: no results; run `sweep` first"):
        load(tmp_path)
    assert list(tmp_path.iterdir()) == []  # looking does not create
    with pytest.raises(InputError, match=r"x\.csv: no such file"):
        load(tmp_path / "x.csv")
    with pytest.raises(InputError, match=r"unknown suffix '\.json'; use one of \.parquet, \.csv"):
        save(typed_frame({"M": [1]}), tmp_path / "x.json")


def test_interrupted_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.csv"
    save(typed_frame({"M": [1]}), path)
    before = path.read_bytes()

    def crash(source: object, target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", crash)
    with pytest.raises(KeyboardInterrupt):
        save(typed_frame({"M": [2]}), path)
    assert path.read_bytes() == before


def test_columns_of_the_users_are_kept_and_an_index_is_not(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("," + HEADER + ",note\n0,gfx950,256,1,64,64,fused,ok,mine\n")
    frame = load(path)
    assert list(frame.columns) == [*COLUMNS, "note"]
    assert list(frame["note"]) == ["mine"]
    save(frame, tmp_path / "y.parquet")
    assert list(load(tmp_path / "y.parquet")["note"]) == ["mine"]


def test_units_are_known_to_the_frame_and_to_the_fields_of_parquet(tmp_path: Path) -> None:
    frame = typed_frame({"M": [16], "N": [2112], "K": [7168]})
    assert frame.attrs["units"]["predicted_us"] == "us" and frame.attrs["units"]["M"] == "logical elements"
    assert list(frame["shape"]) == ["16x2112x7168"]
    save(frame, tmp_path / "x.parquet")
    schema = pq.read_schema(tmp_path / "x.parquet")
    assert {name: schema.field(name).metadata for name in ("bandwidth_gbs", "family")} == {
        "bandwidth_gbs": {b"unit": b"GB/s"},
        "family": None,
    }
