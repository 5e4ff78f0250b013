"""search.storage: opening what is there, refusing the rest in one line."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from kernels.errors import InputError
from search.storage import open_storage, storage_file


@pytest.mark.parametrize("name", ["results", "x.db", "x.journal"])
def test_created_storage_is_found_again(tmp_path: Path, name: str) -> None:
    path = tmp_path / "new" / name
    optuna.create_study(storage=open_storage(path, create=True), study_name="s")
    assert [study.study_name for study in open_storage(path, create=False).get_all_studies()] == ["s"]


def test_url_opens_the_same_database_as_its_path(tmp_path: Path) -> None:
    optuna.create_study(storage=open_storage(tmp_path, create=True), study_name="s")
    by_url = open_storage(f"sqlite:///{storage_file(tmp_path)}", create=False)
    assert [study.study_name for study in by_url.get_all_studies()] == ["s"]


@pytest.mark.parametrize(
    "url", ["nonsense://host/db", "sqlite:////no/such/folder/x.db", "postgresql://", "mysql+nodriver://u@h/d"]
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


def test_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cannot be written .* name another folder with --results"):
        open_storage(tmp_path / "file" / "results", create=True)


def test_missing_results_are_not_created(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no results; run `sweep` first"):
        open_storage(tmp_path / "none", create=False)
    assert list(tmp_path.iterdir()) == []
