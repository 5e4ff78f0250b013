"""search.gfx950.model.calibrated: what was measured on a device is kept with it, and later predictions use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError
from search.gfx950.machine import AITER
from search.gfx950.model.calibrated import Calibration, device_of, load_calibration, model_of, path_of, to_json
from search.gfx950.model.constants import CONSTANTS

FOUND = Calibration(
    GFX950, "MI355X", "2026-11-30", {"triton": "3.6.0"}, {"vector": 0.03}, 2250.0, {"cache_tbs": 7.1}, 1.7, 0.9,
    ((0, 0.0), (256, 6.4)),
)  # fmt: skip


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "mxfp4-tune/calibration/gfx950-256cu.json"


def store(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_a_calibration_is_read_as_it_was_written(data: Path) -> None:
    store(data, to_json(FOUND))
    assert path_of(GFX950) == data
    assert load_calibration(GFX950) == FOUND


def test_a_calibrated_device_is_predicted_in_a_harness_of_its_own(data: Path) -> None:
    store(data, to_json(FOUND))
    model = model_of(GFX950)
    assert model is not None and model.calibrated == "2026-11-30"
    harness = model.machine.harness
    assert (harness.name, harness.launch_us, harness.extra_kernel_us) == ("cold-calibrated-2026-11-30", 1.7, 0.9)
    assert (model.machine.clock_mhz, model.constants.cache_tbs) == (2250.0, 7.1)
    assert model.constants.write_tbs == CONSTANTS.write_tbs  # what was not measured stays


def test_a_device_that_was_not_calibrated_is_predicted_as_ever(data: Path) -> None:
    store(data, to_json(FOUND))
    model = model_of(DeviceKey("gfx950", 128))
    assert model is not None and (model.machine.harness, model.machine.cu_count) == (AITER, 128)
    assert (model.constants, model.calibrated) == (CONSTANTS, None)
    assert model_of(DeviceKey("sm_90", 132)) is None


def test_what_is_measured_on_another_architecture_is_kept_and_predicts_nothing() -> None:
    other = Calibration(DeviceKey("sm_90", 132), "H200", "2026-11-30", {}, {"vector": 0.002})
    assert other.model() is None


@pytest.mark.parametrize("text", ["{", "[]", '{"format": 0}', to_json(FOUND).replace('"arch"', '"what"')])
def test_a_file_of_others_is_one_line_with_the_cure(data: Path, text: str) -> None:
    store(data, text)
    with pytest.raises(InputError, match=rf"^{data}: cannot be read as a calibration .*run `run_search.py calibrate`"):
        load_calibration(GFX950)


def test_a_device_is_named_as_it_is_printed() -> None:
    assert device_of("gfx950-256cu") == GFX950
    with pytest.raises(InputError, match="'gfx950' names no device; write"):
        device_of("gfx950")
