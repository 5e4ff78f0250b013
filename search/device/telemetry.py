"""What the driver says of the GPU: clocks, throttling, other processes. What it does not say is left out."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from search.device import amd_telemetry
from search.device.product import pci_address

# Bits of nvmlDeviceGetCurrentClocksEventReasons that mean less than the full clock while busy (NVML reference).
THROTTLING: Mapping[int, str] = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal limit", 0x40: "hardware thermal slowdown",
    0x80: "power brake",
}  # fmt: skip

CROWDED = 0.05  # part of the memory beyond which others than this process use the GPU


@dataclass(frozen=True)
class GpuState:
    """A reading.

    Args:
        clock_mhz: Clock of the compute units; None if the driver does not say.
        notes: What disturbs a measurement: throttling, other processes on the GPU.
        power_w: Drawn by the whole socket; None if the driver does not say.
    """

    clock_mhz: int | None = None
    temperature_c: int | None = None
    notes: tuple[str, ...] = ()
    power_w: int | None = None


def read_state(index: int = 0) -> GpuState:
    """State of GPU ``index`` of those that torch sees."""
    library = _library()
    if library is None:
        return GpuState()
    module, errors = library
    try:
        return _amd_state(module, index) if torch.version.hip is not None else _nvidia_state(module, index)
    except errors:  # the driver does not say
        return GpuState()


def _nvidia_state(nvml: Any, index: int) -> GpuState:
    power_w = round(torch.cuda.power_draw(index) / 1000)
    return GpuState(torch.cuda.clock_rate(index), torch.cuda.temperature(index), _nvidia_notes(nvml, index), power_w)


def _amd_state(library: Any, index: int) -> GpuState:
    address = pci_address(torch.cuda.get_device_properties(index))
    if address is None:
        return GpuState()
    handle = amd_telemetry.handle_of(library, address)
    clock_mhz, temperature_c = amd_telemetry.clock_mhz(library, handle), amd_telemetry.temperature_c(library, handle)
    return GpuState(
        clock_mhz, temperature_c, amd_telemetry.notes(library, handle), amd_telemetry.power_w(library, handle)
    )


def crowding(index: int = 0) -> str | None:
    """What other processes hold of the GPU's memory, in words; None where it is no more than contexts take."""
    free, total = torch.cuda.mem_get_info(index)
    others = total - free - torch.cuda.memory_reserved(index)
    if others <= CROWDED * total:
        return None
    return f"other processes hold {others / 2**30:.0f} of the GPU's {total / 2**30:.0f} GiB"


def driver_version() -> str | None:
    """Version of the kernel driver, or None."""
    if torch.version.hip is not None:
        path = Path("/sys/module/amdgpu/version")
        return path.read_text().strip() if path.is_file() else None
    library = _library()
    return None if library is None else str(library[0].nvmlSystemGetDriverVersion())


def _library() -> tuple[Any, tuple[type[Exception], ...]] | None:
    """The driver's Python library, initialised, and what it raises; None where it is not installed."""
    name, error = ("pynvml", "NVMLError") if torch.version.hip is None else (amd_telemetry.LIBRARY, "AmdSmiException")
    try:
        module: Any = importlib.import_module(name)
    except (ImportError, OSError):  # amdsmi fails so where ROCm's own library is missing
        return None
    errors: tuple[type[Exception], ...] = (vars(module)[error], RuntimeError, AttributeError, KeyError)
    if torch.version.hip is None:
        try:
            module.nvmlInit()
        except errors:
            return None
    return module, errors


def _nvidia_notes(nvml: Any, index: int) -> tuple[str, ...]:
    handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(index).uuid}")
    reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    notes = [text for bit, text in THROTTLING.items() if reasons & bit]
    pids = [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    own = (os.getpid(), os.getppid())  # a worker and its parent
    others = [pid for pid in pids if pid not in own] if own[0] in pids else []  # in a container pids may differ
    return (*notes, *([f"{len(others)} other processes"] if others else []))
