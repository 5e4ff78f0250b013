"""search.commands.explain: the row that the dispatcher would serve, with its file and its age."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from result_rows import predicted, results

from kernels import dispatch
from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from kernels.families.staged_ck import StagedCkConfig
from kernels.families.staged_hip import StagedHipConfig
from kernels.problem import GemmShape
from kernels.rocm.compiler import COMPILER_VARIABLE
from kernels.tables import sources as table_sources
from kernels.tables.file import load_table, write_table
from kernels.tables.rows import TableRow, TunedTable
from search.commands.explain import explain
from search.commands.export import table_rows

SHAPE = GemmShape(16, 2112, 7168)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project's only table: M = 4 and 16, of which 4 was made by older kernels."""
    monkeypatch.setattr(table_sources, "tables_folder", lambda: tmp_path)
    monkeypatch.setattr("search.commands.explain.local_device", lambda: None)
    monkeypatch.delenv("MXFP4_TABLES", raising=False)
    small, large = table_rows(results(predicted(9.0), predicted(5.0, M=4, source_hash="000000000000")))
    rows = (small, replace(large, serves_from=8, serves_to=20))
    path = tmp_path / "gfx950.yaml"
    write_table(path, TunedTable(GFX950, rows))
    return path


@pytest.mark.parametrize(
    ("M", "how", "row_M", "stale"),
    [(16, "exact", 16, False), (10, "bucket", 16, False), (17, "above", 16, False), (2, "bucket", 4, True)],
)
def test_row_of_the_projects_table_is_named(table: Path, M: int, how: str, row_M: int, stale: bool) -> None:
    found = explain(GemmShape(M, 2112, 7168))
    row = found.choice.lookup.row
    assert row is not None
    assert (found.choice.lookup.how, row.M, found.stale, found.table) == (how, row_M, stale, table)
    assert "rows      M = 4 for 1..4, M = 16 for 8..20 at N = 2112, K = 7168" in found.lines()


def test_what_the_model_leaves_open_is_said(table: Path) -> None:
    (row,) = load_table(table).layer(2112, 7168)[1:]
    open_row = replace(row, predicted_lo_us=8.5, predicted_hi_us=9.75, tied=2)
    write_table(table, TunedTable(GFX950, (open_row,)))
    (line,) = [line for line in explain(SHAPE).lines() if line.startswith("evidence")]
    assert line.startswith("evidence  predicted 9 us (8.5 to 9.75), one of 3 tried that it cannot tell apart by t1")


def test_a_time_says_its_own_m_where_another_is_asked_for(table: Path) -> None:
    lines = {M: explain(GemmShape(M, 2112, 7168)).lines() for M in (16, 12)}
    times = {M: next(line for line in found if line.startswith("evidence")) for M, found in lines.items()}
    assert "predicted 9 us by" in times[16] and "predicted 9 us at M = 16 by" in times[12]


def test_miss_says_that_the_default_serves(table: Path) -> None:
    found = explain(GemmShape(5, 640, 448))
    text = "\n".join(found.lines())
    assert (found.choice.lookup.how, found.table, found.stale) == ("miss", None, False)
    assert "the default" in text and "sweep 5x640x448 and export" in text
    assert "rows      none at N = 640, K = 448" in text


@pytest.mark.parametrize("M", [5, 7, 21, 5000])
def test_an_m_that_no_row_reaches_is_a_miss_that_names_the_rows_next_to_it(table: Path, M: int) -> None:
    found = explain(GemmShape(M, 2112, 7168))
    text = "\n".join(found.lines())
    assert (found.choice.lookup.how, found.table) == ("miss", None)
    assert f"match     miss: M = {M} is out of the reach of the rows next to it" in text
    assert "M = 16 (8..20)" in text and f"sweep {M}x2112x7168 and export" in text and ", the default" in text


def test_answer_is_what_the_dispatcher_serves(table: Path) -> None:
    served = dispatch.load_dispatcher(GFX950).choose(SHAPE)
    found = explain(SHAPE)
    assert (found.choice.family, found.choice.config) == (served.family, served.config)


def test_lines_tell_evidence_and_origin(table: Path) -> None:
    text = "\n".join(explain(GemmShape(3, 2112, 7168)).lines())
    assert "predicted 5 us at M = 4 by t1; the same bits every run" in text
    assert "2026-11-30, triton 3.9.0, torch 2.13.0, sources 000000000000, study study" in text
    assert "stale     yes: the kernels changed since; sweep it again" in text
    assert f"{table}: 2 rows for gfx950-256cu, 2 can serve" in text


def test_given_table_decides_the_device(tmp_path: Path, table: Path) -> None:
    other = tmp_path / "other.yaml"
    half = DeviceKey("gfx950", 128)
    write_table(other, TunedTable(half, tuple(table_rows(results(predicted(7.0, cu_count=128))))))
    found = explain(SHAPE, other)
    assert (found.device, found.table) == (half, other)
    assert found.choice.lookup.row is not None and found.choice.lookup.row.cost_us == 7.0


def test_json_has_the_same_facts(table: Path) -> None:
    answer = json.loads(json.dumps(explain(SHAPE).to_json()))
    assert (answer["M"], answer["arch"], answer["how"], answer["family"]) == (16, "gfx950", "exact", "fused")
    assert (answer["row"]["predicted_us"], answer["row"]["made"]["date"]) == (9.0, "2026-11-30")
    assert answer["config"]["BLOCK_M"] == 16
    miss = explain(GemmShape(5, 640, 448)).to_json()
    assert miss["row"] is None and miss["sources"][0]["rows"] == 2


def test_missing_table_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: no such file"):
        explain(SHAPE, tmp_path / "none.yaml")


def test_a_row_that_adds_bf16_values_says_what_that_costs(table: Path) -> None:
    config = StagedCkConfig(BLOCK_M=128, BLOCK_N=512, log2_k_split=2)
    made = load_table(table).rows[0].made
    row = TableRow(64, 7168, 2048, "staged_ck", config, "predicted", False, made, predicted_us=9.0)
    write_table(table, TunedTable(GFX950, (row,)))
    assert "sums of bf16 values: less exact than other rows" in "\n".join(explain(row.shape).lines())


@pytest.mark.parametrize("local", [None, GFX950])
def test_a_row_that_this_machine_cannot_use_names_what_is_absent(
    local: DeviceKey | None, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = load_table(table).rows[0].made
    row = TableRow(64, 7168, 2048, "staged_hip", StagedHipConfig(), "predicted", True, made, predicted_us=9.0)
    write_table(table, TunedTable(GFX950, (row,)))
    monkeypatch.setenv(COMPILER_VARIABLE, str(tmp_path / "nothing"))
    monkeypatch.setattr("search.commands.explain.local_device", lambda: local)
    found = explain(row.shape, table)
    lines = [line for line in found.lines() if line.startswith("absent ")]
    assert len(lines) == 1
    assert "name a hipcc" in lines[0]
    assert lines[0].endswith("; until then fused, the default, serves here instead")
    assert found.lines()[-1].endswith("1 row for gfx950-256cu, 0 can serve, 1 not on this machine")
    answer = found.to_json()
    assert (answer["absence"], answer["instead"], answer["sources"][0]["lacking"]) == (found.absence, "fused", 1)


def test_a_gpu_of_another_kind_says_nothing_of_what_the_device_lacks(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = load_table(table).rows[0].made
    row = TableRow(64, 7168, 2048, "staged_hip", StagedHipConfig(), "predicted", True, made, predicted_us=9.0)
    write_table(table, TunedTable(GFX950, (row,)))
    monkeypatch.setenv(COMPILER_VARIABLE, str(tmp_path / "nothing"))
    monkeypatch.setattr("search.commands.explain.local_device", lambda: DeviceKey("sm_90", 132))
    assert explain(row.shape, table).absence is None
