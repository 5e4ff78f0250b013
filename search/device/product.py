"""Which product a GPU is, how it is partitioned and clocked: what its architecture and compute units do not say.

Times of one product, partition or clock are not those of another: the protocol of a trial names all three, and with it
the name of the study and the row of a table. Source: the amdgpu driver's files in sysfs, PCI's list of devices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from search.evaluation import PRODUCT_MARK, SIMULATED

SYSFS: Final = Path("/sys")
AMD_PRODUCTS: Final[Mapping[str, str]] = MappingProxyType({"75a0": "MI350X", "75a3": "MI355X"})


@dataclass(frozen=True)
class Product:
    """What sets two GPUs of one architecture and size apart.

    Args:
        name: ``MI355X``, or ``pci-75a3`` where the number is new.
        compute_partition: ``SPX``, ``DPX``, ``QPX`` or ``CPX``; None where the driver does not say.
        memory_partition: ``NPS1``, ``NPS2``, …; None where the driver does not say.
        max_clock_mhz: Highest clock of the compute units; None where the driver does not say.
    """

    name: str
    compute_partition: str | None = None
    memory_partition: str | None = None
    max_clock_mhz: int | None = None

    def __str__(self) -> str:
        """As in a protocol: ``MI355X-SPX-NPS1-2400MHz``."""
        clock = None if self.max_clock_mhz is None else f"{self.max_clock_mhz}MHz"
        return "-".join(part for part in (self.name, self.compute_partition, self.memory_partition, clock) if part)


def pci_address(properties: Any) -> str | None:
    """Address of the GPU on the PCI bus, as sysfs writes it; None where torch's ``properties`` lack it."""
    if not hasattr(properties, "pci_bus_id"):
        return None
    return f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"


def product_of(name: str, address: str | None, sysfs: Path = SYSFS) -> Product | None:
    """The product behind a PCI address, or the one that its name gives away; None where neither says."""
    if name.lower().startswith(SIMULATED):
        return Product(SIMULATED)
    folder = None if address is None else sysfs / "bus" / "pci" / "devices" / address
    number = None if folder is None else _line(folder / "device")
    if folder is None or number is None:
        return None
    number = number.removeprefix("0x")
    return Product(
        AMD_PRODUCTS.get(number, f"pci-{number}"),
        _line(folder / "current_compute_partition"),
        _line(folder / "current_memory_partition"),
        _max_clock_mhz(folder / "pp_dpm_sclk"),
    )


def protocol_on(protocol: str, product: Product | None) -> str:
    """``protocol`` as it is recorded for a GPU of ``product``."""
    return protocol if product is None else f"{protocol}{PRODUCT_MARK}{product}"


def _line(path: Path) -> str | None:
    """What a file of one line says; None where there is none or it may not be read."""
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _max_clock_mhz(path: Path) -> int | None:
    """The largest clock of a list like ``1: 2400Mhz *``."""
    clocks = [int(clock) for clock in re.findall(r"(\d+)\s*[Mm][Hh]z", _line(path) or "")]
    return max(clocks, default=None)
