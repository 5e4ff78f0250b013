"""search.report.timeline: lanes of the picture and events of the trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernels.errors import InputError
from search.gfx950.model.compute_unit import ComputeUnit, Span, Supply, UnitTime
from search.gfx950.model.issue import Kind
from search.gfx950.model.launch_time import LaunchTime
from search.gfx950.model.stream import Event, WaveStream
from search.report.timeline import lane_of, trace_events, write_timeline

SPANS = (
    Span("wait memory", 1, 0.0, 2400.0), Span("valu", 1, 2400.0, 4800.0), Span("mfma", 1, 4800.0, 7200.0),
    Span("lds", 0, 100.0, 200.0),
)  # fmt: skip
TIME = LaunchTime(3.0, 0.0, 0.0, UnitTime(7200.0, 7200.0, {}, {}, SPANS), Supply({}, 400.0, 32.0, 16.0))


def test_units_of_a_simd_and_waves_have_lanes_of_their_own() -> None:
    assert [lane_of(span) for span in SPANS] == ["wave 1", "VALU 1", "MFMA 1", "LDS"]


def test_a_trace_holds_complete_events_in_microseconds_and_names_its_lanes() -> None:
    events = trace_events(["gemm"], [TIME], 2400.0)["traceEvents"]
    valu = next(event for event in events if event["ph"] == "X" and event["name"] == "VALU")
    assert (valu["ts"], valu["dur"]) == (1.0, 1.0)
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names[valu["tid"]] == "VALU 1"
    assert [names[number] for number in sorted(names)] == ["MFMA 1", "VALU 1", "LDS", "wave 1"]
    assert {event["name"] for event in events if event["ph"] == "X"} == {
        "VALU", "MFMA", "LDS", "waits for memory",
    }  # fmt: skip


def test_every_event_has_the_keys_of_its_phase() -> None:
    # Trace Event Format: a complete event has ts and dur in microseconds, metadata name processes and threads by args.
    keys = {
        "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid"},
        "M": {"name", "cat", "ph", "ts", "pid", "tid", "args"},
    }
    trace = json.loads(json.dumps(trace_events(["gemm", "reduce"], [TIME, TIME], 2400.0)))
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        assert event.keys() == keys[event["ph"]]
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ts"] >= 0 and event.get("dur", 1) > 0
    named = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert named == {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["ph"] == "X"}
    metadata = {e["name"] for e in trace["traceEvents"] if e["ph"] == "M"}
    assert metadata == {"process_name", "thread_name", "thread_sort_index"}


def test_what_a_thread_does_never_overlaps() -> None:
    # A viewer nests the complete events of a thread: two that overlap in part are drawn wrong.
    load = Event(Kind.LOAD, 0, 0, 0, 0, path=16, size=1024, buffer="a")
    wait = Event(Kind.WAIT, 0, 0, 0, 0, path=0, size=0)
    computing = Event(Kind.LDS, 40, 40, 32, 16, path=16)
    stream = WaveStream((*[load, wait, computing] * 8, Event(Kind.END, 0, 0, 0, 0)), frozenset(), 0, {})
    unit = ComputeUnit([stream] * 8, Supply({}, 400.0, 32.0, 16.0), watch=True).run(2, 2)
    events = trace_events(["k"], [LaunchTime(1.0, 0.0, 0.0, unit, TIME.supply)], 2400.0)["traceEvents"]
    ends: dict[int, float] = {}
    for event in sorted((e for e in events if e["ph"] == "X"), key=lambda e: e["ts"]):
        assert event["ts"] >= ends.get(event["tid"], 0.0) - 1e-9
        ends[event["tid"]] = event["ts"] + event["dur"]
    assert len(ends) == 4 + 4 + 1 + 1 + 16  # VALU and MFMA of each SIMD, LDS, memory path, waves


def test_both_files_are_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture, trace = write_timeline(["gemm"], [TIME], "title", 2400.0, tmp_path / "new" / "x")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert len(json.loads(trace.read_text())["traceEvents"]) == 1 + 2 * 4 + 4


@pytest.mark.parametrize(
    ("to", "stem"), [("x", "x"), ("x.png", "x"), ("x.json", "x"), ("x.v2", "x.v2"), ("x 1\nü", "x 1\nü")]
)
def test_only_their_own_endings_are_replaced(tmp_path: Path, to: str, stem: str) -> None:
    pytest.importorskip("matplotlib")
    paths = write_timeline(["gemm"], [TIME], "title", 2400.0, tmp_path / to)
    assert paths == [tmp_path / f"{stem}.png", tmp_path / f"{stem}.json"]
    assert sorted(paths) == sorted(tmp_path.iterdir())


@pytest.mark.parametrize("to", [".", "..", "/", "new"])
def test_a_folder_is_no_name_of_files(tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"is a folder; name files in it, without their endings, with --to"):
        write_timeline(["gemm"], [TIME], "title", 2400.0, Path(to))
    assert [path.name for path in tmp_path.rglob("*")] == ["new"]


def test_interrupted_drawing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(plt.Figure, "savefig", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_timeline(["gemm"], [TIME], "title", 2400.0, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


def test_a_circle_of_links_is_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for ending in (".png", ".json"):
        (tmp_path / f"x{ending}").symlink_to(tmp_path / f"x{ending}")
    with pytest.raises(InputError, match=r"x: cannot be written .*--to"):
        write_timeline(["gemm"], [TIME], "title", 2400.0, tmp_path / "x")


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="--to"):
        write_timeline(["gemm"], [TIME], "title", 2400.0, tmp_path / "file" / "x")
