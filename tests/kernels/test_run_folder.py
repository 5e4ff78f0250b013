"""kernels.disk: what a killed process left is removed, what a living one uses is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernels.disk import PREFIX, RunFolder
from kernels.errors import InputError

ROOT = Path(__file__).resolve().parents[2]
OTHER = """
import sys, time
from kernels.errors import InputError
from kernels.disk import RunFolder
folder = RunFolder()
(folder.path / "0").mkdir()
(folder.path / "0" / "log").write_text("x")
print(folder.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@contextmanager
def other_process(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that uses a folder, made long ago."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
    )  # fmt: skip
    assert process.stdout is not None
    with process:
        try:
            folder = Path(process.stdout.readline().strip())
            aged(folder)
            yield process, folder
        finally:
            process.kill()


def aged(folder: Path) -> None:
    os.utime(folder, (0, 0))


def start_another() -> None:
    RunFolder().close()


def test_a_folder_lives_until_it_is_closed(temporary: Path) -> None:
    folder = RunFolder()
    (folder.path / "file").write_text("x")
    assert folder.path.parent == temporary and folder.path.name.startswith(PREFIX)
    folder.close()
    folder.close()
    assert list(temporary.iterdir()) == []


def test_the_folder_of_a_killed_process_is_removed_by_the_next(temporary: Path) -> None:
    with other_process(temporary) as (process, folder):
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (folder / "0" / "log").exists()
        start_another()
        assert not folder.exists()


def test_the_folder_of_a_living_process_stays(temporary: Path) -> None:
    mine = RunFolder()
    aged(mine.path)
    with other_process(temporary) as (_, folder):
        start_another()
        assert (folder / "0" / "log").exists()
    assert mine.path.exists()
    mine.close()


def test_a_child_does_not_keep_the_folder_of_its_parent(temporary: Path) -> None:
    script = OTHER.replace("sys.stdin.read()", "import subprocess; subprocess.Popen(['sleep', '20'], stdout=2)")
    script += "import os; print(folder.path, flush=True); os._exit(1)"
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
    )  # fmt: skip
    folder = Path(done.stdout.split()[0])
    aged(folder)
    start_another()
    assert not folder.exists()


def test_what_is_young_or_named_otherwise_or_a_link_stays(temporary: Path) -> None:
    kept = temporary / "elsewhere"
    for folder in (temporary / f"{PREFIX}young", temporary / "mxfp4-tune-cubins-x", kept):
        folder.mkdir()
    (temporary / f"{PREFIX}link").symlink_to(kept)
    (temporary / f"{PREFIX}file").write_text("x")
    for path in temporary.iterdir():
        if not path.name.endswith("young"):
            os.utime(path, (0, 0), follow_symlinks=False)
    before = sorted(temporary.iterdir())
    start_another()
    assert sorted(temporary.iterdir()) == before


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes another user's folder")
def test_the_folder_of_another_user_stays(temporary: Path) -> None:
    folder = temporary / f"{PREFIX}other"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    aged(folder)
    start_another()
    assert folder.exists()


def test_where_no_folder_can_be_made_one_line_says_where_and_what_to_do(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = temporary / "gone"
    monkeypatch.setattr(tempfile, "tempdir", str(gone))
    with pytest.raises(InputError, match=rf"{gone}/.*: No such file or directory; .* TMPDIR"):
        RunFolder()
