"""search.report.plots: one picture a shape and kind of time."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest
from result_rows import ATOMIC, failed, measured, predicted, results

from kernels.errors import InputError
from search.report.plots import draw, plot

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


@pytest.mark.parametrize("span", [1.0, 1.1, 3.4, 3.6, 29, 31, 1e6])
@pytest.mark.parametrize("least_us", [4.17, 111.0])
def test_axis_of_times_has_enough_numbers_and_none_on_top_of_another(least_us: float, span: float) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    times_us = pd.Series([least_us * span, least_us])
    figure = draw(pyplot, pd.Series(["fused", "other"]), times_us, "time, us")
    figure.canvas.draw()
    axes = figure.axes[0]
    low_us, high_us = axes.get_ylim()
    assert low_us < least_us and least_us * span < high_us
    ticks = [tick for tick in axes.yaxis.get_major_ticks() if low_us <= tick.get_loc() <= high_us]
    boxes = sorted((tick.label1.get_window_extent() for tick in ticks), key=lambda box: float(box.y0))
    assert 4 <= len(boxes) <= 14
    assert all(lower.y1 <= upper.y0 for lower, upper in pairwise(boxes))
    pyplot.close(figure)


@pytest.mark.parametrize("names", [1, 4, 9])
def test_legend_covers_no_point(names: int) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    families = pd.Series([f"fused_splitk_workspace_{i}" for i in range(names)])
    figure = draw(pyplot, families, pd.Series([4.0 + i for i in range(names)]), "time, us")
    figure.canvas.draw()
    (legend,) = figure.legends
    frame = legend.get_window_extent()
    assert not any(frame.overlaps(axes.get_tightbbox()) for axes in figure.axes)
    assert frame.x0 >= 0 and frame.x1 <= figure.bbox.x1
    pyplot.close(figure)


def test_a_flat_line_says_that_the_first_time_was_the_best() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    labels = []
    for times_us in ([4.0, 5.0, 6.0], [5.0, 4.0, 6.0]):
        figure = draw(pyplot, pd.Series(["fused"] * 3), pd.Series(times_us), "time, us")
        labels.append(figure.axes[0].get_xlabel())
        pyplot.close(figure)
    assert labels == ["trials in order: the first with a time is the best of 3", "trials in order"]
