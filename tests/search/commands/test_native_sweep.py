"""A sweep, an export and a verification with the native families, through the command line, on real machine code."""

from __future__ import annotations

from pathlib import Path

import pytest
from compiled_programs import skip_unless_here
from typer.testing import CliRunner

from kernels.rocm.code_objects import PATH_VARIABLE
from kernels.rocm.compiler import COMPILER_VARIABLE
from kernels.tables.file import load_table
from search.cli import app
from search.results import load

SHAPE = "8x256x512"


def test_hip_and_code_objects_are_swept_exported_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_unless_here("staged_hip")
    skip_unless_here("staged_ck")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    common = ("--results", str(tmp_path))
    run = CliRunner().invoke
    swept = run(app, ["sweep", SHAPE, "--target", "gfx950", "--families", "staged_hip,staged_ck", "--trials", "8",
                      "--jobs", "1", *common])  # fmt: skip
    assert swept.exit_code == 0, swept.output
    frame = load(tmp_path)
    assert set(frame["family"]) == {"staged_hip", "staged_ck"}
    assert set(frame["outcome"]) == {"ok"}
    assert (frame["checked_on"] == "simulator").all()
    table = tmp_path / "table.yaml"
    assert run(app, ["export", *common, "--output", str(table)]).exit_code == 0
    (row,) = load_table(table).rows
    assert (row.family, row.deterministic) == (str(frame.loc[frame["predicted_us"].idxmin(), "family"]), True)
    verified = run(app, ["verify", "--table", str(table), "--on", "simulator"])
    assert (verified.exit_code, verified.output.splitlines()[-1]) == (
        0, "1 row for gfx950-256cu on the simulator: 1 ok, 0 wrong"
    )  # fmt: skip


def test_a_sweep_says_once_what_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMPILER_VARIABLE, str(tmp_path / "nothing"))
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    arguments = ["sweep", SHAPE, "16x256x512", "--target", "gfx950", "--trials", "1", "--jobs", "1"]
    done = CliRunner().invoke(app, [*arguments, "--results", str(tmp_path)])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    for family in ("staged_hip", "staged_ck", "aiter"):
        assert said.count(f"{family} is left out: ") == 1


@pytest.mark.parametrize("family", ["staged_hip", "staged_ck", "aiter"])
def test_asking_for_an_absent_family_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str
) -> None:
    monkeypatch.setenv(COMPILER_VARIABLE, str(tmp_path / "nothing"))
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    arguments = ["sweep", SHAPE, "--target", "gfx950", "--families", f"fused,{family}", "--results", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: --families {family}: ")
    assert done.stderr.count("\n") == 1
