"""search.report.progress: what a sweep says on a terminal and into a pipe."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from kernels.device import GFX950
from kernels.problem import GemmShape
from search.report.progress import TerminalReporter
from search.study.study import Progress


def test_a_long_note_stays_one_line_in_a_pipe() -> None:
    written = io.StringIO()
    text = "staged_ck is left out: neither is installed: set MXFP4_AITER to an install [or] an unpacked wheel of it"
    TerminalReporter(Console(file=written, width=80)).note(text)
    assert written.getvalue() == f"note: {text}\n"


def test_a_second_sweep_says_what_it_is_for_and_repeats_no_heading_and_no_note() -> None:
    written = io.StringIO()
    with TerminalReporter(Console(file=written, width=80), "once more") as reporter:
        for shapes in (2, 1):
            reporter.start(GFX950, "offline", shapes)
            reporter.note("staged_ck is left out")
            reporter.study_done(Progress(GemmShape(1, 64, 64), 0, 9, None, "", {}))
    assert written.getvalue().splitlines() == [
        "2 shapes for gfx950-256cu, judged by offline",
        "note: staged_ck is left out",
        "[1/2] 1x64x64: no winner yet, 0 trials (none new)",
        "once more: 1 shape",
        "[1/1] 1x64x64: no winner yet, 0 trials (none new)",
    ]


@pytest.mark.parametrize(
    ("protocol", "word"), [("cold-graph-v1@simulated", "simulated"), ("cold-graph-v1@MI355X-SPX", "measured")]
)
def test_times_of_a_simulated_gpu_are_called_so(protocol: str, word: str) -> None:
    written = io.StringIO()
    with TerminalReporter(Console(file=written, width=80)) as reporter:
        reporter.start(GFX950, protocol, 1)
        reporter.study_done(Progress(GemmShape(1, 64, 64), 9, 9, 1.5, "measured", {"ok": 9}))
    assert written.getvalue().splitlines()[-1].startswith(f"[1/1] 1x64x64: best 1.50 us {word}, 9 trials")


def test_a_search_without_a_trial_has_no_outcomes_to_name() -> None:
    written = io.StringIO()
    TerminalReporter(Console(file=written, width=80)).study_done(Progress(GemmShape(1, 64, 64), 0, 9, None, "", {}))
    assert written.getvalue() == "[1/0] 1x64x64: no winner yet, 0 trials (none new)\n"


def test_shapes_that_are_searched_at_once_each_have_their_own_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    written = io.StringIO()
    first, second = GemmShape(1, 64, 64), GemmShape(2, 64, 64)
    with TerminalReporter(Console(file=written, width=80)) as reporter:
        for shape, done in ((first, 3), (second, 0), (first, 4), (second, 1), (first, 5)):
            reporter.progress(Progress(shape, done, 9, 1.5, "predicted", {"ok": done}))
        reporter.study_done(Progress(first, 5, 9, 1.5, "predicted", {"ok": 5}))
        reporter.study_done(Progress(second, 2, 9, 1.5, "predicted", {"ok": 2}))
    lines = written.getvalue().splitlines()
    assert [line.partition(" (")[2].partition(" in ")[0] for line in lines] == ["2 new", "2 new"]
    seconds = [int(line.partition(" in ")[2].partition(" s")[0]) for line in lines]
    assert min(seconds) >= 3  # of a clock that moves at least once a call
