"""setup_venv.sh: what a link leads to is not emptied."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "setup_venv.sh"


@pytest.mark.parametrize("slash", ["", "/"])
def test_a_symbolic_link_is_refused_in_one_line_and_its_target_kept(tmp_path: Path, slash: str) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.mkdir()
    (target / "mine").touch()
    link.symlink_to(target)
    done = subprocess.run(
        ["sh", str(SCRIPT), sys.executable, f"{link}{slash}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == f"error: {link}{slash} is a symbolic link; remove it, or name another folder with VENV=...\n"
    assert (target / "mine").exists() and list(target.iterdir()) == [target / "mine"]
