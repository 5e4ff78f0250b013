"""search.workers.compiler_output: nothing reaches the terminal, and the line that matters is found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from search.workers.compiler_output import captured_stderr, diagnostic_line, written

PIPELINE = "k.py:13:0: error: Failures have been detected while processing an MLIR pass pipeline\n"


@pytest.mark.parametrize(
    "text, line",
    [
        ("k.py:3:1: error: operand #1 is unknown\n" + PIPELINE, "operand #1 is unknown"),
        ("python3: Fp4.cpp:104: match(): Assertion `ok' failed.\n" + PIPELINE, "Assertion `ok' failed."),
        (PIPELINE, "Failures have been detected while processing an MLIR pass pipeline"),
        ("LLVM ERROR: ran out of registers\n", "LLVM ERROR: ran out of registers"),
        ("warning: this is fine\n", ""),
    ],
)
def test_the_most_telling_line_is_chosen(text: str, line: str) -> None:
    assert diagnostic_line(text) == line


def test_what_native_code_writes_is_captured_and_the_stream_comes_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with captured_stderr(tmp_path / "log") as stream:
        os.write(2, b"from below Python\n")
        assert written(stream) == "from below Python\n"
    os.write(2, b"afterwards\n")
    assert capfd.readouterr().err == "afterwards\n"
    assert (tmp_path / "log").read_text() == "from below Python\n"
