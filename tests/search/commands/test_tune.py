"""A sweep from Python, on a recorded sweep."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import search
from kernels.errors import InputError
from kernels.problem import GemmShape
from search.commands.tune import tune
from search.results.published import LEFT_OUT

RECORDED = Path(__file__).resolve().parents[3] / "results" / "recorded" / "sm_90-132cu-32x2880x512.parquet"


def test_tune_is_the_door_of_the_package() -> None:
    assert search.tune is tune
    with pytest.raises(AttributeError, match="has no attribute 'tun'"):
        search.tun  # noqa: B018


def test_shapes_in_every_trial_out_and_the_same_call_resumes(tmp_path: Path) -> None:
    asked = {"target": f"replay:{RECORDED}", "results": tmp_path, "sampler": "random"}
    frame = tune(GemmShape(32, 2880, 512), trials=5, **asked)  # type: ignore[arg-type]
    assert len(frame) == 5 and set(frame["shape"]) == {"32x2880x512"}
    assert frame.attrs["units"]["time_us"] == "us"
    again = tune("32x2880x512", trials=8, **asked)  # type: ignore[arg-type]
    assert len(again) == 8 and list(again["trial"][:5]) == list(frame["trial"])


def test_a_shape_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no shape"):
        tune("32x2880", results=tmp_path)
    with pytest.raises(InputError, match=r"\(32, 2880, 512\) is no shape; write 'MxNxK'"):
        tune([(32, 2880, 512)], results=tmp_path)  # type: ignore[list-item]


def test_without_shapes_or_trials_nothing_can_be_searched(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no shapes; give 'MxNxK'"):
        tune([], results=tmp_path)
    with pytest.raises(InputError, match="trials = 0 must be at least 1"):
        tune("32x2880x512", trials=0, results=tmp_path)


@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_place_is_not_the_current_folder(empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^start_from: no place of results: an empty variable\?"):
        tune("32x2880x512", start_from=empty)
    with pytest.raises(InputError, match=r"^results is empty: an empty variable\?"):
        tune("32x2880x512", results=empty)
    assert list(tmp_path.iterdir()) == []


def test_what_is_left_out_of_the_place_to_start_from_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = search.results.load(RECORDED).query("N != 2880")
    frame.attrs[LEFT_OUT] = ["fast.csv: 0 taken, 1 left out"]
    asked = {"target": f"replay:{RECORDED}", "results": tmp_path, "sampler": "random", "trials": 1}
    tune("32x2880x512", start_from=frame, **asked)  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert "note: fast.csv: 0 taken, 1 left out\n" in said
    assert "note: start_from has nothing for the N and K of these shapes\n" in said


def test_a_frame_without_a_column_of_results_to_start_from_is_refused(tmp_path: Path) -> None:
    frame = search.results.load(RECORDED)
    for lacking in ("arch", "M", "family", "outcome", "evidence", "predicted_us", "BLOCK_M"):
        with pytest.raises(InputError, match=rf"^start_from: a frame without {lacking}; give one"):
            tune("32x2880x512", start_from=frame.drop(columns=lacking), results=tmp_path)
    with pytest.raises(InputError, match=r"^start_from: a frame without study, trial, .* more; give one"):
        tune("32x2880x512", start_from=pd.DataFrame({"M": [1], "N": [64], "K": [64]}), results=tmp_path)


def test_a_place_of_results_to_start_from_is_read(tmp_path: Path) -> None:
    asked = {"target": f"replay:{RECORDED}", "results": tmp_path, "sampler": "random", "trials": 1}
    frame = tune("32x2880x512", start_from=RECORDED, **asked)  # type: ignore[arg-type]
    best = search.results.load(RECORDED).query("selected == True").iloc[0]
    names = ["family", "BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages"]
    assert frame[names].iloc[0].to_dict() == best[names].to_dict()
    with pytest.raises(InputError, match=r"^start_from: nothere"):
        tune("32x2880x512", start_from="nothere", **asked)  # type: ignore[arg-type]
