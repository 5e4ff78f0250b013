"""search.results.unfinished: a search that was cut short is told from one that ran to its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from replayed_rows import replayed
from result_rows import failed, measured, predicted, results

from kernels.problem import GemmShape
from search.results.unfinished import unfinished, unfinished_line

Trial = dict[str, Any]


def searched(count: int, wanted: int | None, first: int = 0) -> list[Trial]:
    return [predicted(9.0, trial=first + i, trials_wanted=wanted) for i in range(count)]


def timed(count: int, **changes: Any) -> list[Trial]:
    return [measured(9.0, trial=i, trials_wanted=count, **changes) for i in range(count)]


def final(trial: int, selected: bool) -> Trial:
    return measured(9.0, trial=trial, trials_wanted=2, selected=selected)


@pytest.mark.parametrize(
    ("trials", "lack"),
    [
        (searched(4, wanted=4), ""),
        (searched(3, wanted=4), "3 of 4 trials"),
        ([predicted(9.0, trial=0, trials_wanted=3), failed("crashed", trial=1, trials_wanted=3)], "2 of 3 trials"),
        (searched(4, 4) + searched(1, 96, first=4), "5 of 96 trials"),  # extended, and the extension cut short
        (searched(3, 96) + searched(1, 4, first=3), ""),  # the last run asked for less, and got it
        (searched(3, wanted=None), ""),  # of a version that did not record it
        (timed(2), "no finals"),
        ([*timed(2), final(2, False)], "no finals"),  # cut short before the winner was kept
        ([*timed(2), final(2, True), final(3, False)], ""),
        ([*timed(2)[:1], final(2, True), measured(9.0, trial=3, trials_wanted=2)], "no finals"),  # none since
        (timed(3)[:2], "2 of 3 trials"),
        ([*searched(2, 9), predicted(9.0, trial=2, trials_wanted=9, settled=True)], ""),
        ([predicted(9.0, trial=0, trials_wanted=1, settled=True), *searched(1, 9, first=1)], "2 of 9 trials"),
    ],
)
def test_what_a_study_lacks(trials: list[Trial], lack: str) -> None:
    expected = {"study": lack} if lack else {}
    assert unfinished(results(*trials), ["study"]) == expected
    assert unfinished(results(*reversed(trials)), ["study"]) == expected  # the order of the rows says nothing


def test_a_replay_that_reached_its_trials_lacks_nothing(tmp_path: Path) -> None:
    frame = replayed(tmp_path, *timed(1), measured(8.0, trial=1, num_warps=8))
    assert set(frame["protocol"]) == {"cold-v1"}  # as it was recorded
    assert unfinished(frame, frame["study"]) == {}
    assert unfinished(frame.assign(trials_wanted=3), frame["study"]) == {frame["study"][0]: "2 of 3 trials"}


def test_only_the_studies_that_are_asked_for_are_judged() -> None:
    frame = results(predicted(9.0, study="a", trials_wanted=3), predicted(9.0, study="b", trials_wanted=2))
    assert unfinished(frame, ["b", "unknown"]) == {"b": "1 of 2 trials"}
    assert unfinished(results(), ["b"]) == {}


def test_the_line_names_each_shape_and_the_cure() -> None:
    lacks = {GemmShape(16, 2112, 7168): "3 of 96 trials", GemmShape(4, 2880, 512): "no finals"}
    line = "unfinished: 16x2112x7168 (3 of 96 trials), 4x2880x512 (no finals); the same sweep goes on"
    assert unfinished_line(lacks) == line


def test_a_line_names_the_first_shapes_and_counts_the_rest() -> None:
    lacks = {GemmShape(M, 64, 64): "1 of 9 trials" for M in range(1, 13)}
    line = unfinished_line(lacks)
    assert line.count("1 of 9 trials") == 10
    assert line.endswith("10x64x64 (1 of 9 trials) and 2 more; the same sweep goes on")
