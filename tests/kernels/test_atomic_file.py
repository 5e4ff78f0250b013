"""kernels.disk: the old file or the new one, never a mixture."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kernels.disk import replace_file, write_atomically
from kernels.errors import InputError


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
