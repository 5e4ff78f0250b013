"""benchmarks.device_faults: a sweep that is not there to be killed is an error, not a result."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from search.device.measure import baseline

ROOT = Path(__file__).resolve().parents[2]
SWEEP = """
import subprocess, sys, time
import optuna
from optuna.trial import create_trial
from search.results.storage import open_storage
optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(storage=open_storage(sys.argv[1], create=True), study_name="s")
lives_with_parent = [sys.executable, "-c", "import sys; sys.stdin.read()"]
starts_another = f"import subprocess; other = subprocess.Popen({{lives_with_parent}}); print(flush=True); other.wait()"
pipes = {{"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}}
worker = subprocess.Popen([sys.executable, "-c", starts_another], **pipes)
worker.stdout.readline()
for number in range({trials}):
    study.add_trial(create_trial(value=1.0, user_attrs={{"record": {{"M": 16}}}}))
{end}
"""


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("device_faults")
    monkeypatch.setattr(module, "gpu_processes", lambda: "")
    monkeypatch.setattr(module, "required_gpu", lambda: None)
    return module


def sweep(end: str, trials: int) -> list[str]:
    return [sys.executable, "-c", SWEEP.format(trials=trials, end=end)]


def test_a_sweep_that_measures_is_killed_with_all_that_it_started(faults: Any) -> None:
    row = faults.killed_parent(sweep("time.sleep(600)", trials=5))
    assert (row["stored_before"], row["stored_after"], row["left"]) == (5, 5, [])
    assert (row["children"], row["gone_after_s"] < 30) == (2, True)


@pytest.mark.parametrize(
    ("end", "trials", "message"),
    [
        (
            "sys.exit('Traceback\\nerror: no such storage')",
            0,
            "code 1, 0 trials stored; it said: error: no such storage",
        ),
        ("raise ValueError('a bug')", 3, "code 1, 3 trials stored; it said: ValueError: a bug"),
        ("raise SystemExit(0)", 2, "code 0, 2 trials stored; it said nothing"),
    ],
)
def test_a_sweep_that_ends_by_itself_is_an_error_with_what_it_said(
    faults: Any, end: str, trials: int, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError) as caught:
        faults.killed_parent(sweep(end, trials))
    assert str(caught.value) == f"the sweep to be killed ended by itself with exit {message}"
    assert "said nothing" in message or message.rpartition(": ")[2] in capfd.readouterr().err  # with its traceback


def test_a_sweep_that_stores_nothing_is_killed_and_an_error(faults: Any) -> None:
    with pytest.raises(InputError, match="killed stored fewer than 5 trials in 1 s, 0 trials stored; it said nothing"):
        faults.killed_parent([sys.executable, "-c", "import time; time.sleep(600)"], start_s=1)


def test_the_program_fails_with_the_error_of_the_real_sweep(faults: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")  # so that there is nothing to measure on
    with pytest.raises(InputError, match="killed ended by itself with exit code 2, 0 trials stored; it said: error: "):
        faults.main(killed_only=True)


@pytest.mark.parametrize("device", [GFX950, DeviceKey("gfx950", 32), DeviceKey("sm_90", 132)], ids=str)
def test_every_candidate_that_misbehaves_is_legal_and_another_than_the_baseline(faults: Any, device: DeviceKey) -> None:
    candidates = [faults.candidate(group, device) for group in faults.WAYS]
    assert [one.config.check(one.shape, device) for one in candidates] == [None] * 5
    assert len({*candidates, baseline(faults.SHAPE, device)}) == 6


def test_rows_are_on_the_disk_as_soon_as_they_are_found(faults: Any, tmp_path: Path) -> None:
    output = tmp_path / "faults.json"
    faults.keep({"fault": "endless loop"}, output)
    assert [json.loads(line) for line in output.read_text().splitlines()] == [{"fault": "endless loop"}]
    faults.keep({"fault": "NaN result"}, output)
    assert len(output.read_text().splitlines()) == 2
