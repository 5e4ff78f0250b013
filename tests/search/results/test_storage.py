"""search.results.storage: opening what is there, refusing the rest in one line."""

from __future__ import annotations

import multiprocessing
import sqlite3
from functools import partial
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import optuna
import pytest
from optuna.storages import RDBStorage
from optuna.trial import create_trial
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from kernels.errors import InputError
from search.results import storage as module
from search.results.storage import CREATION_TRIES, open_storage, open_to_read
from search.results.studies import STUDIES_FILE


@pytest.mark.parametrize("name", ["results", "x.db", "x.journal"])
def test_created_storage_is_found_again(tmp_path: Path, name: str) -> None:
    path = tmp_path / "new" / name
    optuna.create_study(storage=open_storage(path, create=True), study_name="s")
    assert [study.study_name for study in open_storage(path, create=False).get_all_studies()] == ["s"]


def test_url_opens_the_same_database_as_its_path(tmp_path: Path) -> None:
    optuna.create_study(storage=open_storage(tmp_path, create=True), study_name="s")
    by_url = open_storage(f"sqlite:///{tmp_path / STUDIES_FILE}", create=False)
    assert [study.study_name for study in by_url.get_all_studies()] == ["s"]


@pytest.mark.parametrize("url", ["nonsense://host/db", "postgresql://", "mysql+nodriver://u@h/d"])
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
    for opened in (partial(open_storage, create=False), open_to_read):
        with pytest.raises(InputError, match="no results; run `sweep` first"):
            opened(location.format(tmp_path))
    assert list(tmp_path.iterdir()) == []


PROCESSES = 4  # the last one only reads


def open_all_at_once(barrier: Barrier, said: Queue[str], places: list[Path], number: int) -> None:
    """In a process of its own: open each place together with the others, and add a study unless it is the reader."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    create = number < PROCESSES - 1
    for place in places:
        barrier.wait(60)
        try:
            storage = open_storage(place, create=create)
            if create:
                optuna.create_study(storage=storage, study_name=f"s{number}")
            said.put("writer ok" if create else f"reader sees {len(storage.get_all_studies()) <= PROCESSES - 1}")
        except InputError as error:
            said.put(f"{'writer' if create else 'reader'}: {str(error).removeprefix(str(place))}")


@pytest.mark.parametrize(("name", "rounds"), [("studies.db", 6), ("x.journal", 20)])
def test_processes_that_open_the_same_new_storage_at_once_all_succeed(tmp_path: Path, name: str, rounds: int) -> None:
    places = [tmp_path / str(number) / name for number in range(rounds)]
    context = multiprocessing.get_context("spawn")
    barrier, said = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(target=open_all_at_once, args=(barrier, said, places, number)) for number in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    heard = [said.get(timeout=60) for _ in range(PROCESSES * rounds)]
    for process in processes:
        process.join()
    assert heard.count("writer ok") == (PROCESSES - 1) * rounds, set(heard)
    reader = {line.partition(";")[0] for line in heard} - {"writer ok"}
    assert reader <= {"reader sees True", "reader: : no results", "reader: : no results yet"}
    for place in places:
        studies = open_storage(place, create=False).get_all_studies()
        assert sorted(study.study_name for study in studies) == ["s0", "s1", "s2"]


@pytest.mark.parametrize(
    "statements",
    [
        "",
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)",  # before its row is added
        "CREATE TABLE somebody_elses (number INTEGER)",
    ],
)
@pytest.mark.parametrize("location", ["{}", "{}/studies.db", "sqlite:///{}/studies.db"])
def test_a_reader_of_a_database_that_a_sweep_has_just_begun_says_so_and_writes_nothing(
    tmp_path: Path, statements: str, location: str
) -> None:
    file = tmp_path / STUDIES_FILE
    with sqlite3.connect(file) as connection:
        connection.execute(statements)
    connection.close()
    before = file.read_bytes()
    for opened in (partial(open_storage, create=False), open_to_read):
        with pytest.raises(InputError, match=r"studies\.db: no results yet; wait for the sweep") as caught:
            opened(location.format(tmp_path))
        assert "\n" not in str(caught.value)
    assert file.read_bytes() == before
    open_storage(tmp_path, create=True)  # the sweep goes on where it was
    assert open_storage(tmp_path, create=False).get_all_studies() == []


def test_the_memory_is_always_new() -> None:
    assert open_storage("sqlite://", create=False).get_all_studies() == []


RACES = [  # of the databases' own words
    OperationalError("CREATE TABLE studies", {}, Exception("table studies already exists")),
    OperationalError("INSERT", {}, Exception("database is locked")),
    IntegrityError("INSERT", {}, Exception("UNIQUE constraint failed: alembic_version.version_num")),
    ProgrammingError("CREATE TABLE studies", {}, Exception('relation "studies" already exists')),
    optuna.exceptions.StorageInternalError("An exception is raised during the commit."),
]


def opening(monkeypatch: pytest.MonkeyPatch, failures: list[Exception]) -> None:
    """Optuna fails so before it makes the tables."""

    def failing(*args: object, **kwargs: object) -> RDBStorage:
        if failures:
            raise failures.pop(0)
        return RDBStorage(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "RDBStorage", failing)
    monkeypatch.setattr(module, "CREATION_PAUSE_S", 0.0)


def test_tables_that_another_process_makes_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opening(monkeypatch, RACES * 3)
    optuna.create_study(storage=open_storage(tmp_path, create=True), study_name="s")
    assert [study.study_name for study in open_storage(tmp_path, create=False).get_all_studies()] == ["s"]


def test_tables_that_cannot_be_made_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = OperationalError("CREATE TABLE studies", {}, Exception("permission denied for schema public"))
    failures: list[Exception] = [refusal] * (CREATION_TRIES + 5)
    opening(monkeypatch, failures)
    with pytest.raises(InputError, match=r"not a storage that Optuna can open \(.*permission denied .*check --storage"):
        open_storage(tmp_path, create=True)
    assert len(failures) == 5


def test_a_database_that_keeps_its_writers_waiting_is_tried_no_longer_than_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[Exception] = [OperationalError("CREATE", {}, Exception("database is locked"))] * 5
    opening(monkeypatch, failures)
    monkeypatch.setattr(module, "BUSY_TIMEOUT_S", -1)  # the time is over at once
    with pytest.raises(InputError, match="database is locked"):
        open_storage("sqlite://", create=True)
    assert len(failures) == 4


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


def test_a_missing_driver_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(url: str, **options: object) -> None:
        raise ModuleNotFoundError("No module named 'psycopg'", name="psycopg")

    monkeypatch.setattr("search.results.storage.create_engine", absent)
    with pytest.raises(InputError, match=r"its driver psycopg is not installed: pip install 'mxfp4-tune\[postgres\]'"):
        open_storage("postgresql+psycopg://user:secret@host/db", create=False)
    with pytest.raises(InputError, match="No module named 'psycopg'"):
        open_storage("mysql://user@host/db", create=False)
