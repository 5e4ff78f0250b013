"""search.commands.timeline: which trial is drawn, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from result_rows import failed, measured, predicted, results

from kernels.errors import CompileError, InputError
from kernels.families.fused import TileConfig
from search.commands import timeline as command
from search.commands.timeline import timeline
from search.evaluation import Candidate
from search.results.winners import winners

TIED = (predicted(8.0, num_warps=8), predicted(8.2, predicted_tie=0.05), predicted(9.0, num_warps=2))
ELSEWHERE = {"arch": "sm_90", "cu_count": 132}


def drawn(frame: pd.DataFrame, trial: str, monkeypatch: pytest.MonkeyPatch) -> Candidate:
    """The candidate that would be executed."""
    asked = []

    def execute(candidate: Candidate, *_: object) -> None:
        asked.append(candidate)
        raise CompileError("not here")

    monkeypatch.setattr(command, "execute_candidate", execute)
    with pytest.raises(InputError, match=r"not here; choose a trial whose outcome is ok"):
        timeline(frame, trial, None)
    return asked[0]


@pytest.mark.parametrize(
    ("trials", "warps"),
    [
        ((predicted(8.0, num_warps=8, predicted_tie=0.05), *TIED[1:]), 4),  # more knobs at their defaults
        ((predicted(8.0, num_warps=8, predicted_tie=0.01), *TIED[1:]), 8),  # told apart
        ((*TIED, measured(30.0, num_warps=2)), 2),
        ((measured(30.0, num_warps=2), measured(31.0, num_warps=8, selected=True)), 8),  # of the finals
        ((failed("slow", num_warps=1), *TIED[1:]), 4),
        ((measured(1.0, num_warps=8, **ELSEWHERE), *TIED[1:]), 4),  # no model there
    ],
)
def test_of_a_shape_its_winner_is_drawn(
    trials: tuple[dict[str, object], ...], warps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = results(*trials)  # type: ignore[arg-type]
    candidate = drawn(frame, "16x2112x7168", monkeypatch)
    assert candidate.config == TileConfig(num_warps=warps)
    assert candidate.config in [one.config for one in winners(frame) if one.device.arch == "gfx950"]


def test_a_row_is_counted_among_those_that_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(results(*TIED), "2", monkeypatch).config == TileConfig(num_warps=2)
    with pytest.raises(InputError, match=r"--timeline 3: the results have rows 0 to 2"):
        timeline(results(*TIED), "3", None)


def test_where_no_row_is_shown_none_is_counted() -> None:
    with pytest.raises(InputError, match=r"--timeline 0: there are no rows; sweep first, or choose some with --query"):
        timeline(results(*TIED).iloc[:0], "0", None)


def test_a_shape_without_a_winner_is_named() -> None:
    with pytest.raises(InputError, match=r"--timeline 16x2112x7168: the results have no winner for that shape"):
        timeline(results(failed("crashed")), "16x2112x7168", None)


def test_what_is_drawn_is_said_and_lies_where_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    small = {"M": 16, "N": 128, "K": 256}
    lines, paths = timeline(results(predicted(4.0, **small), predicted(4.0, num_warps=8, **small)), "16x128x256", None)
    assert lines[0] == "row 0: the winner of 16x128x256, one of 2 that cannot be told apart"
    assert lines[-1].startswith("alone, in us: launch 2.")
    assert [str(path) for path in paths] == ["timeline-16x128x256-0.png", "timeline-16x128x256-0.json"]
    assert json.loads(paths[1].read_text())["traceEvents"]


def test_a_row_of_a_file_that_names_no_trials_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    frame = results(predicted(4.0, M=16, N=128, K=256)).assign(trial=pd.NA)
    assert timeline(frame, "0", tmp_path / "x")[0][0] == "row 0: of no study"
