"""What the driver says of the GPU: clocks, throttling, other processes. What it does not say is left out.

An AMD GPU is found by its address on the PCI bus: amdsmi counts all GPUs of the machine, whatever is masked. Source:
the reference of amdsmi's Python interface, ROCm 7.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import torch

from search.device.product import pci_address

# Bits of nvmlDeviceGetCurrentClocksEventReasons that mean less than the full clock while busy (NVML reference).
THROTTLING: Mapping[int, str] = {
    0x4: "power cap", 0x8: "hardware slowdown", 0x20: "thermal limit", 0x40: "hardware thermal slowdown",
    0x80: "power brake",
}  # fmt: skip

AMDSMI: Final = "amdsmi"
ABSENT_NOTE: Final = (
    "no telemetry: amdsmi is not installed, so that throttling and other users of the GPU go unnoticed; "
    "`pip install amdsmi` of this ROCm's version, or /opt/rocm/share/amd_smi"
)
UNKNOWN: Final = 0xFFFF  # and above: what amdsmi's C structures hold where the driver does not say
# Shares of the last period, in percent, of amdsmi_get_violation_status.
VIOLATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {"per_ppt_pwr": "power cap", "per_socket_thrm": "thermal limit", "per_hbm_thrm": "memory too hot"}
)
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
    notes: tuple[str, ...] = ()
    power_w: int | None = None


def read_state() -> GpuState:
    """State of the first GPU that torch sees."""
    library = _library()
    if library is None:
        return GpuState()
    module, errors = library
    try:
        return _amd_state(module) if torch.version.hip is not None else _nvidia_state(module)
    except errors:  # the driver does not say
        return GpuState()


def has_amdsmi() -> bool:
    """Whether AMD's library is installed; it is not loaded."""
    return importlib.util.find_spec(AMDSMI) is not None


def _nvidia_state(nvml: Any) -> GpuState:
    handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
    reasons = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    throttled = [text for bit, text in THROTTLING.items() if reasons & bit]
    pids = [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    power_w = round(torch.cuda.power_draw(0) / 1000)
    return GpuState(torch.cuda.clock_rate(0), (*throttled, *_others(pids)), power_w)


def _amd_state(amdsmi: Any) -> GpuState:
    """Clock readings may be 100 ms old; the power is that of the socket, as MI300 and newer report it."""
    address = pci_address(torch.cuda.get_device_properties(0))
    if address is None:
        return GpuState()
    amdsmi.amdsmi_init()
    handle = amdsmi.amdsmi_get_processor_handle_from_bdf(address)
    clock_mhz = _known(amdsmi.amdsmi_get_clock_info(handle, amdsmi.AmdSmiClkType.GFX)["clk"])
    status = amdsmi.amdsmi_get_violation_status(handle)
    shares = {text: status.get(name) for name, text in VIOLATIONS.items()}
    throttled = [text for text, share in shares.items() if isinstance(share, (int, float)) and share > 0]
    pids = [process["pid"] for process in amdsmi.amdsmi_get_gpu_process_list(handle)]
    power_w = _known(amdsmi.amdsmi_get_power_info(handle)["current_socket_power"])
    return GpuState(clock_mhz, (*throttled, *_others(pids)), power_w)


def _known(said: object) -> int | None:
    """A reading; None for "N/A", and for the numbers that stand for it."""
    return said if isinstance(said, int) and 0 < said < UNKNOWN else None


def _others(pids: Sequence[int]) -> list[str]:
    """A note on processes besides a worker and its parent; none in a container, where numbers may differ."""
    own = (os.getpid(), os.getppid())
    others = [pid for pid in pids if pid not in own] if own[0] in pids else []
    return [f"{len(others)} other processes"] if others else []


def crowding() -> str | None:
    """What other processes hold of that GPU's memory, in words; None where it is no more than contexts take."""
    free, total = torch.cuda.mem_get_info(0)
    others = total - free - torch.cuda.memory_reserved(0)
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
    name, error = ("pynvml", "NVMLError") if torch.version.hip is None else (AMDSMI, "AmdSmiException")
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
