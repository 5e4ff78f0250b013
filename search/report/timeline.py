"""A simulated compute unit as a picture and as a trace that Perfetto and Chrome's viewer open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernels.disk import real_path, replace_file
from kernels.errors import InputError
from search.gfx950.model.compute_unit import Span
from search.gfx950.model.launch_time import LaunchTime
from search.report.plots import pyplot, save_figure

ENDINGS = (".png", ".json")
UNITS = {"mfma": "MFMA", "valu": "VALU", "lds": "LDS", "vmem": "vector memory"}
WAITS = {"wait memory": "waits for memory", "wait lds": "waits for the LDS", "wait barrier": "waits at a barrier"}
CATEGORY = "simulated"  # of an event, for the viewer's filter
COLOURS = {
    "mfma": "tab:red", "valu": "tab:blue", "lds": "tab:green", "vmem": "tab:orange", "wait memory": "0.75",
    "wait lds": "0.85", "wait barrier": "0.55",
}  # fmt: skip


def write_timeline(
    names: Sequence[str], times: Sequence[LaunchTime], title: str, clock_mhz: float, to: Path
) -> list[Path]:
    """Write ``to`` with the endings ``.png`` and ``.json``, instead of one of them that it has; both paths.

    Args:
        clock_mhz: Clock of the shader engine.

    Raises:
        InputError: No matplotlib, ``to`` is a folder, or a file that cannot be written.
    """
    try:
        if to.is_dir():
            raise InputError(f"{to}: is a folder; name files in it, without their endings, with --to")
        picture, trace = (to.with_name(_stem(to) + ending) for ending in ENDINGS)
        to.parent.mkdir(parents=True, exist_ok=True)
        _draw(names, times, title, clock_mhz, picture)  # first, as it takes seconds: interrupted, it leaves no half
        replace_file(real_path(trace), json.dumps(trace_events(names, times, clock_mhz)).encode())
    except OSError as error:
        raise InputError(f"{to}: cannot be written ({error.strerror}); name another path with --to") from error
    return [picture, trace]


def _stem(to: Path) -> str:
    """The name of the files without an ending; another dot is a part of it."""
    return to.stem if to.suffix in ENDINGS else to.name


def lane_of(span: Span) -> str:
    """Row of the picture: a unit, of one SIMD where each has its own, or a wave."""
    if span.lane in WAITS:
        return f"wave {span.place}"
    return f"{UNITS[span.lane]} {span.place}" if span.lane in ("mfma", "valu") else UNITS[span.lane]


def trace_events(names: Sequence[str], times: Sequence[LaunchTime], clock_mhz: float) -> dict[str, Any]:
    """The launches as complete events of the Trace Event Format: a process a launch, a thread a lane, times in us.

    Source: "Trace Event Format", Google, sections Complete Events and Metadata Events.
    """
    events: list[dict[str, Any]] = []
    for process, (name, time) in enumerate(zip(names, times, strict=True)):
        lanes = _lanes(time.unit.spans)
        events.append(_metadata("process_name", process, 0, {"name": name}))
        for lane, thread in lanes.items():
            events.append(_metadata("thread_name", process, thread, {"name": lane}))
            events.append(_metadata("thread_sort_index", process, thread, {"sort_index": thread}))
        for span in time.unit.spans:
            start, length = span.start / clock_mhz, (span.end - span.start) / clock_mhz
            label = UNITS.get(span.lane) or WAITS[span.lane]
            thread = lanes[lane_of(span)]
            place = {"pid": process, "tid": thread, "ts": start, "dur": length}
            events.append({"ph": "X", "name": label, "cat": CATEGORY, **place})
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _metadata(name: str, process: int, thread: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": name, "cat": "__metadata", "pid": process, "tid": thread, "ts": 0, "args": args}


def _lanes(spans: Sequence[Span]) -> dict[str, int]:
    """Number of each lane that occurs: units first, in the order of ``UNITS``, then waves by number."""
    kinds = [*UNITS, *WAITS]
    ordered = sorted(spans, key=lambda span: (min(kinds.index(span.lane), len(UNITS)), span.place))
    return {lane: number for number, lane in enumerate(dict.fromkeys(map(lane_of, ordered)))}


def _draw(names: Sequence[str], times: Sequence[LaunchTime], title: str, clock_mhz: float, path: Path) -> None:
    plt = pyplot("--timeline")
    heights = [max(1, len(_lanes(time.unit.spans))) for time in times]
    figure, axes = plt.subplots(
        len(times), 1, squeeze=False, figsize=(12, 1.5 + 0.28 * sum(heights)), layout="constrained",
        gridspec_kw={"height_ratios": heights},
    )  # fmt: skip
    for axis, name, time in zip(axes[:, 0], names, times, strict=True):
        _draw_launch(axis, name, time, clock_mhz)
    axes[-1, 0].set_xlabel("simulated time of one compute unit, us")
    figure.suptitle(title)
    waits = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[kind], label=words) for kind, words in WAITS.items()]
    figure.legend(handles=waits, loc="outside lower center", ncols=len(waits), title="a wave", frameon=False)
    save_figure(plt, figure, path)


def _draw_launch(axis: Any, name: str, time: LaunchTime, clock_mhz: float) -> None:
    lanes = _lanes(time.unit.spans)
    for kind in (*WAITS, *UNITS):
        for lane, number in lanes.items():
            bars = [
                (span.start / clock_mhz, (span.end - span.start) / clock_mhz)
                for span in time.unit.spans
                if span.lane == kind and lane_of(span) == lane
            ]
            axis.broken_barh(bars, (number - 0.4, 0.8), color=COLOURS[kind])
    axis.set_yticks(list(lanes.values()), list(lanes))
    axis.invert_yaxis()
    axis.set_title(name)
