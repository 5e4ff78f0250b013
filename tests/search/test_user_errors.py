"""search.terminal: a program ends on a user's mistake with one line and exit code 2, and so does every benchmark."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from required import required_gpu

from kernels.errors import InputError
from search.terminal import one_line_errors

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted(path for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text())


def test_a_mistake_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise InputError("file.yaml:\n  no such file")
    assert ended.value.code == 2
    assert capsys.readouterr() == ("", "error: file.yaml: no such file\n")


def test_what_would_steer_a_terminal_is_written_out(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), one_line_errors():
        raise InputError("table\x1b]0;t\a: the bell \u202e\u2028, caf\u00e9 and \u732b")
    assert capsys.readouterr().err == "error: table\\x1b]0;t\\x07: the bell \\u202e , caf\u00e9 and \u732b\n"


@pytest.mark.parametrize(
    ("kept", "said"), [((), "interrupted\n"), (("nothing is written",), "interrupted; nothing is written\n")]
)
def test_ctrl_c_is_one_line_and_exit_code_130(
    kept: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, one_line_errors():
        raise KeyboardInterrupt(*kept)
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", said)


def test_an_output_that_is_full_is_one_line() -> None:
    code = "from search.terminal import one_line_errors\nwith one_line_errors():\n    print('x' * 100000)"
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        "error: the output cannot be written (No space left on device); send it elsewhere\n",
    )


def test_a_closed_output_is_no_mistake() -> None:
    code = "from search.terminal import one_line_errors\nwith one_line_errors():\n    print('x')"
    done = subprocess.run(["sh", "-c", '"$0" -c "$1" >&-', sys.executable, code], cwd=ROOT, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ValueError, match="a bug"), one_line_errors():
        raise ValueError("a bug")


def test_a_missing_gpu_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="torch finds no GPU here; run this on a machine that has one"):
        required_gpu()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_benchmark_finds_the_project_from_any_folder(path: Path) -> None:
    lines = path.read_text().splitlines()
    ours = [i for i, line in enumerate(lines) if re.match(r"from (kernels|search)\b", line)]
    assert lines.index("sys.path.insert(0, str(Path(__file__).resolve().parent.parent))") < min(ours)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_benchmark_answers_mistakes_so(path: Path) -> None:
    main = ast.parse(path.read_text()).body[-1]
    assert isinstance(main, ast.If) and isinstance(main.body[0], ast.With)
    assert ast.unparse(main.body[0].items[0]) == "one_line_errors()"


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("gate_campaign", ["--shapes", "none.yaml"], "none.yaml: no such file"),
        ("model_against_aiter", ["none.csv"], "none.csv: cannot be read as CSV"),
        ("model_against_aiter", [str(ROOT / "pyproject.toml")], "pyproject.toml: "),
        ("offline_throughput", ["--jobs", "1,x"], "--jobs '1,x': write numbers"),
    ],
)
def test_a_benchmark_asked_for_nonsense_says_so_in_one_line(
    tmp_path: Path, script: str, arguments: list[str], message: str
) -> None:
    bare = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / f"{script}.py"), *arguments],
        cwd=tmp_path, env=bare, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, ""), done.stderr[-500:]
    assert done.stderr.startswith("error: ") and message in done.stderr and done.stderr.count("\n") == 1
