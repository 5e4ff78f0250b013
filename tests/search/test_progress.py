"""search.progress: what a sweep says on a terminal and into a pipe."""

from __future__ import annotations

import io

from rich.console import Console

from search.progress import TerminalReporter


def test_a_long_note_stays_one_line_in_a_pipe() -> None:
    written = io.StringIO()
    text = "staged_ck is left out: neither is installed: set MXFP4_AITER to an install [or] an unpacked wheel of it"
    TerminalReporter(Console(file=written, width=80)).note(text)
    assert written.getvalue() == f"note: {text}\n"
