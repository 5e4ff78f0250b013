"""Formats of neighbouring projects through `export --format`, and AITER's own files where they are at hand."""

from __future__ import annotations

import json
import os
from collections import Counter
from datetime import date
from pathlib import Path

import pytest
from result_rows import measured, results

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.families.staged_ck import StagedCkConfig
from kernels.families.staged_triton import StagedConfig
from kernels.rocm.code_objects import PATH_VARIABLE
from kernels.tables.file import write_table
from kernels.tables.rows import Made, TableRow, TunedTable
from search.commands.publish import publish
from search.formats import FORMATS, aiter_csv, aiter_json, format_named, read_published
from search.results import load, save
from search.results.published import LEFT_OUT

MADE = Made(date(2026, 11, 30), "3.9.0", "2.13.0", "0123456789ab", "cold-v1", "study")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = (
        TableRow(16, 2112, 7168, "staged_ck", StagedCkConfig(64, 128), "measured", True, MADE, time_us=12.5),
        TableRow(32, 2112, 7168, "staged_triton", StagedConfig(), "measured", True, MADE, time_us=14.0),
    )
    write_table(tmp_path / "t.yaml", TunedTable(GFX950, rows))
    return tmp_path / "t.yaml"


def test_a_table_becomes_files_of_others_and_comes_back_as_results(tmp_path: Path, table: Path) -> None:
    csv_file, folder = tmp_path / "tuned.csv", tmp_path / "aiter"
    done = publish("aiter-csv", table=table, output=csv_file)
    assert (done.paths, done.added) == ((csv_file,), 1)
    assert done.left_out == ("1 entry: staged_triton is no kernel that this file can name (32x2112x7168)",)
    frame = load(csv_file)
    assert list(frame[["shape", "family", "evidence", "time_us"]].iloc[0]) == [
        "16x2112x7168",
        "staged_ck",
        "measured",
        12.5,
    ]
    done = publish("aiter-json", table=table, output=folder)
    assert [path.name for path in done.paths] == ["GEMM-AFP4WFP4_PRESHUFFLED-N=2112-K=7168.json"]
    assert "num_xcds" in done.lost
    assert set(load(folder)["family"]) == {"staged_triton"}


def test_publishing_twice_changes_nothing(tmp_path: Path, table: Path) -> None:
    first = {name: publish(name, table=table, output=tmp_path / name) for name in ("aiter-json", "vllm-json")}
    texts = {path: path.read_text() for done in first.values() for path in done.paths}
    again = [publish(name, table=table, output=tmp_path / name) for name in first]
    assert [(one.added, one.replaced) for one in again] == [(0, 1), (0, 1)]
    assert {path: path.read_text() for path in texts} == texts


@pytest.mark.parametrize("name", ["kernel-tuner", "t4"])
def test_trials_become_files_of_others_and_come_back(tmp_path: Path, name: str) -> None:
    save(results(measured(12.0), measured(13.0, BLOCK_N=128, trial=1)), tmp_path / "r.parquet")
    publish(name, results=[tmp_path / "r.parquet"], output=tmp_path / "out")
    frame = load(tmp_path / "out")
    assert sorted(frame["time_us"]) == [12.0, 13.0]
    assert sorted(frame["BLOCK_N"]) == [64, 128]


@pytest.mark.parametrize(
    ("name", "sources", "message"),
    [
        ("toml", {}, "unknown format 'toml'"),
        ("t4", {"table": Path("t.yaml")}, "--format t4 writes trials: leave out --table"),
        ("aiter-csv", {"results": Path("results")}, "--format aiter-csv writes a table: export the results into one"),
    ],
)
def test_the_wrong_source_is_one_line(name: str, sources: dict[str, Path], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        publish(name, output=tmp_path / "out", **sources)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_torn_file_is_named_and_left_alone(tmp_path: Path, table: Path) -> None:
    name = "GEMM-AFP4WFP4_PRESHUFFLED-N=2112-K=7168.json"
    (tmp_path / name).write_text('{"M_LEQ_32": {')
    with pytest.raises(InputError, match=r"GEMM-AFP4WFP4_PRESHUFFLED-N=2112-K=7168.json: cannot be read"):
        publish("aiter-json", table=table, output=tmp_path)
    assert (tmp_path / name).read_text() == '{"M_LEQ_32": {'
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / name)


AITER = Path(os.environ.get(PATH_VARIABLE, "/nonexistent")) / "aiter"


@pytest.mark.skipif(not AITER.is_dir(), reason="no AITER package: set MXFP4_AITER to an unpacked wheel")
def test_every_gemm_table_of_aiter_is_read_and_every_row_accounted_for(tmp_path: Path) -> None:
    files = sorted((AITER / "configs").rglob("*gemm*.csv"))
    kinds: Counter[str] = Counter()
    for path in files:
        text = path.read_text()
        name = next(name for name in FORMATS if format_named(name).recognises(path, text))
        kinds[name] += 1
        if name == "aiter-csv":
            reading = aiter_csv.read(path, text)
            rows = sum(bool(line.strip()) for line in text.splitlines()[1:])
            assert len(reading.trials) + len(reading.left_out) == rows, path
    assert sum(kinds.values()) == len(files) and set(kinds) == {"aiter-csv", "aiter-untuned"}


@pytest.mark.skipif(not AITER.is_dir(), reason="no AITER package: set MXFP4_AITER to an unpacked wheel")
def test_aiters_tuned_rows_survive_the_way_there_and_back(tmp_path: Path) -> None:
    source = AITER / "configs" / "a4w4_blockscale_tuned_gemm.csv"
    reading = read_published(source)
    assert reading is not None and len(reading.trials) > 500
    copy = tmp_path / "copy.csv"
    copy.write_text(source.read_text())
    latest = {trial.shape: trial for trial in reading.trials if trial.time_us is not None}
    rows = tuple(
        TableRow(s.M, s.N, s.K, t.family, t.config, "measured", t.config.repeatable, MADE, t.time_us)
        for s, t in latest.items()
    )
    write_table(tmp_path / "t.yaml", TunedTable(GFX950, rows))
    publish("aiter-csv", table=tmp_path / "t.yaml", output=copy)
    again = read_published(copy)
    assert again is not None
    assert {(t.shape, t.config, t.time_us) for t in again.trials} == {(r.shape, r.config, r.time_us) for r in rows}
    assert len(again.left_out) == len(reading.left_out)


@pytest.mark.skipif(not AITER.is_dir(), reason="no AITER package: set MXFP4_AITER to an unpacked wheel")
def test_every_triton_configuration_of_aiter_is_read_or_named() -> None:
    folder = AITER / "ops" / "triton" / "configs" / "gemm"
    files = [path for path in folder.rglob("*.json") if "aot" not in path.parts]
    frame = load(folder)
    keys = sum(len(json.loads(path.read_text())) for path in files)
    counts = frame.attrs[LEFT_OUT][0].split("; ")[-1]  # behind how many files were read
    assert counts == f"{len(frame)} taken, {keys - len(frame)} left out" and len(frame) > 200


@pytest.mark.skipif(not AITER.is_dir(), reason="no AITER package: set MXFP4_AITER to an unpacked wheel")
def test_aiters_triton_configurations_survive_the_way_there_and_back() -> None:
    folder = AITER / "ops" / "triton" / "configs" / "gemm"
    written_back = 0
    for path in folder.glob("*GEMM-AFP4WFP4_PRESHUFFLED-N=*.json"):  # of the layout that rows have
        trials = aiter_json.read(path, path.read_text()).trials
        rows = {
            one.shape: TableRow(
                one.shape.M, one.shape.N, one.shape.K, one.family, one.config, "measured", True, MADE, time_us=1.0
            )
            for one in trials
        }
        written = aiter_json.write_table(TunedTable(GFX950, tuple(rows.values())), {}.get)
        assert written.added + len(written.left_out) == len(rows), path.name
        assert {one.reason for one in written.left_out} <= {  # of "any"
            "GEMM-AFP4WFP4_PRESHUFFLED looks up no M of 16384"
        }, path.name
        back = {
            one.shape: one.config
            for name, text in written.files.items()
            for one in aiter_json.read(Path(name), text).trials
            if one.shape in rows
        }
        said = {
            shape: row.config for shape, row in rows.items() if str(shape) not in {w.where for w in written.left_out}
        }
        assert {shape: back[shape] for shape in said} == said, path.name
        written_back += len(said)
    assert written_back > 50
