"""Settings of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiter_sources import write_kernels
from hypothesis import settings

from kernels.rocm.code_objects import INDEX_NAME, PATH_VARIABLE

settings.register_profile("busy", deadline=None)  # a loaded machine is no failure
settings.load_profile("busy")

TILES = {32: 1024, 64: 1024, 96: 640, 128: 512, 160: 384, 192: 256, 224: 256, 256: 256}  # rows, columns of the widest


@pytest.fixture
def code_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An AITER of empty code objects and kernels without work: enough to build programs, not to run them."""
    rows = [(m, n) for m, widest in TILES.items() for n in range(128, widest + 1, 128)]
    folder = tmp_path / "aiter"
    folder.mkdir()
    lines = ["tile_m,tile_n,splitK,bpreshuffle,knl_name,co_name"]
    lines += [f"{m},{n},{int((m, n) in ((256, 256), (128, 512)))},1,f4gemm_{m}x{n},{m}x{n}.co" for m, n in rows]
    (folder / INDEX_NAME).write_text("\n".join(lines) + "\n")
    for m, n in rows:
        (folder / f"{m}x{n}.co").touch()
    write_kernels(folder)
    monkeypatch.setenv(PATH_VARIABLE, str(folder))
    return folder
