"""search.results.stored and .trials: what is kept of a trial, and reading all or some of it, also from Parquet."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
from made_records import predicted, record

from kernels.errors import InputError
from kernels.families.fused import TileConfig
from search.evaluation import Evaluation
from search.results import load, stored
from search.results.columns import COLUMNS
from search.results.record import RECORD, packed, unpacked
from search.results.storage import open_storage
from search.results.stored import searched_trials, study_names
from search.results.trials import KeptTrials

ROOT = Path(__file__).resolve().parents[3]

CACHE = ".studies.db.parquet"
MOST_BYTES = 2048  # of a trial, with its share of every index


def keep(storage: optuna.storages.BaseStorage, name: str, count: int, first: int = 0) -> None:
    study = optuna.create_study(storage=storage, study_name=name, load_if_exists=True)
    trials = KeptTrials(study)
    for number in range(first, first + count):
        trials.add(record(predicted(10.0 + number), TileConfig(GROUP_M=1 + number % 8)) | {"study": name})


def times(frame: pd.DataFrame) -> list[float]:
    return [float(value) for value in frame["predicted_us"]]


@pytest.mark.parametrize("name", ["studies.db", "studies.journal"])
def test_a_kept_trial_is_read_back_with_its_state_and_value(tmp_path: Path, name: str) -> None:
    storage = open_storage(tmp_path / name, create=True)
    trials = KeptTrials(optuna.create_study(storage=storage, study_name="s"))
    ok, failed = record(predicted(9.0, vgprs=128)), record(Evaluation("resource_limit", "spills"))
    trials.add(ok)
    trials.add(failed)
    trials.add(ok, final=True)
    again = KeptTrials(optuna.load_study(storage=storage, study_name="s"))
    assert [(one.number, one.record, one.final) for one in again.read()] == [
        (0, ok, False), (1, failed, False), (2, ok, True),
    ]  # fmt: skip
    assert [trial.value for trial in again.study.trials] == [9.0, None, 9.0]
    assert searched_trials(storage, ["s", "other"]) == {"s": 2}


def test_a_record_of_an_earlier_version_is_read_beside_a_packed_one(tmp_path: Path) -> None:
    study = optuna.create_study(storage=open_storage(tmp_path, create=True), study_name="s")
    old = record(predicted(9.0))
    study.add_trial(optuna.trial.create_trial(value=9.0, user_attrs={RECORD: old, "vgprs": 128}))
    KeptTrials(study).add(old)
    assert [one.record for one in KeptTrials(study).read()] == [old, old]
    assert times(load(tmp_path)) == [9.0, 9.0]


def test_packed_records_keep_zero_false_and_empty_apart_from_unknown() -> None:
    made = record(predicted(9.0, vgprs=0, deterministic=False)) | {"cache_modifier": ""}
    stored_value = json.loads(json.dumps(packed(made)))
    assert unpacked(stored_value, {stored_value[0]: list(COLUMNS)}) == made


@pytest.mark.parametrize("torn", [["0" * 8, "ff"], ["nonsense"], 5, "text"])
def test_a_packed_record_without_its_columns_is_torn(torn: Any) -> None:
    with pytest.raises(ValueError, match=r"no columns for it|argument after|is too short|shorter"):
        unpacked(torn, {"00000000": list(COLUMNS)})


def test_a_trial_takes_at_most_two_kilobytes(tmp_path: Path) -> None:
    facts = {f"executed_{name}": 123456.789 for name in ("mfma", "valu", "lds", "global", "scalar", "waits")}
    numbers = {name: 123456 for name in ("vgprs", "sgprs", "lds_bytes", "kernarg_bytes", "valu", "lds_read", "waits")}
    storage = open_storage(tmp_path, create=True)
    trials = KeptTrials(optuna.create_study(storage=storage, study_name="gfx950-256cu/16x2112x7168/offline-x/y/z"))
    for _ in range(200):
        trials.add(record(predicted(9.87654321, **facts, **numbers, max_rel_error=0.00123456789)))
    storage.remove_session()
    assert (tmp_path / "studies.db").stat().st_size / 200 < MOST_BYTES


@pytest.mark.parametrize("name", ["studies.db", "studies.journal"])
def test_only_the_studies_that_are_asked_for_are_read(tmp_path: Path, name: str) -> None:
    storage = open_storage(tmp_path / name, create=True)
    for number, study in enumerate(("a", "b", "c")):
        keep(storage, study, 1, first=number)
    assert study_names(storage) == ["a", "b", "c"]
    assert times(load(tmp_path / name, ["c", "a", "unknown"])) == [10.0, 12.0]
    assert len(load(tmp_path / name, [])) == 0


def test_reading_loads_nothing_that_only_a_writer_needs(tmp_path: Path) -> None:
    keep(open_storage(tmp_path, create=True), "a", 2)
    script = "import sys; from search.results import load; print(len(load(sys.argv[1])), 'alembic' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "2 False\n"


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose two studies were read once, so that the Parquet file is there."""
    monkeypatch.setattr(stored, "WORTH_KEEPING", 3)
    storage = open_storage(tmp_path, create=True)
    keep(storage, "a", 2)
    keep(storage, "b", 1, first=5)
    load(tmp_path)
    assert (tmp_path / CACHE).is_file()
    return tmp_path


def change(folder: Path, statement: str) -> None:
    with sqlite3.connect(folder / "studies.db") as connection:
        connection.execute(statement)
    connection.close()


def test_what_was_read_comes_from_the_parquet_file_and_newer_trials_from_the_storage(cached: Path) -> None:
    change(cached, "UPDATE trial_user_attributes SET value_json = 'torn' WHERE trial_id = 1")  # the file knows it
    keep(open_storage(cached, create=False), "a", 1, first=2)
    frame = load(cached)
    assert times(frame) == [10.0, 11.0, 12.0, 15.0] and frame["study"].tolist() == ["a", "a", "a", "b"]


@pytest.mark.parametrize("content", [b"", b"PAR1 torn", None])
def test_a_torn_or_missing_parquet_file_is_no_loss(cached: Path, content: bytes | None) -> None:
    path = cached / CACHE
    path.unlink() if content is None else path.write_bytes(content)
    assert times(load(cached)) == [10.0, 11.0, 15.0]


def test_the_parquet_file_of_other_trials_is_not_used(cached: Path, tmp_path: Path) -> None:
    (cached / "studies.db").unlink()
    keep(open_storage(cached, create=True), "a", 3, first=20)  # as many as the file holds
    assert times(load(cached)) == [30.0, 31.0, 32.0]


def test_a_deleted_study_is_gone(cached: Path) -> None:
    optuna.delete_study(study_name="a", storage=open_storage(cached, create=False))
    assert times(load(cached)) == [15.0]


def test_a_folder_that_cannot_be_written_is_read(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise OSError(30, "Read-only file system")

    (cached / CACHE).unlink()
    monkeypatch.setattr(stored, "replace_file", refuse)
    assert len(load(cached)) == 3


def test_a_torn_record_is_named(tmp_path: Path) -> None:
    keep(open_storage(tmp_path, create=True), "a", 2)
    change(tmp_path, "UPDATE trial_user_attributes SET value_json = '[1' WHERE trial_id = 2")
    with pytest.raises(InputError, match=r"studies\.db: trial 1 has a torn record .*restore the file"):
        load(tmp_path)
