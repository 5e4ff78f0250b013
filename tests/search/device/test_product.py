"""search.device.product: MI350X and MI355X, partitions and clocks are told apart in what a trial is recorded by."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from search.device.product import Product, pci_address, product_of, protocol_on

ADDRESS = "0000:75:00.0"


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """As the amdgpu driver writes it for an MI355X in one partition."""
    folder = tmp_path / "bus" / "pci" / "devices" / ADDRESS
    folder.mkdir(parents=True)
    (folder / "device").write_text("0x75a3\n")
    (folder / "current_compute_partition").write_text("SPX\n")
    (folder / "current_memory_partition").write_text("NPS1\n")
    (folder / "pp_dpm_sclk").write_text("0: 132Mhz *\n1: 2400Mhz\n")
    return tmp_path


def test_the_product_is_read_where_torch_gives_no_name(sysfs: Path) -> None:
    assert product_of("", ADDRESS, sysfs) == Product("MI355X", "SPX", "NPS1", 2400)
    assert protocol_on("cold-graph-v1", product_of("", ADDRESS, sysfs)) == "cold-graph-v1@MI355X-SPX-NPS1-2400MHz"


def test_products_of_one_architecture_and_size_have_protocols_of_their_own(sysfs: Path) -> None:
    first = protocol_on("cold-graph-v1", product_of("", ADDRESS, sysfs))
    (sysfs / "bus" / "pci" / "devices" / ADDRESS / "device").write_text("0x75a0\n")
    assert protocol_on("cold-graph-v1", product_of("", ADDRESS, sysfs)) != first


def test_what_the_driver_does_not_say_is_left_out(sysfs: Path) -> None:
    folder = sysfs / "bus" / "pci" / "devices" / ADDRESS
    for name in ("current_compute_partition", "current_memory_partition", "pp_dpm_sclk"):
        (folder / name).unlink()
    (folder / "device").write_text("0x1234\n")
    assert str(product_of("AMD Radeon Graphics", ADDRESS, sysfs)) == "pci-1234"
    assert product_of("AMD Radeon Graphics", "0000:99:00.0", sysfs) is None
    assert product_of("AMD Radeon Graphics", None, sysfs) is None


def test_without_a_product_a_protocol_and_so_every_study_of_before_keeps_its_name() -> None:
    assert protocol_on("cold-graph-v1", None) == "cold-graph-v1"


def test_the_address_is_that_of_sysfs() -> None:
    assert pci_address(SimpleNamespace(pci_domain_id=0, pci_bus_id=0x75, pci_device_id=0)) == ADDRESS
    assert pci_address(SimpleNamespace(name="old torch")) is None
