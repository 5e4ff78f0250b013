"""kernels.tables.file: every broken table is one line that names file, line, row, field and cure."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.config import KernelConfig
from kernels.device import GFX950, DeviceKey
from kernels.disk import tables_folder
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.families.fused import SplitKWorkspaceConfig, TileConfig
from kernels.problem import GemmShape
from kernels.tables.file import dump_table, load_table, write_table
from kernels.tables.rows import Made, TableRow, TunedTable

GOOD = """\
schema: 1
device: {arch: gfx950, cu_count: 256}
entries:
  - {M: 16, N: 2112, K: 7168, family: fused_splitk_workspace,
     config: {BLOCK_M: 16, BLOCK_N: 64, BLOCK_K: 256, split_k: 8, num_warps: 4, num_stages: 2},
     evidence: measured, time_us: 11.9, spread_us: 0.2, deterministic: true,
     made: {date: 2026-11-30, triton: 3.10, torch: 2.13.0, source_hash: 123456789012, protocol: cold-graph-v1,
            study: gfx950}}
  - {M: 4, N: 2880, K: 512, family: fused, config: {cache_modifier: .cg}, evidence: predicted,
     predicted_us: 5, deterministic: true,
     made: {date: 2026-11-30, triton: 3.9.0, torch: 2.13.0, source_hash: 1e3, protocol: gfx950-t1, study: s}}
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "table.yaml"
    path.write_text(text)
    return path


def test_loads_a_hand_written_table_as_it_reads(tmp_path: Path) -> None:
    table = load_table(written(tmp_path, GOOD))
    made = Made(date(2026, 11, 30), "3.10", "2.13.0", "123456789012", "cold-graph-v1", "gfx950")
    config = SplitKWorkspaceConfig(BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, split_k=8, num_warps=4, num_stages=2)
    slow = TableRow(16, 2112, 7168, "fused_splitk_workspace", config, "measured", True, made, 11.9, 0.2)
    assert table.device == GFX950
    assert table.rows[0] == slow
    assert table.rows[1].config == TileConfig(cache_modifier=".cg")
    assert (table.rows[1].predicted_us, table.rows[1].made.source_hash) == (5.0, "1e3")


@pytest.mark.parametrize(
    ("old", "new", "where", "message"),
    [
        ("schema: 1", "schema: 2", ":1: schema:", "use the version"),
        ("schema: 1\n", "", ":1: lacks schema", "add it"),
        ("schema: 1", "schema: 1\nextra: 2", ":2: extra: unknown key", "use one of schema, device, entries"),
        ("cu_count: 256", "cu_count: many", ":2: device cu_count:", "'many' is not a whole number"),
        ("cu_count: 256", "cu_count: 0", ":2: device cu_count:", "0 is less than 1"),
        ("M: 16", "M: sixteen", ":4: entry 1 M:", "'sixteen' is not a whole number"),
        ("M: 16", "M: true", ":4: entry 1 M:", "'true' is not a whole number"),
        ("M: 16", "M: 16.0", ":4: entry 1 M:", "'16.0' is not a whole number"),
        ("M: 16", "M: 0x10", ":4: entry 1 M:", "decimal digits"),
        ("M: 16", "M: 0", ":4: entry 1 (0x2112x7168):", "M = 0 must be at least 1"),
        ("N: 2112", "N: 100", ":4: entry 1 (16x100x7168):", "N = 100 must be a positive multiple of 64"),
        ("K: 7168, ", "", ":4: entry 1: lacks K", "add it"),
        ("family: fused,", "family: fusd,", ":9: entry 2 family:", "'fusd' is unknown; did you mean 'fused'? use"),
        ("split_k: 8", "splitk: 8", ":5: entry 1 config splitk: unknown key", "split_k"),
        ("split_k: 8", "split_k: '8'", ":5: entry 1 config split_k:", "'8' is not a whole number"),
        ("split_k: 8", "split_k: [8]", ":5: entry 1 config split_k:", "must be a whole number"),
        ("split_k: 8", "split_k: -8", ":5: entry 1 config split_k:", "-8 is not within 1..65535; correct it"),
        ("split_k: 8", "waves_per_eu: 999", ":5: entry 1 config waves_per_eu:", "999 is not within 0..20; correct it"),
        ("BLOCK_N: 64", "BLOCK_N: 48", ":4: entry 1 (16x2112x7168): config:", "BLOCK_N=48 is not a power of two"),
        ("modifier: .cg", "modifier: .ca", ":9: entry 2 config cache_modifier:", "use one of '', .cg"),
        ("{cache_modifier: .cg}", "16", ":9: entry 2 config:", "must be a mapping"),
        ("evidence: measured", "evidence: rumoured", ":4: entry 1", "evidence: 'rumoured' is unknown"),
        ("time_us: 11.9", "time_us: fast", ":6: entry 1 time_us:", "'fast' is not a number"),
        ("time_us: 11.9", "time_us: .inf", ":4: entry 1", "time_us: inf is not a positive time"),
        ("time_us: 11.9, ", "", ":4: entry 1", "time_us: missing; a measured row needs it"),
        ("predicted_us: 5", "time_us: 5", ":9: entry 2 (4x2880x512):", "predicted_us: missing"),
        ("predicted_us: 5", "predicted_us: 5, time_us: 5", ":9: entry 2", "time_us: a predicted row must not"),
        ("spread_us: 0.2, deterministic: true", "deterministic: 1", ":6: entry 1 deterministic:", "true or false"),
        ("deterministic: true", "deterministic: true, graph: 1", ":6: entry 1 graph:", "true or false"),
        ("deterministic: true", "deterministic: true, serves_to: 15", ":4: entry 1", "1..15 does not hold M = 16"),
        ("deterministic: true", "deterministic: true, serves_from: 0", ":4: entry 1", "0..16 does not hold M = 16"),
        ("deterministic: true", "deterministic: true, serves_from: a", ":6: entry 1 serves_from:", "whole number"),
        ("date: 2026-11-30", "date: soon", ":7: entry 1 made date:", "2026-11-30"),
        ("torch: 2.13.0, source_hash: 1e3", "source_hash: 1e3", ":11: entry 2 made: lacks torch", "add it"),
        ("study: s", "study: ''", ":11: entry 2 made study:", "is empty"),
        ("study: s", "study: null", ":11: entry 2 made study:", "'null' is not a text"),
        ("study: s", "study: s, by: me", ":11: entry 2 made by: unknown key", "study"),
        ("M: 4,", "M: 4, M: 8,", ":9: entry 2 M:", "is given twice"),
        ("M: 4, N: 2880, K: 512", "M: 16, N: 2112, K: 7168", ":9: entry 2:", "has a row already, entry 1 in line 4"),
        ("entries:", "entries: none #", ":3: entries:", "must be a list"),
        ("study: s}}", "study: s", ":12: not YAML", "restore"),
    ],
)  # fmt: skip
def test_broken_table_names_place_and_cure(tmp_path: Path, old: str, new: str, where: str, message: str) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    text = text if "entries: none" not in text else text.split("  - {")[0]
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        load_table(path)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith(f"{path}{where}"), line
    assert message in line


def test_configuration_that_the_device_lacks_is_named(tmp_path: Path) -> None:
    text = GOOD.replace("arch: gfx950", "arch: sm_90")
    with pytest.raises(InputError, match=r"entry 1 \(16x2112x7168\): config: quantizer=hardware needs"):
        load_table(written(tmp_path, text))


def test_a_row_opts_into_graph_replay_by_hand(tmp_path: Path) -> None:
    table = load_table(written(tmp_path, GOOD.replace("deterministic: true", "deterministic: true, graph: true", 1)))
    assert [row.graph for row in table.rows] == [True, False]
    assert dump_table(table).count("graph: true") == 1


@pytest.mark.parametrize("text", ["", "# nothing yet\n"])
def test_empty_file_is_reported(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="holds nothing; sweep and export"):
        load_table(written(tmp_path, text))


def test_missing_file_folder_and_binary_are_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: no such file; sweep and export"):
        load_table(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="cannot be read"):
        load_table(tmp_path)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\x01\x81")
    with pytest.raises(InputError, match=r"not UTF-8|not YAML"):
        load_table(tmp_path / "binary.yaml")


@settings(deadline=None)
@given(st.integers(1, len(GOOD) - 1))
def test_torn_file_is_reported_or_holds_whole_rows_and_stays_as_it_was(tmp_path_factory: Any, length: int) -> None:
    path = tmp_path_factory.mktemp("torn") / "table.yaml"
    path.write_text(GOOD[:length])
    try:
        rows = load_table(path).rows
        assert len(rows) == GOOD[:length].count("study: ")
    except InputError as error:
        assert str(path) in str(error)
    assert path.read_text() == GOOD[:length]


N, K = 128, 2048
DRAWN = sorted(FAMILIES.keys() - {"aiter_triton_a4w4", "aiter_triton_a16w4"})  # their tiles depend on M


def knob(name: str, hint: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) is Literal and name != "a_operand":
        return st.sampled_from(get_args(hint))
    choices: dict[str, tuple[int | str, ...]] = {
        "a_operand": ("e2m1",), "matrix_instr_nonkdim": (0, 16, 32), "BLOCK_N": (128,), "BLOCK_K": (256, 512),
        "log2_k_split": (0,), "QUANT_THREADS": (64, 256), "QUANT_VECTOR": (8, 16),
    }  # fmt: skip
    return st.sampled_from(choices.get(name, (64, 128) if "BLOCK" in name else (1, 2, 4)))


def is_legal(config: KernelConfig) -> bool:
    return config.check(GemmShape(1, N, K), DeviceKey("gfx950", 128)) is None


@st.composite
def rows(draw: st.DrawFn, M: int) -> TableRow:
    family = FAMILIES[draw(st.sampled_from(DRAWN))]
    hints = get_type_hints(family.config_type)
    knobs = st.fixed_dictionaries({f.name: knob(f.name, hints[f.name]) for f in fields(family.config_type)})
    config = draw(knobs.map(family.config).filter(is_legal))
    text = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S")), min_size=1)
    trial = draw(st.none() | st.integers(0, 9999))
    made = Made(draw(st.dates()), draw(text), draw(text), draw(text), draw(text), draw(text), trial)
    time = draw(st.floats(1e-6, 1e9))
    deterministic = family.is_deterministic(config) and draw(st.booleans())
    row = TableRow(M, N, K, family.name, config, "predicted", deterministic, made, predicted_us=time)
    row = replace(row, graph=draw(st.booleans()))
    if draw(st.booleans()):
        around = {"predicted_lo_us": 0.9 * time, "predicted_hi_us": 1.2 * time, "tied": draw(st.integers(0, 99))}
        return replace(row, **around) if draw(st.booleans()) else row
    spread_us = draw(st.none() | st.floats(0, 1e6))
    return replace(row, evidence="measured", predicted_us=None, time_us=time, spread_us=spread_us)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 1 << 20), unique=True, max_size=4).flatmap(lambda ms: st.tuples(*map(rows, ms))))
def test_dumped_table_loads_equal_and_dumps_the_same(tmp_path_factory: Any, entries: tuple[TableRow, ...]) -> None:
    table = TunedTable(DeviceKey("gfx950", 128), entries)
    path = tmp_path_factory.mktemp("dump") / "table.yaml"
    write_table(path, table)
    assert load_table(path) == table
    assert dump_table(load_table(path)) == path.read_text()


def test_dump_is_plain_yaml_with_one_entry_a_row_in_key_order(tmp_path: Path) -> None:
    text = dump_table(load_table(written(tmp_path, GOOD)))
    plain = yaml.safe_load(text)
    assert [(row["M"], row["N"], row["K"]) for row in plain["entries"]] == [(16, 2112, 7168), (4, 2880, 512)]
    assert text.startswith("# Tuned MXFP4 GEMM configurations of gfx950-256cu")
    assert plain["entries"][0]["made"]["triton"] == "3.10"  # quoted: another reader must not see 3.1
    assert "time_us" not in plain["entries"][1]


def test_crash_before_the_rename_leaves_the_old_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, GOOD)

    def crash(source: object, target: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        write_table(path, TunedTable(GFX950))
    assert path.read_text() == GOOD
    assert [p.name for p in tmp_path.iterdir()] == ["table.yaml"]


def test_the_projects_tables_are_legal() -> None:
    for path in tables_folder().glob("*.yaml"):
        assert load_table(path).device.arch in path.stem


def test_a_file_that_never_ends_is_refused() -> None:
    with pytest.raises(InputError, match="/dev/zero: is longer than 64 MiB"):
        load_table(Path("/dev/zero"))
