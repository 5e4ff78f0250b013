"""search.report.progress: what a sweep says on a terminal and into a pipe."""

from __future__ import annotations

import io

from rich.console import Console

from kernels.problem import GemmShape
from search.report.progress import TerminalReporter
from search.study.study import Progress


def test_a_long_note_stays_one_line_in_a_pipe() -> None:
    written = io.StringIO()
    text = "staged_ck is left out: neither is installed: set MXFP4_AITER to an install [or] an unpacked wheel of it"
    TerminalReporter(Console(file=written, width=80)).note(text)
    assert written.getvalue() == f"note: {text}\n"


def test_a_search_without_a_trial_has_no_outcomes_to_name() -> None:
    written = io.StringIO()
    TerminalReporter(Console(file=written, width=80)).study_done(Progress(GemmShape(1, 64, 64), 0, 9, None, "", {}))
    assert written.getvalue() == "[1/0] 1x64x64: no winner yet, 0 trials (none new)\n"
