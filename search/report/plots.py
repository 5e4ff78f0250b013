"""Pictures of the results: how each search went, and how the families compare. Needs matplotlib."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.device import DeviceKey
from kernels.disk import real_path, replace_file
from kernels.errors import InputError
from kernels.problem import GemmShape
from search.report.closing import compact
from search.results.columns import rows_of
from search.results.winners import Winner, shapes_of, winners

DOTS_PER_INCH = 120
WINNER_WIDTH = 110  # characters of the line that names the winner
NARROW = 3.5  # below this ratio of the largest time to the least, the numbers of the axis are evenly spaced
LOG_TICKS = ((30, (1, 1.5, 2, 3, 4, 6, 8)), (10000, (1, 2, 5)))  # else these of each decade, below these ratios


def plot(frame: pd.DataFrame, folder: Path) -> list[Path]:
    """Write one PNG for each (device, shape) that has an ``ok`` trial; their paths.

    Left: time of each trial in the order of the search, with the best so far. Right: times by family. The axes say
    whether times were predicted or measured; where a shape has both, each kind has a picture of its own.

    Raises:
        InputError: No matplotlib, or a folder that cannot be written.
    """
    plt = pyplot("--plot")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [path for device, shape in shapes_of(frame) for path in _plot_shape(plt, frame, device, shape, folder)]
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror}); name another folder with --plot") from error


def pyplot(option: str) -> Any:
    """Matplotlib's drawing functions for files, which ``option`` of the command line needs.

    Raises:
        InputError: No matplotlib.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise InputError(f"{option} needs matplotlib; pip install matplotlib") from error
    matplotlib.use("Agg")  # files only: no display is needed
    from matplotlib import pyplot as plt

    return plt


def _plot_shape(plt: Any, frame: pd.DataFrame, device: DeviceKey, shape: GemmShape, folder: Path) -> list[Path]:
    rows = rows_of(frame, device, shape).sort_values(["started", "trial"], kind="stable")
    ok = (rows["outcome"] == "ok").fillna(False)
    written = []
    for kind, column in (("measured", "time_us"), ("predicted", "predicted_us")):
        timed = ok & (rows["evidence"] == kind).fillna(False)
        if timed.any():
            path = folder / f"{device}-{shape}-{kind}.png"
            shown = rows[timed | ~ok]
            times_us = shown[column].where(ok[shown.index]).astype("Float64").astype(float)
            figure = draw(plt, shown["family"].astype(str), times_us, f"{kind} time, us")
            named = textwrap.fill(_winning(rows, kind), WINNER_WIDTH)
            figure.suptitle(f"{device}  {shape}\n{named}".rstrip(), fontsize="medium")
            save_figure(plt, figure, path)
            written.append(path)
    return written


def save_figure(plt: Any, figure: Any, path: Path) -> None:
    """Write ``figure`` as PNG in one step, and close it.

    Raises:
        OSError: The folder is missing, full, or cannot be written.
    """
    whole = io.BytesIO()
    figure.savefig(whole, format="png", dpi=DOTS_PER_INCH)
    plt.close(figure)
    replace_file(real_path(path), whole.getvalue())


def _winning(rows: pd.DataFrame, kind: str) -> str:
    """The winner of a shape in a few words; "" where it has another kind of time, or there is none."""
    found = [winner for winner in winners(rows) if winner.evidence == kind]
    return "".join(f"{one.family}: {compact(one.config)}, {one.cost_us:.4g} us{_equals(one)}" for one in found)


def _equals(winner: Winner) -> str:
    """Among how many the winner was chosen, so that it may be above the least time."""
    alike = "within the noise" if winner.evidence == "measured" else "that the model cannot tell apart"
    return f", one of {len(winner.equals)} {alike}" if len(winner.equals) > 1 else ""


def draw(plt: Any, families: pd.Series[str], times_us: pd.Series[float], label: str) -> Any:
    """Figure of one search.

    Args:
        families: Family of each trial, in the order of the search.
        times_us: Their times; NaN of a trial that failed or was stopped.
    """
    figure, (search, compare) = plt.subplots(1, 2, figsize=(11, 5), sharey=True, layout="constrained")
    timed = times_us.dropna()
    times_of = {name: timed[families[timed.index] == name] for name in sorted(families[timed.index].unique())}
    colours = {name: f"C{i % 10}" for i, name in enumerate(times_of)}
    _course(search, times_us, times_of, colours)
    search.set(ylabel=label)
    _boxes(compare, times_of, colours)
    _time_axis(search, float(timed.min()), float(timed.max()))
    for axes in (search, compare):
        axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=min(4, len(times_of) + 2), fontsize="small")
    return figure


def _course(
    axes: Any, times_us: pd.Series[float], times_of: Mapping[str, pd.Series[float]], colours: Mapping[str, str]
) -> None:
    """Each trial at its place, and the best so far."""
    numbers = pd.Series(range(1, len(times_us) + 1), index=times_us.index)
    timed, untimed = times_us.dropna(), times_us.index[times_us.isna()]
    for name, mine in times_of.items():
        axes.scatter(numbers[mine.index], mine, s=10, color=colours[name], label=name)
    if len(untimed):
        top_us = [timed.max()] * len(untimed)
        axes.scatter(numbers[untimed], top_us, s=14, marker="x", color="0.6", label="failed or stopped")
    axes.step(numbers[timed.index], timed.cummin(), where="post", color="black", linewidth=1, label="best so far")
    axes.axhline(timed.min(), color="0.5", linewidth=0.6, linestyle=":")
    beside = ("axes fraction", "data")
    best = f"{timed.min():.4g}"
    axes.annotate(best, (1, timed.min()), (3, 0), beside, "offset points", va="center", fontsize="small")
    edge = 0.5 + 0.02 * len(times_us)
    axes.set(xlabel=_order(timed, len(times_us)), xlim=(1 - edge, len(times_us) + edge))
    axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)


def _order(timed: pd.Series[float], trials: int) -> str:
    """Label of the trials: where the line of the best so far is flat, why."""
    flat = trials > 1 and timed.iloc[0] == timed.min()
    return f"trials in order: the first with a time is the best of {trials}" if flat else "trials in order"


def _boxes(axes: Any, times_us: Mapping[str, pd.Series[float]], colours: Mapping[str, str]) -> None:
    """A box a family in the colour of its points, with the number of trials behind it."""
    drawn = axes.boxplot([times.to_numpy() for times in times_us.values()], patch_artist=True, showfliers=False)
    for box, median, name in zip(drawn["boxes"], drawn["medians"], times_us, strict=True):
        box.set(facecolor=colours[name], alpha=0.4)
        median.set(color="black")
    for place, (name, times) in enumerate(times_us.items(), 1):
        axes.scatter([place] * len(times), times, s=10, color=colours[name], zorder=3)
    labels = [f"{name} ({len(times)})" for name, times in times_us.items()]
    axes.set_xticks(range(1, len(labels) + 1), labels, rotation=20, ha="right", fontsize="small")


def _time_axis(axes: Any, least_us: float, most_us: float) -> None:
    """A logarithmic axis of times with about five to a dozen numbers, however narrow or wide it is."""
    from matplotlib import ticker

    span = most_us / least_us
    subs = next((subs for most, subs in LOG_TICKS if span < most), (1.0,))
    even = ticker.MaxNLocator(nbins=12, steps=[1, 2, 2.5, 5, 10])
    axes.set(yscale="log", ylim=(least_us / span**0.05 / 1.01, most_us * span**0.05 * 1.01))
    axes.yaxis.set_major_locator(even if span < NARROW else ticker.LogLocator(subs=subs, numticks=99))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(ticker.NullLocator())
