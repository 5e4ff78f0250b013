"""search.plots: one picture a shape and kind of time."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from result_rows import ATOMIC, failed, measured, predicted, results

from kernels.errors import InputError
from search.plots import plot

PNG = b"\x89PNG\r\n\x1a\n"


def test_predicted_and_measured_times_have_pictures_of_their_own(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    frame = results(
        predicted(9.0), predicted(8.0, **ATOMIC), measured(7.0), failed("crashed", M=1), predicted(3.0, M=32)
    )
    names = [path.name for path in plot(frame, tmp_path / "new")]
    assert names == [
        "gfx950-256cu-16x2112x7168-measured.png",
        "gfx950-256cu-16x2112x7168-predicted.png",
        "gfx950-256cu-32x2112x7168-predicted.png",
    ]
    assert all((tmp_path / "new" / name).read_bytes().startswith(PNG) for name in names)


def test_without_matplotlib_the_cure_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match="--plot needs matplotlib; pip install"):
        plot(results(predicted(9.0)), tmp_path)


def test_folder_that_cannot_be_made_is_an_input_error(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        plot(results(predicted(9.0)), tmp_path / "file")
