"""search.results.studies: one file for each way to name it, and one writer at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.errors import InputError
from search.results.studies import Rounds, only_writer, studies_file


@pytest.mark.parametrize(
    ("location", "file"),
    [
        ("results", "results/studies.db"),
        (Path("results"), "results/studies.db"),
        ("run-1.5", "run-1.5/studies.db"),
        ("x.journal", "x.journal"),
        ("x.log", "x.log"),
        ("x.sqlite3", "x.sqlite3"),
        ("sqlite:///results/studies.db", "results/studies.db"),
        ("sqlite:////tmp/a.db?timeout=5", "/tmp/a.db"),
        ("sqlite+pysqlite:///a.db", "a.db"),
        ("sqlite:///file:a.db?uri=true", "a.db"),
    ],
)
def test_file_of_a_place(location: Path | str, file: str) -> None:
    assert studies_file(location) == Path(file)


@pytest.mark.parametrize(
    "url", ["postgresql://u:p@host/db", "sqlite://", "sqlite:///:memory:", "mysql+pymysql://h/d", "://", "x://host:y/"]
)
def test_a_server_or_the_memory_has_no_file(url: str) -> None:
    assert studies_file(url) is None


@pytest.mark.parametrize("name", ["trials.csv", "trials.parquet"])
def test_a_file_of_results_keeps_no_studies_and_no_folder_of_its_name_is_made(tmp_path: Path, name: str) -> None:
    refusal = f"{name}: is a file of results, .*name another folder with --results"
    with pytest.raises(InputError, match=refusal), only_writer(tmp_path / name):
        pass
    assert list(tmp_path.iterdir()) == []


def test_another_file_is_no_folder_of_results(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"notes\.txt: is a file, not a folder of results; name another folder"):
        studies_file(tmp_path / "notes.txt")


def test_a_second_writer_is_refused_and_a_later_one_is_not(tmp_path: Path) -> None:
    second = only_writer(f"sqlite:///{tmp_path}/studies.db")
    with only_writer(tmp_path), pytest.raises(InputError, match="another sweep is writing here; wait for it"), second:
        pass
    with only_writer(tmp_path):
        pass


def test_a_writer_that_wrote_nothing_leaves_no_folder(tmp_path: Path) -> None:
    with only_writer(tmp_path / "new"):
        assert (tmp_path / "new").is_dir()
    assert list(tmp_path.iterdir()) == []
    with only_writer(tmp_path / "new"):
        (tmp_path / "new" / "studies.db").touch()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["studies.db"]


def test_two_writers_of_one_server_are_its_own_business() -> None:
    with only_writer("postgresql://host/db"), only_writer("postgresql://host/db"):
        pass


BASE = "gfx950-256cu/16x64x64/fake-v1/triton-3.9.0/0123456789ab"
OTHER = BASE.replace("16x64x64", "32x64x64")


@pytest.mark.parametrize(
    ("names", "newest", "opened", "fresh"),
    [
        ([], None, BASE, BASE),
        ([OTHER], None, BASE, BASE),
        ([OTHER, BASE], BASE, BASE, f"{BASE}#2"),
        ([f"{BASE}#10", BASE, f"{BASE}#9"], f"{BASE}#10", f"{BASE}#10", f"{BASE}#11"),
    ],
)
def test_the_newest_round_of_a_study_is_opened(names: list[str], newest: str | None, opened: str, fresh: str) -> None:
    rounds = Rounds(names)
    assert rounds.newest(BASE) == newest
    assert (rounds.to_open(BASE, fresh=False), rounds.to_open(BASE, fresh=True)) == (opened, fresh)
