"""search.workers.main_guard: told from real scripts, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ASK = """\
import sys
from search.workers.main_guard import lacks_main_guard

def work():
    print(lacks_main_guard(sys._getframe()))

"""


def answer(*arguments: str, text: str | None = None) -> str:
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, input=text, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("call", "lacks"),
    [
        ("work()\n", True),
        ("for _ in range(1):\n    work()\n", True),
        ('if __name__ == "__main__":\n    work()\n', False),
        ('if "__main__" == __name__:\n    print(end="")\n    work()\n', False),
        ('if __name__ == "__main__":\n    print(end="")\nwork()\n', True),
    ],
)
def test_a_script_without_a_guard_is_told_from_one_with_one(tmp_path: Path, call: str, lacks: bool) -> None:
    script = tmp_path / "script.py"
    script.write_text(ASK + call)
    assert answer(str(script)) == str(lacks)


def test_what_is_no_script_needs_none() -> None:
    assert answer("-c", ASK + "work()\n") == "False"
    assert answer("-", text=ASK + "work()\n") == "False"


def test_tune_says_so_before_anything_is_judged(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import search\nsearch.tune('16x256x512', target='gfx950', trials=1, results='r')\n")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert "worker processes import this script" in done.stderr.splitlines()[-1]
    assert not (tmp_path / "r").exists()
