"""Which rows serve a device when the user and the project both have tables."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.families.fused import TileConfig
from kernels.tables import sources as table_sources
from kernels.tables.file import write_table
from kernels.tables.rows import Made, TableRow, TunedTable, needs_proof
from kernels.tables.sources import load_device_tables, own_tables, user_misses, user_tables

MADE = Made(date(2026, 11, 29), "3.9.0", "2.13.0", "0" * 12, "by hand", "none")
SMALL = DeviceKey("gfx950", 128)


def row(M: int, time_us: float) -> TableRow:
    return TableRow(M, 128, 192, "fused", TileConfig(), "measured", True, MADE, time_us=time_us)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder in place of the project's own tables."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.setattr(table_sources, "tables_folder", lambda: folder)
    return folder


def test_without_any_file_there_is_no_table(own: Path) -> None:
    loaded = load_device_tables(GFX950, ())
    assert (loaded.table, loaded.sources) == (None, ())


def test_the_users_row_wins_even_if_slower_and_the_rest_is_joined(own: Path, tmp_path: Path) -> None:
    write_table(own / "gfx950.yaml", TunedTable(GFX950, (row(8, 1.0), row(16, 1.0))))
    mine, later = tmp_path / "mine.yaml", tmp_path / "later.yaml"
    write_table(mine, TunedTable(GFX950, (row(8, 5.0),)))
    write_table(later, TunedTable(GFX950, (row(8, 7.0), row(32, 7.0))))
    loaded = load_device_tables(GFX950, (mine, later))
    assert loaded.table is not None
    assert [(r.M, r.time_us) for r in loaded.table.rows] == [(8, 5.0), (16, 1.0), (32, 7.0)]
    assert [(source.rows, source.used) for source in loaded.sources] == [(1, 1), (2, 1), (2, 1)]


def test_the_projects_file_for_another_cu_count_is_counted_not_used(own: Path) -> None:
    write_table(own / "gfx950.yaml", TunedTable(GFX950, (row(8, 1.0),)))
    write_table(own / "gfx950-128cu.yaml", TunedTable(SMALL, (row(8, 2.0), row(16, 2.0))))
    for device, time_us, used in ((GFX950, 1.0, [0, 1]), (SMALL, 2.0, [2, 0])):
        loaded = load_device_tables(device, ())
        assert loaded.table is not None and loaded.table.rows[0].time_us == time_us
        assert [source.used for source in loaded.sources] == used


def test_files_of_another_architecture_are_not_read(own: Path) -> None:
    (own / "gfx942.yaml").write_text("not a table")
    write_table(own / "gfx950.yaml", TunedTable(GFX950))
    assert [path.name for path in own_tables(GFX950)] == ["gfx950.yaml"]
    assert load_device_tables(GFX950, ()).table == TunedTable(GFX950)


@pytest.mark.parametrize(
    "text, message",
    [
        (None, "no such file; sweep and export to make it"),
        ("", "holds nothing; sweep and export to make it"),
        ("schema: 1\ndevice: {arch: gfx950", "torn"),
        ("schema: 2\ndevice: {arch: gfx950, cu_count: 256}\nentries: []\n", "schema: is not 1"),
    ],
)
def test_a_users_file_that_cannot_be_read_is_an_error_with_its_cure(
    own: Path, tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "mine.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=message) as error:
        load_device_tables(GFX950, (path,))
    assert str(error.value).startswith(str(path))


def test_an_empty_table_is_a_table_and_a_users_one_is_said_to_be_empty(
    own: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (own / "gfx950.yaml", tmp_path / "empty.yaml"):
        write_table(path, TunedTable(GFX950))
    loaded = load_device_tables(GFX950, (tmp_path / "empty.yaml",))
    assert loaded.table == TunedTable(GFX950)
    assert [line.getMessage() for line in caplog.records] == [
        f"{tmp_path / 'empty.yaml'} holds no rows: sweep, and export into it"
    ]


def test_rows_that_another_minor_version_of_triton_made_serve_and_are_said_once(
    own: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rows = (row(8, 1.0), row(16, 1.0), replace(row(32, 1.0), made=replace(MADE, triton="3.6.0+rocm7")))
    write_table(own / "gfx950.yaml", TunedTable(GFX950, rows))
    monkeypatch.setattr("triton.__version__", "3.9.2")
    loaded = load_device_tables(GFX950, ())
    assert loaded.table is not None
    assert [r.other_compiler for r in loaded.table.rows] == [None, None, "3.6.0+rocm7"]
    assert [line.getMessage().partition(",")[0] for line in caplog.records] == [
        "1 row for gfx950-256cu made with another Triton than 3.9.2"
    ]
    assert [needs_proof(r) for r in loaded.table.rows] == [True, True, True]  # the hash of MADE is none of today's
    today = replace(MADE, source_hash=FAMILIES["fused"].source_hash)
    assert [needs_proof(replace(row(8, 1.0), made=replace(today, triton=v))) for v in ("3.9.0", "3.10.0")] == [
        False,
        True,
    ]


def test_the_environment_is_read_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MXFP4_TABLES", raising=False)
    monkeypatch.delenv("MXFP4_MISSES", raising=False)
    assert (user_tables(), user_misses()) == ((), None)
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("MXFP4_TABLES", os.pathsep.join(("a.yaml", "", "~/b.yaml")))
    monkeypatch.setenv("MXFP4_MISSES", "~/m.txt")
    assert (user_tables(), user_misses()) == ((Path("a.yaml"), Path("/home/me/b.yaml")), Path("/home/me/m.txt"))
