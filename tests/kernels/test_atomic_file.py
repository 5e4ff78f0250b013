"""kernels.disk: the old file or the new one, never a mixture."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from signal import Signals

import pytest

from kernels.disk import replace_file, write_atomically
from kernels.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


def test_replaces_the_content_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_disk_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def record(name: str, call: Callable[..., None]) -> Callable[..., None]:
        def recorded(*args: object) -> None:
            events.append(name)
            call(*args)

        return recorded

    monkeypatch.setattr(os, "fsync", record("fsync", os.fsync))
    monkeypatch.setattr(os, "replace", record("rename", os.replace))
    write_atomically(tmp_path / "file", b"x")
    assert events == ["fsync", "rename", "fsync"]  # the last one is the folder's


def test_keeps_permissions_and_follows_a_link(tmp_path: Path) -> None:
    path, link = tmp_path / "file", tmp_path / "link"
    path.write_bytes(b"old")
    path.chmod(0o640)
    link.symlink_to(path)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)


def test_missing_folder_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_atomically(tmp_path / "none" / "file", b"x")


def test_a_circle_of_links_is_an_input_error(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    with pytest.raises(InputError, match="link: cannot be written"):
        write_atomically(link, b"x")
    assert list(tmp_path.iterdir()) == [link] and link.is_symlink()


def test_only_a_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)  # as /dev/null, which root may replace
    with pytest.raises(InputError, match=r"pipe: cannot be written .it is not a regular file"):
        write_atomically(path, b"x")
    assert list(tmp_path.iterdir()) == [path] and path.is_fifo()


@pytest.mark.parametrize("dying", ["os.fchmod", "os.fsync", "os.replace", "os.open"])
@pytest.mark.parametrize("signal", ["SIGKILL", "SIGINT"])
def test_whenever_the_writer_dies_the_file_is_whole(tmp_path: Path, dying: str, signal: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    code = (
        "import os, signal, sys; from pathlib import Path; from kernels.disk import write_atomically\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it\n"
        f"{dying} = lambda *_: os.kill(os.getpid(), signal.{signal})\n"
        "write_atomically(Path(sys.argv[1]), b'new' * 100000)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == -Signals[signal]
    assert path.read_bytes() == (b"new" * 100000 if dying == "os.open" else b"old")  # that is of the folder, to sync it
    assert signal == "SIGKILL" or list(tmp_path.iterdir()) == [path]


def test_what_a_user_names_is_written_in_one_step_everywhere() -> None:
    direct = re.compile(r"\.write_(text|bytes)\(|savefig\((?!whole)|\.to_(csv|parquet)\(|open\([^)]*[\"'][wx]b?[\"']")
    assert [path for path in (ROOT / "search").rglob("*.py") if direct.search(path.read_text())] == []


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, full)
    with pytest.raises(OSError, match="No space left on device"):
        replace_file(path, b"new")
    with pytest.raises(InputError, match="No space left on device"):
        write_atomically(path, b"new")
    assert (list(tmp_path.iterdir()), path.read_bytes()) == ([path], b"old")


def test_links_are_followed_in_one_place() -> None:
    """``Path.resolve`` fails with a RuntimeError at a circle of links, before Python 3.13."""
    named = re.compile(r"(?<![)\]])(?<!config)\.resolve\(\)")  # of a name; module files and config.json are there
    rooms = (ROOT / "kernels", ROOT / "search")
    assert [path for room in rooms for path in room.rglob("*.py") if named.search(path.read_text())] == []
