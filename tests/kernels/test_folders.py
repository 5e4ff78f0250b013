"""Where shipped files and the user's tables lie, in a checkout and in an installed program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from kernels import disk
from kernels.device import GFX950
from kernels.tables.sources import own_tables, table_path

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A program that was installed below the folder that is given."""
    shipped = tmp_path / "share" / "mxfp4-tune"
    for name in ("spaces/fused.yaml", "tables/gfx950.yaml"):
        (shipped / name).parent.mkdir(parents=True, exist_ok=True)
        (shipped / name).touch()

    class File(PurePosixPath):
        def locate(self) -> Path:
            return tmp_path / self

    monkeypatch.setattr(disk, "_checkout", lambda: tmp_path / "site-packages" / "configs")
    monkeypatch.setattr(disk, "files", lambda name: [File("share/mxfp4-tune/spaces/fused.yaml")])
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    disk._installed.cache_clear()
    yield shipped
    disk._installed.cache_clear()


def test_a_checkout_uses_its_own_files() -> None:
    assert disk.configs_folder() == ROOT / "configs"
    assert table_path(GFX950) == ROOT / "configs" / "tables" / "gfx950.yaml"


def test_an_installed_program_finds_what_came_with_it_and_writes_to_the_users_folder(
    installed: Path, tmp_path: Path
) -> None:
    assert disk.configs_folder() == installed
    assert table_path(GFX950) == tmp_path / "data" / "mxfp4-tune" / "tables" / "gfx950.yaml"
    assert own_tables(GFX950) == (installed / "tables" / "gfx950.yaml",)


def test_a_users_table_comes_before_the_shipped_one(installed: Path) -> None:
    mine = table_path(GFX950)
    mine.parent.mkdir(parents=True)
    mine.touch()
    assert own_tables(GFX950) == (mine, installed / "tables" / "gfx950.yaml")
