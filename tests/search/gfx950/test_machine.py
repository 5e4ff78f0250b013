"""search.gfx950.machine: occupancy and bandwidth against the published tables."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.device import DeviceKey
from search.gfx950.machine import AITER, COLD, GPUMODE, MI355X, WARM, Harness, Machine, machine_of


# The row of the vendor's table: VGPRs of a lane -> waves a SIMD.
@pytest.mark.parametrize(
    "vgprs, waves", [(64, 8), (72, 7), (80, 6), (96, 5), (128, 4), (168, 3), (256, 2), (512, 1), (1, 8), (0, 8)]
)
def test_waves_by_registers_follow_the_table(vgprs: int, waves: int) -> None:
    assert MI355X.waves_by_registers(vgprs) == waves


@pytest.mark.parametrize("vgprs, waves", [(65, 7), (73, 6), (81, 5), (97, 4), (129, 3), (169, 2), (257, 1)])
def test_registers_are_allocated_in_steps_of_eight(vgprs: int, waves: int) -> None:
    assert MI355X.waves_by_registers(vgprs) == waves


@pytest.mark.parametrize(
    "vgprs, lds_bytes, waves, resident",
    [
        (64, 0, 4, 8),  # 8 waves x 4 SIMDs / 4 waves
        (128, 0, 8, 2),  # 4 waves a SIMD, a workgroup puts 2 on each
        (256, 0, 16, 0),  # 2 waves a SIMD hold 8 waves
        (512, 163840, 4, 1),  # AITER's kernels: all registers, all LDS
        (64, 81920, 4, 2),
        (64, 81921, 4, 1),  # 65 steps of 1280 B
        (64, 19936, 4, 8),  # 16 steps, 128 steps in all
        (64, 163841, 4, 0),  # more LDS than there is
        (168, 1, 1, 12),
    ],
)
def test_resident_workgroups_are_limited_by_registers_and_lds(
    vgprs: int, lds_bytes: int, waves: int, resident: int
) -> None:
    assert MI355X.resident_workgroups(vgprs, lds_bytes, waves) == resident
    assert MI355X.occupancy_waves_per_simd(vgprs, lds_bytes, waves) == resident * waves / 4


def test_judges_columns_of_configurations_at_once() -> None:
    resident = MI355X.resident_workgroups(np.array([64, 512]), np.array([0, 163840]), np.array([4, 4]))
    assert np.asarray(resident).tolist() == [8, 1]


@pytest.mark.parametrize(
    "workgroups, tbs", [(32, 1.53), (64, 2.86), (96, 3.72), (128, 4.58), (256, 6.44), (9999, 6.44)]
)
def test_cold_bandwidth_grows_with_active_workgroups(workgroups: int, tbs: float) -> None:
    assert Machine(harness=GPUMODE).hbm_bandwidth_tbs(workgroups) == pytest.approx(tbs)


def test_bandwidth_stops_at_the_number_of_compute_units() -> None:
    assert Machine(harness=GPUMODE, cu_count=128).hbm_bandwidth_tbs(256) == pytest.approx(4.58)


def test_aiters_harness_has_one_bandwidth() -> None:
    assert MI355X.harness is AITER
    assert MI355X.hbm_bandwidth_tbs(1) == MI355X.hbm_bandwidth_tbs(256) == 8.0


@given(st.integers(1, 512), st.integers(0, 163840), st.sampled_from([1, 2, 4, 8, 16]))
def test_residents_fit(vgprs: int, lds_bytes: int, waves: int) -> None:
    resident = int(MI355X.resident_workgroups(vgprs, lds_bytes, waves))
    assert resident * waves <= 4 * 8
    assert resident * lds_bytes <= 163840
    assert -(-resident * waves // 4) * vgprs <= 512


@pytest.mark.parametrize(
    ("harness", "operand_bytes", "warm"),
    [(AITER, 2e6, True), (AITER, 3e6, False), (GPUMODE, 1.0, False), (COLD, 1.0, False), (WARM, 2e8, True)],
    ids=lambda value: value.name if isinstance(value, Harness) else str(value),
)
def test_a_harness_says_what_is_still_in_the_cache(harness: Harness, operand_bytes: float, warm: bool) -> None:
    assert harness.is_warm(operand_bytes) is warm


def test_a_device_of_another_architecture_is_no_machine_of_this_model() -> None:
    assert machine_of(DeviceKey("gfx950", 128)) == Machine(cu_count=128)
    assert [machine_of(DeviceKey(arch, 132)) for arch in ("sm_90", "gfx942", "gfx9500")] == [None] * 3
