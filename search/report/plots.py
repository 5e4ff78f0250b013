"""Pictures of the results: how each search went, and how the families compare. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.problem import GemmShape
from search.results.winners import shapes_of

DOTS_PER_INCH = 120
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
    key = {"arch": device.arch, "cu_count": device.cu_count, "M": shape.M, "N": shape.N, "K": shape.K, "outcome": "ok"}
    rows = frame
    for name, value in key.items():
        rows = rows[(rows[name] == value).fillna(False)]
    rows = rows.sort_values(["started", "trial"], kind="stable")
    written = []
    for kind, column in (("measured", "time_us"), ("predicted", "predicted_us")):
        part = rows[(rows["evidence"] == kind).fillna(False)]
        if len(part):
            path = folder / f"{device}-{shape}-{kind}.png"
            figure = draw(plt, part["family"].astype(str), part[column].astype(float), f"{kind} time, us")
            figure.suptitle(f"{device}  {shape}")
            figure.savefig(path, dpi=DOTS_PER_INCH)
            plt.close(figure)
            written.append(path)
    return written


def draw(plt: Any, families: pd.Series[str], times_us: pd.Series[float], label: str) -> Any:
    """Figure of one search.

    Args:
        plt: ``matplotlib.pyplot``.
        families: Family of each trial, in the order of the search.
        label: Of the axis of times.
    """
    figure, (search, compare) = plt.subplots(1, 2, figsize=(11, 5), sharey=True, layout="constrained")
    numbers = pd.Series(range(1, len(times_us) + 1), index=times_us.index)
    names = sorted(families.unique())
    for name in names:
        mine = families == name
        search.scatter(numbers[mine], times_us[mine], s=10, label=name)
    edge = 0.5 + 0.02 * len(times_us)
    search.step(numbers, times_us.cummin(), where="post", color="black", linewidth=1, label="best so far")
    search.set(xlabel="successful trials in order", ylabel=label, xlim=(1 - edge, len(times_us) + edge))
    search.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    compare.boxplot([times_us[families == name].to_numpy() for name in names])
    compare.set_xticks(range(1, len(names) + 1), names, rotation=20, ha="right", fontsize="small")
    _time_axis(search, float(times_us.min()), float(times_us.max()))
    for axes in (search, compare):
        axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=min(4, len(names) + 1), fontsize="small")
    return figure


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
