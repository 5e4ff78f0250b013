"""What the driver says of the GPU: clocks, throttling, other processes. What it does not say is left out."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

# Bits of nvmlDeviceGetCurrentClocksEventReasons that mean less than the full clock while busy (NVML reference).
THROTTLING: Mapping[int, str] = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal limit", 0x40: "hardware thermal slowdown",
    0x80: "power brake",
}  # fmt: skip


@dataclass(frozen=True)
class GpuState:
    """A reading.

    Args:
        clock_mhz: Clock of the compute units; None if the driver does not say.
        temperature_c: Of the chip.
        notes: What disturbs a measurement: throttling, other processes on the GPU.
    """

    clock_mhz: int | None = None
    temperature_c: int | None = None
    notes: tuple[str, ...] = ()


def read_state(index: int = 0) -> GpuState:
    """State of GPU ``index`` of those that torch sees."""
    try:
        clock_mhz, temperature_c = torch.cuda.clock_rate(index), torch.cuda.temperature(index)
    except (ImportError, RuntimeError, AttributeError):  # no pynvml or amdsmi, or a driver that refuses
        return GpuState()
    return GpuState(clock_mhz, temperature_c, _nvidia_notes(index) if torch.version.hip is None else ())


def driver_version() -> str | None:
    """Version of the kernel driver, or None."""
    if torch.version.hip is not None:
        try:
            with open("/sys/module/amdgpu/version") as file:
                return file.read().strip()
        except OSError:
            return None
    nvml = _nvml()
    return None if nvml is None else str(nvml.nvmlSystemGetDriverVersion())


def _nvml() -> Any:
    """NVML's module, initialised, or None."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def _nvidia_notes(index: int) -> tuple[str, ...]:
    nvml = _nvml()
    if nvml is None:
        return ()
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(index).uuid}")
        reasons = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        others = [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(handle) if p.pid != os.getpid()]
    except nvml.NVMLError:
        return ()
    notes = [text for bit, text in THROTTLING.items() if reasons & bit]
    return (*notes, *([f"{len(others)} other processes"] if others else []))
