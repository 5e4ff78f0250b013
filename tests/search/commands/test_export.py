"""search.commands.export: winners become rows, merged into the table that is there; nothing is written in error."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path

import pandas as pd
import pytest
from replayed_rows import replayed
from result_rows import ATOMIC, failed, measured, only, predicted, results
from typer.testing import CliRunner

from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.tables import sources as table_sources
from kernels.tables.file import load_table, write_table
from kernels.tables.rows import TunedTable
from search.cli import app
from search.commands.export import default_path, export, table_rows
from search.evaluation import Value
from search.results import load_all, save
from search.results.locks import locked


def test_predicted_winner_becomes_a_predicted_row_with_its_origin() -> None:
    row = only(table_rows(results(predicted(9.12345678, study="s"))))
    assert (row.M, row.N, row.K, row.family) == (16, 2112, 7168, "fused")
    assert (row.evidence, row.predicted_us, row.time_us, row.spread_us) == ("predicted", 9.1235, None, None)
    assert (row.made.date, row.made.triton, row.made.protocol, row.made.study) == (
        date(2026, 11, 30),
        "3.9.0",
        "t1",
        "s",
    )


def test_predicted_row_says_what_its_model_leaves_open() -> None:
    near = [predicted(9.3, trial=1, BLOCK_N=128), predicted(12.0, trial=2, BLOCK_K=512)]
    said = {"predicted_lo_us": 8.5, "predicted_hi_us": 9.8, "predicted_tie": 0.05}
    row = only(table_rows(results(predicted(9.0, trial=7, **said), *near)))
    assert (row.predicted_lo_us, row.predicted_hi_us, row.tied) == (8.5, 9.8, 1)
    assert (row.made.study, row.made.trial) == ("study", 7)


def test_measured_winner_becomes_a_measured_row_with_its_spread() -> None:
    row = only(table_rows(results(measured(9.0, 0.25))))
    assert (row.evidence, row.time_us, row.spread_us, row.predicted_us) == ("measured", 9.0, 0.25, None)
    assert row.made.protocol == "cold-v1"


def test_nondeterministic_winner_brings_the_best_deterministic_one_along() -> None:
    rows = table_rows(results(predicted(8.0, **ATOMIC), predicted(9.0)))
    assert [(row.family, row.deterministic) for row in rows] == [("fused_splitk_atomic", False), ("fused", True)]


@pytest.mark.parametrize("name", ["started", "triton", "torch", "source_hash", "model", "study"])
def test_winner_without_its_origin_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"winner of 16x2112x7168 has no {name}; sweep it again"):
        table_rows(results(predicted(9.0, **{name: None})))


def test_export_writes_merges_and_names_shapes_without_a_winner(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    frame = results(predicted(9.0), failed("wrong_result", M=64))
    first = only(export(frame, table=path, output=None, min_gain=0.01))
    assert (first.path, first.unresolved) == (path, (GemmShape(64, 2112, 7168),))
    assert load_table(path).rows == first.report.table.rows
    slower = only(export(results(predicted(8.99, num_warps=8)), table=path, output=None, min_gain=0.01))
    assert slower.report.changes[0].action == "kept"
    faster = only(export(results(predicted(8.0, num_warps=8)), table=path, output=None, min_gain=0.01))
    assert faster.report.changes[0].action == "replaced"
    assert load_table(path).rows[0].predicted_us == 8.0


def test_rows_of_searches_that_were_cut_short_are_named_until_they_are_finished(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    trials = [predicted(9.0 + i, trial=i, trials_wanted=2, num_warps=2**i) for i in range(2)]
    whole = predicted(9.0, M=64, study="other", trials_wanted=1)
    early = only(export(results(trials[0], whole), table=path, output=None, min_gain=0.0))
    assert early.unfinished == {GemmShape(16, 2112, 7168): "1 of 2 trials"}
    again = only(export(results(trials[0], whole), table=path, output=None, min_gain=0.0))
    assert again.unfinished == early.unfinished  # the row is the table's now, and no better for it
    assert only(export(results(*trials, whole), table=path, output=None, min_gain=0.0)).unfinished == {}


def test_a_bucket_whose_row_costs_more_than_the_least_gain_is_reported(tmp_path: Path) -> None:
    known: dict[str, Value] = {"arch": "sm_90", "cu_count": 132, "quantizer": "software"}  # which has no model
    trials = [predicted(8.0), predicted(8.4, num_warps=8), predicted(9.0, M=64, num_warps=8)]
    trials = [trial | known for trial in trials]
    regret = only(only(export(results(*trials), table=tmp_path / "a.yaml", output=None, min_gain=0.04)).regrets)
    assert (regret.row.M, dict(regret.slower)) == (64, {16: pytest.approx(0.05)})
    assert only(export(results(*trials), table=tmp_path / "b.yaml", output=None, min_gain=0.06)).regrets == ()


def test_a_replay_never_becomes_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, cure = tmp_path / "table.yaml", "measure nothing; export what was recorded instead"
    replay = replayed(tmp_path, measured(1.0, num_warps=8))
    assert (replay["evidence"][0], replay["time_us"][0]) == ("measured", 1.0)
    capsys.readouterr()
    with pytest.raises(InputError, match=f"the results hold replays only, which {cure}"):
        export(replay, table=table, output=None, min_gain=0.0)
    assert not table.exists()
    both = pd.concat([replay, results(measured(9.0, M=64), predicted(9.0))], ignore_index=True)
    export(both, table=table, output=None, min_gain=0.0)
    assert [(row.M, row.cost_us) for row in load_table(table).rows] == [(16, 9.0), (64, 9.0)]
    assert capsys.readouterr().err == f"skipped  replays of 16x2112x7168: they {cure}\n"
    export(results(predicted(9.0)), table=table, output=None, min_gain=0.0)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("again", "action"),
    [
        ([], "kept"),
        ([predicted(9.0, num_warps=8, source_hash="older")], "kept"),  # what the old kernels did says nothing
        ([predicted(9.0, num_warps=8, M=64)], "kept"),
        ([predicted(9.0, num_warps=8)], "replaced"),
        ([failed("resource_limit", num_warps=8)], "replaced"),
        ([measured(20.0)], "replaced"),
    ],
)
def test_a_row_of_older_kernels_goes_only_when_its_configuration_was_tried_with_the_present_ones(
    tmp_path: Path, again: list[dict[str, Value]], action: str
) -> None:
    table = tmp_path / "table.yaml"
    old = only(table_rows(results(predicted(5.0, num_warps=8))))
    write_table(table, TunedTable(GFX950, (replace(old, made=replace(old.made, source_hash="older")),)))
    done = only(export(results(predicted(12.0), *again), table=table, output=None, min_gain=0.0))
    change = done.report.changes[0]
    assert (change.row.M, change.action) == (16, action)
    assert load_table(table).rows[0].cost_us == (5.0 if action == "kept" else change.row.cost_us)
    assert ("sweep again with more trials" in change.reason) == (action == "kept")


def test_output_leaves_the_incumbent_table_alone(tmp_path: Path) -> None:
    table, output = tmp_path / "table.yaml", tmp_path / "new.yaml"
    export(results(predicted(9.0)), table=table, output=None, min_gain=0.0)
    before = table.read_bytes()
    export(results(predicted(8.0)), table=table, output=output, min_gain=0.0)
    assert table.read_bytes() == before
    assert load_table(output).rows[0].predicted_us == 8.0


def test_an_output_that_exists_is_merged_with_and_never_replaced(tmp_path: Path) -> None:
    output = tmp_path / "tuned.yaml"
    export(results(measured(9.0)), table=None, output=output, min_gain=0.0)
    again = only(export(results(predicted(1.0, num_warps=8)), table=None, output=output, min_gain=0.0))
    assert again.report.count("kept") == 1
    assert [row.evidence for row in load_table(output).rows] == ["measured"]


def test_torn_table_is_reported_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    path.write_text("schema: 1\ndevice: {arch: gfx950, cu")
    with pytest.raises(InputError, match=r"table\.yaml:\d: not YAML"):
        export(results(predicted(9.0)), table=path, output=None, min_gain=0.0)
    assert path.read_text() == "schema: 1\ndevice: {arch: gfx950, cu"


def test_results_of_several_devices_need_a_table_each(tmp_path: Path) -> None:
    frame = results(predicted(9.0), predicted(9.0, cu_count=128))
    with pytest.raises(InputError, match="the results are of gfx950-128cu, gfx950-256cu; leave out"):
        export(frame, table=tmp_path / "t.yaml", output=None, min_gain=0.0)


def test_table_of_another_device_is_refused(tmp_path: Path) -> None:
    write_table(tmp_path / "t.yaml", TunedTable(DeviceKey("gfx942", 304)))
    with pytest.raises(InputError, match=r"t\.yaml: is for gfx942-304cu, the results are of gfx950-256cu"):
        export(results(predicted(9.0)), table=tmp_path / "t.yaml", output=None, min_gain=0.0)


def test_empty_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the results hold no trial; run `sweep` first"):
        export(results(), table=tmp_path / "t.yaml", output=None, min_gain=0.0)


def test_project_table_is_named_by_cu_count_where_the_short_name_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_sources, "tables_folder", lambda: tmp_path)
    half = DeviceKey("gfx950", 128)
    assert default_path(half) == tmp_path / "gfx950.yaml"
    write_table(tmp_path / "gfx950.yaml", TunedTable(GFX950))
    assert default_path(GFX950) == tmp_path / "gfx950.yaml"
    assert default_path(half) == tmp_path / "gfx950-128cu.yaml"


def test_a_simulated_gpu_never_becomes_a_row(tmp_path: Path) -> None:
    frame = results(measured(9.0))
    frame["protocol"] = frame["protocol"] + "@simulated"
    with pytest.raises(InputError, match="trials of a simulated GPU only, which measure nothing; sweep on a real one"):
        export(frame, table=tmp_path / "table.yaml", output=None, min_gain=0.0)
    assert not (tmp_path / "table.yaml").exists()


def test_an_export_waits_for_another_one_of_the_same_table_and_adds_to_it(tmp_path: Path) -> None:
    path, link = tmp_path / "t.yaml", tmp_path / "link.yaml"
    link.symlink_to(path)
    mine, theirs = results(predicted(9.0)), results(predicted(9.0, M=64))
    with ThreadPoolExecutor(1) as pool, locked([link]):  # as another process holds it, by another name
        waiting = pool.submit(export, mine, table=None, output=path, min_gain=0.0)
        write_table(path, TunedTable(GFX950, tuple(table_rows(theirs))))
        assert not waiting.done()
    waiting.result()
    assert [row.M for row in load_table(path).rows] == [16, 64]


def test_a_lock_that_is_held_too_long_and_a_folder_that_is_missing_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    message = r"t\.yaml: another process is changing it; wait"
    with locked([path]), pytest.raises(InputError, match=message), locked([path], wait_s=0):
        raise AssertionError("held twice")
    with pytest.raises(InputError, match="cannot be written"), locked([tmp_path / "nowhere" / "t.yaml"]):
        raise AssertionError("nothing there to hold")
    start = time.monotonic()
    with pytest.raises(InputError, match=r"/proc/t\.yaml: cannot be written"), locked([Path("/proc/t.yaml")]):
        raise AssertionError("no file can be made there")
    assert time.monotonic() - start < 10  # at once, whatever else the machine does: not after a minute of trying


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"BLOCK_M": 2**62}, "BLOCK_M: '4611686018427387904': use decimal digits"),
        ({"num_stages": 40}, "num_stages: 40 is not within 1..32"),
        ({"cache_modifier": '""'}, "cache_modifier: .* is unknown"),
        ({"triton": ""}, "made triton: is empty"),
    ],
)
def test_what_no_command_could_read_is_never_written(tmp_path: Path, change: dict[str, Value], problem: str) -> None:
    path = tmp_path / "t.yaml"
    export(results(predicted(9.0, M=64)), table=None, output=path, min_gain=0.0)
    before = path.read_bytes()
    with pytest.raises(InputError, match=f"is left as it was, for what would be written cannot be read: .*{problem}"):
        export(results(predicted(9.0, **change)), table=None, output=path, min_gain=0.0)
    assert path.read_bytes() == before


def test_each_row_says_how_far_it_serves_by_the_model(tmp_path: Path) -> None:
    tiles: dict[str, Value] = {"BLOCK_M": 8, "BLOCK_N": 128, "BLOCK_K": 256, "num_stages": 2, "split_k": 14}
    tiles |= {"REDUCE_BLOCK_M": 16, "REDUCE_BLOCK_N": 64, "family": "fused_splitk_workspace"}
    tiles |= {"source_hash": FAMILIES["fused_splitk_workspace"].source_hash}
    export(results(predicted(7.7, M=8, **tiles)), table=None, output=tmp_path / "t.yaml", min_gain=0.0)
    row = only(list(load_table(tmp_path / "t.yaml").rows))
    assert row.serves_from == 1
    assert 8 <= row.serves_to < 512  # at 8192 the default is several times faster


def three_places(folder: Path) -> list[str]:
    """One has the better trial of the first shape, one that of the second, one nothing that wins."""
    first, second, third = (folder / f"{name}.parquet" for name in "abc")
    save(results(predicted(9.0), predicted(7.0, M=32)), first)
    save(results(predicted(8.0, num_warps=8), predicted(7.5, M=32, num_warps=8)), second)
    save(results(failed("crashed")), third)
    return [str(first), str(second), str(third)]


def test_results_of_several_places_become_one_table_that_says_where_each_row_came_from(tmp_path: Path) -> None:
    places = three_places(tmp_path)
    (done,) = export(load_all(places), table=None, output=tmp_path / "t.yaml", min_gain=0.01)
    rows = {row.M: row for row in load_table(tmp_path / "t.yaml").rows}
    assert (rows[16].predicted_us, rows[32].predicted_us) == (8.0, 7.0)
    assert done.origins == {rows[16].key: places[1], rows[32].key: places[0]}


def test_the_command_takes_several_places_and_names_them(tmp_path: Path) -> None:
    places = three_places(tmp_path)
    words = ["export", "--results", *places, "--output", str(tmp_path / "t.yaml")]
    lines = CliRunner().invoke(app, words, catch_exceptions=False).output.splitlines()
    assert [line.rpartition(", from ")[2] for line in lines if line.startswith("added")] == [places[1], places[0]]
    shown = CliRunner().invoke(app, ["inspect", "--results", *places, "--best", "--columns", "place"]).output
    assert shown.split()[:3] == ["place", places[1], places[0]]


def test_a_place_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    places = three_places(tmp_path)
    with pytest.raises(InputError, match=r"b\.parquet twice; name each place once"):
        load_all([*places, places[1]])


def test_one_place_has_no_column_of_places(tmp_path: Path) -> None:
    assert "place" not in load_all(three_places(tmp_path)[:1])
