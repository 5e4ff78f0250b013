"""search.storage: opening what is there, refusing the rest in one line."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest
from optuna.trial import create_trial

from kernels.errors import InputError
from search.storage import open_storage
from search.studies_file import STUDIES_FILE


@pytest.mark.parametrize("name", ["results", "x.db", "x.journal"])
def test_created_storage_is_found_again(tmp_path: Path, name: str) -> None:
    path = tmp_path / "new" / name
    optuna.create_study(storage=open_storage(path, create=True), study_name="s")
    assert [study.study_name for study in open_storage(path, create=False).get_all_studies()] == ["s"]


def test_url_opens_the_same_database_as_its_path(tmp_path: Path) -> None:
    optuna.create_study(storage=open_storage(tmp_path, create=True), study_name="s")
    by_url = open_storage(f"sqlite:///{tmp_path / STUDIES_FILE}", create=False)
    assert [study.study_name for study in by_url.get_all_studies()] == ["s"]


@pytest.mark.parametrize(
    "url", ["nonsense://host/db", "postgresql://", "mysql+nodriver://u@h/d"]
)
def test_broken_url_is_one_line(url: str) -> None:
    with pytest.raises(InputError) as caught:
        open_storage(url, create=True)
    assert str(caught.value).startswith(f"{url}: not a storage that Optuna can open (")
    assert str(caught.value).endswith("check --storage") and "\n" not in str(caught.value)


def test_password_is_not_shown() -> None:
    for url in ("nonsense://user:secret@host/db", "nonsense://user:secret@host:port/db"):
        with pytest.raises(InputError) as caught:
            open_storage(url, create=True)
        assert "secret" not in str(caught.value) and str(caught.value).startswith("nonsense://")


def test_file_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "studies.db").write_text("these are not studies")
    with pytest.raises(InputError, match=r"studies\.db: not a storage that Optuna can open \(.*not a database"):
        open_storage(tmp_path, create=True)


@pytest.mark.parametrize("location", ["{}/file/results", "sqlite:///{}/file/x.db"])
def test_place_that_cannot_be_written_is_one_line(tmp_path: Path, location: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written .* name another folder with --results"):
        open_storage(location.format(tmp_path), create=True)


@pytest.mark.parametrize("location", ["{}/none", "{}/none/x.journal", "sqlite:///{}/none.db"])
def test_missing_results_are_not_created(tmp_path: Path, location: str) -> None:
    with pytest.raises(InputError, match="no results; run `sweep` first"):
        open_storage(location.format(tmp_path), create=False)
    assert list(tmp_path.iterdir()) == []


def journal(tmp_path: Path, trials: int) -> tuple[Path, optuna.Study]:
    path = tmp_path / "x.journal"
    study = optuna.create_study(storage=open_storage(path, create=True), study_name="s")
    for value in range(trials):
        study.add_trial(create_trial(value=float(value)))
    return path, study


def values(path: Path) -> list[float | None]:
    study = optuna.load_study(study_name="s", storage=open_storage(path, create=False))
    return [trial.value for trial in study.trials]


@pytest.mark.parametrize("bytes_left", [1, 7, 40, -1])
def test_a_journal_whose_last_line_was_cut_off_goes_on(tmp_path: Path, bytes_left: int) -> None:
    path, _ = journal(tmp_path, 3)
    whole = path.read_bytes()
    start = whole.rstrip().rfind(b"\n") + 1
    path.write_bytes(whole[:start] + whole[start:][:bytes_left])
    assert values(path) == [0.0, 1.0]
    optuna.load_study(study_name="s", storage=open_storage(path, create=True)).add_trial(create_trial(value=7.0))
    assert values(path) == [0.0, 1.0, 7.0]


def test_a_trial_for_which_a_journal_has_no_room_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, study = journal(tmp_path, 2)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            study.add_trial(create_trial(value=2.0))
    assert path.read_bytes() == before
    study.add_trial(create_trial(value=3.0))
    assert values(path) == [0.0, 1.0, 3.0]


def test_a_file_that_is_no_journal_is_refused_and_keeps_its_only_line(tmp_path: Path) -> None:
    path = tmp_path / "notes.log"
    path.write_text("mine, without a newline")
    with pytest.raises(InputError, match=r"notes\.log: not a journal that Optuna can open \(its last line"):
        open_storage(path, create=True)
    assert path.read_text() == "mine, without a newline"
