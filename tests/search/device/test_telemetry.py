"""search.device.telemetry: what the driver says is noted, what it does not say is left out."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from search.device.telemetry import GpuState, crowding, driver_version, read_state


class NVMLError(Exception):
    """As the library's own: no RuntimeError."""


def library(reasons: int, pids: tuple[int, ...], refuses: bool = False) -> ModuleType:
    def ask(*about: object) -> object:
        raise NVMLError("not supported")

    found = ModuleType("pynvml")
    found.__dict__.update(
        NVMLError=NVMLError,
        nvmlInit=lambda: None,
        nvmlSystemGetDriverVersion=lambda: "580.159",
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetCurrentClocksEventReasons=ask if refuses else lambda handle: reasons,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [SimpleNamespace(pid=pid) for pid in pids],
    )
    return found


@pytest.fixture(autouse=True)
def readings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "clock_rate", lambda index: 1980)
    monkeypatch.setattr(torch.cuda, "power_draw", lambda index: 689_600)  # mW
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="ab-cd"))


def use(monkeypatch: pytest.MonkeyPatch, found: ModuleType | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", found)


def test_throttling_and_other_processes_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library(0x4 | 0x20 | 0x1, (os.getpid(), os.getppid(), 4242)))  # 0x1: idle, no disturbance
    assert read_state() == GpuState(1980, ("power cap", "thermal limit", "1 other processes"), 690)


def test_foreign_process_numbers_of_a_container_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library(0, (1, 2, 3)))
    assert read_state() == GpuState(1980, (), 690)


def test_a_driver_that_refuses_or_has_no_library_leaves_the_state_open(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library(0, (), refuses=True))
    assert read_state() == GpuState()
    use(monkeypatch, None)
    assert read_state() == GpuState()
    assert driver_version() is None


def test_the_drivers_version_is_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library(0, ()))
    assert driver_version() == "580.159"


class AmdSmiException(Exception):
    """As the library's own."""


def amdsmi(status: dict[str, object], pids: tuple[int, ...], clock: object = 2100, power: object = 1180) -> ModuleType:
    found = ModuleType("amdsmi")
    found.__dict__.update(
        AmdSmiException=AmdSmiException,
        AmdSmiClkType=SimpleNamespace(GFX="gfx"),
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handle_from_bdf=lambda address: {"0000:75:00.0": "mine"}[address],
        amdsmi_get_clock_info=lambda handle, kind: {"clk": clock},
        amdsmi_get_power_info=lambda handle: {"current_socket_power": power, "average_socket_power": "N/A"},
        amdsmi_get_violation_status=lambda handle: status,
        amdsmi_get_gpu_process_list=lambda handle: [{"pid": pid} for pid in pids],
    )
    return found


@pytest.fixture
def rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.1")
    properties = SimpleNamespace(pci_domain_id=0, pci_bus_id=0x75, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)


@pytest.mark.usefixtures("rocm")
def test_amds_throttling_and_other_processes_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {"per_ppt_pwr": 12, "per_socket_thrm": 0, "per_hbm_thrm": "N/A"}
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi(status, (os.getpid(), 4242)))
    assert read_state() == GpuState(2100, ("power cap", "1 other processes"), 1180)


@pytest.mark.usefixtures("rocm")
@pytest.mark.parametrize("unknown", [0, "N/A", 0xFFFF, 0xFFFFFFFF])
def test_a_clock_or_power_that_amds_driver_does_not_know_is_none_and_not_zero(
    monkeypatch: pytest.MonkeyPatch, unknown: object
) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", amdsmi({}, (), unknown, unknown))
    assert read_state() == GpuState()


@pytest.mark.parametrize(
    ("free_gib", "note"), [(200, "other processes hold 86 of the GPU's 288 GiB"), (285, None), (0, "hold 286 of")]
)
def test_memory_that_other_processes_hold_is_said(
    monkeypatch: pytest.MonkeyPatch, free_gib: int, note: str | None
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (free_gib << 30, 288 << 30))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 2 << 30)
    said = crowding()
    assert said is None if note is None else note in (said or "")
