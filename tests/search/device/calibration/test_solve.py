"""calibration.solve: simulated times of the probes give back the constants that they were simulated with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from calibrated import PROBES, START, executed_probe

from kernels.device import GFX950
from search.device.calibration.solve import ExecutedProbe, calibration_of, solved
from search.gfx950.model.calibrated import Calibration, Model, with_values

CLOCK_MHZ, LAUNCH_US, GAP_US = 2250.0, 1.7, 0.9
CONSTANTS: Mapping[str, float] = {
    "mfma_throttle": 0.4, "lds_latency_clks": 90.0, "warm_latency_clks": 520.0, "cold_latency_clks": 900.0,
    "unit_bytes_per_clk": 33.0, "cache_tbs": 7.1, "write_tbs": 3.9,
}  # fmt: skip
MEMORY = ((0, 0.0), (32, 1.5), (64, 2.8), (128, 4.6), (192, 5.6), (256, 6.4))


@pytest.fixture(scope="module")
def probes() -> list[ExecutedProbe]:
    return [executed_probe(probe.name) for probe in PROBES]


def times(probes: list[ExecutedProbe], model: Model) -> dict[str, float]:
    """What each probe takes by ``model``; a kernel costs its launch besides."""
    added = {"launch": LAUNCH_US, "gap": GAP_US}
    return {one.probe.name: one.repetition_us(model) + added.get(one.probe.name, 0.0) for one in probes}


def test_times_simulated_with_other_constants_give_these_back(probes: list[ExecutedProbe]) -> None:
    harness = replace(START.machine.harness, hbm_tbs=MEMORY)
    machine = replace(START.machine, harness=harness, clock_mhz=CLOCK_MHZ)
    truth = Model(machine, with_values(START.constants, CONSTANTS))
    model, found = solved(times(probes, truth), probes, START)
    assert model.machine.clock_mhz == pytest.approx(CLOCK_MHZ, rel=1e-4)
    assert {name: found[name] for name in CONSTANTS} == pytest.approx(dict(CONSTANTS), rel=5e-3)
    assert dict(model.machine.harness.hbm_tbs) == pytest.approx(dict(MEMORY), rel=1e-2)
    assert (found["launch_us"], found["extra_kernel_us"]) == pytest.approx((LAUNCH_US, GAP_US), abs=1e-3)
    empty = Calibration(GFX950, "MI355X", "2026-11-30", {}, {})
    stored = calibration_of(model, found, empty).model()
    assert stored is not None
    assert stored.machine.harness.launch_us == pytest.approx(LAUNCH_US, abs=1e-3)
    assert (stored.constants, stored.machine.clock_mhz) == (model.constants, model.machine.clock_mhz)


def test_a_matrix_core_faster_than_its_data_sheet_is_not_slowed_down(probes: list[ExecutedProbe]) -> None:
    measured = times(probes, START)
    _, found = solved(measured | {"matrix": measured["matrix"] / 2}, probes, START)
    assert found["mfma_throttle"] == 0.0
