"""run_search.py calibrate: on a GPU it measures, without one it says so; what it finds is kept with the device."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from simulated_rocm.machine import GpuSpec, MachineSpec, environment
from typer.testing import CliRunner

from kernels.device import GFX950
from kernels.errors import InputError
from search.cli import app
from search.commands import calibrate
from search.commands.calibrate import forget
from search.evaluators.targets import make_evaluator
from search.gfx950.model.calibrated import Calibration, load_calibration, path_of

ROOT = Path(__file__).resolve().parents[3]
FOUND = Calibration(
    GFX950, "MI355X", "2026-11-30", {}, {"vector": 0.03}, 2250.0, {"cache_tbs": 7.1}, 1.7, 0.9, ((0, 0.0), (256, 6.4))
)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def test_without_a_gpu_it_says_that_it_measures_on_one() -> None:
    with pytest.raises(InputError, match=r"^calibrate measures on a GPU: "):
        calibrate.calibrate(print)


def test_what_is_found_is_kept_until_it_is_forgotten() -> None:
    calibrate.store(FOUND)
    assert load_calibration(GFX950) == FOUND
    assert CliRunner().invoke(app, ["calibrate", "--forget", "gfx950-256cu"]).output == (
        "forgot what was measured on gfx950-256cu\n"
    )
    assert load_calibration(GFX950) is None
    assert not forget(GFX950)


def test_a_folder_that_cannot_be_made_is_named_with_the_cure(data: Path) -> None:
    (data / "data").touch()
    with pytest.raises(InputError, match=rf"^{path_of(GFX950).parent}: cannot be made .*; set XDG_DATA_HOME"):
        calibrate.store(FOUND)


def test_later_predictions_use_it_under_a_protocol_of_their_own_and_say_so(data: Path) -> None:
    calibrate.store(FOUND)
    notes: list[str] = []
    evaluator = make_evaluator("gfx950", jobs=1, cache=data / "cache", note=notes.append)
    evaluator.close()
    assert evaluator.protocol == "offline-gfx950-s2-cold-calibrated-2026-11-30"
    assert notes == ["times are predicted with what `calibrate` measured on gfx950-256cu on 2026-11-30"]


@pytest.mark.slow
@pytest.mark.skipif(None in map(shutil.which, ("cc", "llvm-objdump")), reason="no C compiler or LLVM")
def test_every_probe_runs_on_a_rocm_through_tritons_own_driver() -> None:
    machine = environment(MachineSpec(gpus=(GpuSpec(name="Simulated MI355X", compute_units=2),)))
    done = subprocess.run(
        [sys.executable, "run_search.py", "calibrate", "--brief"],
        cwd=ROOT, env=machine, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["launch", "gap", "vector", "matrix"]
    assert lines[-1] == "not stored: this was no measurement"
