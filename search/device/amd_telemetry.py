"""What AMD's driver says of a GPU through amdsmi: clock, heat, power, throttling, other processes.

The GPU is found by its address on the PCI bus: amdsmi counts all GPUs of the machine, whatever is masked. Source: the
reference of amdsmi's Python interface, ROCm 7.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

LIBRARY: Final = "amdsmi"
ABSENT_NOTE: Final = (
    "no telemetry: amdsmi is not installed, so that throttling and other users of the GPU go unnoticed; "
    "`pip install amdsmi` of this ROCm's version, or /opt/rocm/share/amd_smi"
)
UNKNOWN: Final = 0xFFFF  # and above: what amdsmi's C structures hold where the driver does not say
# Shares of the last period, in percent, of amdsmi_get_violation_status.
VIOLATIONS: Final[Mapping[str, str]] = MappingProxyType(
    {"per_ppt_pwr": "power cap", "per_socket_thrm": "thermal limit", "per_hbm_thrm": "memory too hot"}
)


def is_there() -> bool:
    """Whether the library is installed; it is not loaded."""
    return importlib.util.find_spec(LIBRARY) is not None


def handle_of(library: Any, address: str) -> Any:
    """Amdsmi's handle of the GPU at a PCI address like ``0000:75:00.0``."""
    library.amdsmi_init()
    return library.amdsmi_get_processor_handle_from_bdf(address)


def clock_mhz(library: Any, handle: Any) -> int | None:
    """Clock of the compute units; None where it is not known. Readings may be 100 ms old."""
    return _known(library.amdsmi_get_clock_info(handle, library.AmdSmiClkType.GFX)["clk"])


def temperature_c(library: Any, handle: Any) -> int | None:
    """Of the hottest place of the chip; None where it is not known."""
    kinds, metrics = library.AmdSmiTemperatureType, library.AmdSmiTemperatureMetric
    return _known(library.amdsmi_get_temp_metric(handle, kinds.HOTSPOT, metrics.CURRENT))


def power_w(library: Any, handle: Any) -> int | None:
    """Power of the socket, as MI300 and newer report it; None where it is not known."""
    return _known(library.amdsmi_get_power_info(handle)["current_socket_power"])


def _known(said: object) -> int | None:
    """A reading; None for "N/A", and for the numbers that stand for it."""
    return said if isinstance(said, int) and 0 < said < UNKNOWN else None


def notes(library: Any, handle: Any) -> tuple[str, ...]:
    """What disturbs a measurement."""
    status = library.amdsmi_get_violation_status(handle)
    shares = {text: status.get(name) for name, text in VIOLATIONS.items()}
    throttled = [text for text, share in shares.items() if isinstance(share, (int, float)) and share > 0]
    pids = [process["pid"] for process in library.amdsmi_get_gpu_process_list(handle)]
    own = (os.getpid(), os.getppid())
    others = [pid for pid in pids if pid not in own] if own[0] in pids else []  # in a container pids may differ
    return (*throttled, *([f"{len(others)} other processes"] if others else []))
