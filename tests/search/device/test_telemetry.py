"""search.device.telemetry: what the driver says is noted, what it does not say is left out."""

from __future__ import annotations

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from search.device.telemetry import GpuState, driver_version, read_state


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
    monkeypatch.setattr(torch.cuda, "temperature", lambda index: 41)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid="ab-cd"))


def use(monkeypatch: pytest.MonkeyPatch, found: ModuleType | None) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", found)


def test_throttling_and_other_processes_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library(0x4 | 0x20 | 0x1, (os.getpid(), os.getppid(), 4242)))  # 0x1: idle, no disturbance
    assert read_state() == GpuState(1980, 41, ("power cap", "thermal limit", "1 other processes"))


def test_foreign_process_numbers_of_a_container_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library(0, (1, 2, 3)))
    assert read_state() == GpuState(1980, 41, ())


def test_a_driver_that_refuses_or_has_no_library_leaves_the_state_open(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library(0, (), refuses=True))
    assert read_state() == GpuState()
    use(monkeypatch, None)
    assert read_state() == GpuState()
    assert driver_version() is None


def test_the_drivers_version_is_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, library(0, ()))
    assert driver_version() == "580.159"
