"""kernels.disk: where compiled kernels are kept, and where if that cannot be written."""

from __future__ import annotations

import logging
import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from kernels.disk import default_cache, writable_cache
from kernels.errors import InputError

NOTE = "compiled kernels cannot be kept there"


@pytest.fixture
def closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that cannot be made, for root neither; temporary files go to a folder of the test."""
    (tmp_path / "file").write_text("")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "file" / "cache"


def stand_in() -> Path:
    return Path(tempfile.gettempdir()) / f"mxfp4-tune-cache-{os.getuid()}"


def test_the_variable_names_the_base_and_home_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache() == Path("/somewhere/mxfp4-tune")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/user")
    assert default_cache() == Path("/home/user/.cache/mxfp4-tune")


def test_a_folder_that_can_be_written_is_made_and_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert writable_cache(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert list((tmp_path / "a" / "b").iterdir()) == []
    assert caplog.records == []


def test_one_folder_stands_in_for_those_that_cannot_and_one_line_each_says_so(
    closed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        assert writable_cache(closed) == stand_in()
    assert writable_cache(closed / "hip") == stand_in()
    assert stand_in().stat().st_mode & 0o777 == 0o700
    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(": ")[0] for line in lines] == [str(closed), str(closed / "hip")]
    assert all(NOTE in line and f"{stand_in()} serves instead" in line for line in lines)


def levels(folder: Path, temporary: Path) -> list[int]:
    """In a process of its own: levels of what is logged."""
    tempfile.tempdir = str(temporary)
    seen: list[int] = []
    logger = logging.getLogger("kernels.disk")
    logger.setLevel(logging.INFO)
    logger.addFilter(lambda record: seen.append(record.levelno) or True)  # type: ignore[func-returns-value]
    writable_cache(folder)
    return seen


def test_a_worker_leaves_the_line_to_its_parent(closed: Path) -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(levels, closed, Path(tempfile.gettempdir())).result(timeout=60) == [logging.INFO]


@pytest.mark.parametrize("how", ["open to others", "a link", "a file"])
def test_a_folder_into_which_others_may_put_kernels_does_not_stand_in(closed: Path, how: str) -> None:
    if how == "open to others":
        stand_in().mkdir()
        stand_in().chmod(0o777)
    elif how == "a link":
        (closed.parent.parent / "elsewhere").mkdir(mode=0o700)
        stand_in().symlink_to(closed.parent.parent / "elsewhere")
    else:
        stand_in().write_text("")
    with pytest.raises(InputError, match=f"^{closed}: {NOTE} .*, nor in a temporary folder .*; set XDG_CACHE_HOME"):
        writable_cache(closed)
