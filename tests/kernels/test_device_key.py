"""kernels.device: a GPU is known by its architecture and compute units, whatever its product is called."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kernels.device import ARCHITECTURES, GFX950, OTHER_AMD, DeviceKey, local_device


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> list[SimpleNamespace]:
    """GPUs that torch finds, to be filled by the test; the last one is current."""
    found: list[SimpleNamespace] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(found))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: len(found) - 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: found[index])
    return found


def amd(arch: str, units: int, name: str) -> SimpleNamespace:
    return SimpleNamespace(gcnArchName=arch, multi_processor_count=units, name=name, major=9, minor=5)


def test_products_of_one_architecture_and_size_are_one_device(
    gpus: list[SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.0")
    gpus.append(amd("gfx950:sramecc+:xnack-", 256, "AMD Instinct MI350X"))
    gpus.append(amd("gfx950", 256, "AMD Radeon Graphics"))
    gpus.append(amd("gfx950:sramecc+:xnack-", 128, "AMD Instinct MI350P"))
    assert [local_device(0), local_device(1)] == [GFX950, GFX950]
    assert local_device(2) == local_device() == DeviceKey("gfx950", 128)


def test_an_nvidia_gpu_is_known_by_its_compute_capability(
    gpus: list[SimpleNamespace], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    gpus.append(SimpleNamespace(multi_processor_count=132, major=9, minor=0, name="NVIDIA H200"))
    assert str(local_device()) == "sm_90-132cu"


def test_without_a_gpu_there_is_no_device(gpus: list[SimpleNamespace]) -> None:
    assert local_device() is None


def test_the_rates_of_an_architecture_are_those_of_its_data_sheet() -> None:
    # MI355X: 10 PFLOP/s of FP4 at 8 TB/s. MI300X: 1307.4 TFLOP/s of bf16. H200: 989.4 TFLOP/s of dense bf16.
    sheets = {"gfx950": 10_066, "gfx942": 1_307.4, "sm_90": 989.4}
    rates = {arch: found.tflops(found.cu_counts[0]) for arch, found in ARCHITECTURES.items()}
    assert rates == pytest.approx(sheets, rel=1e-3)


def test_the_limits_are_memory_for_small_m_and_compute_for_large() -> None:
    # 16x2112x7168: 2 x 16 x (7168 + 2112) + 2112 x 7168 x 17/32 B at 8 TB/s; half the compute units take twice as long.
    whole, half = (ARCHITECTURES["gfx950"].limits_us(count, 2 * 16 * 2112 * 7168, 8_339_456) for count in (256, 128))
    assert max(whole) == max(half) == pytest.approx(8_339_456 / 8e6)
    assert half[0] == pytest.approx(2 * whole[0])
    # 16384x8192x28672 at 10.066 PFLOP/s.
    assert max(ARCHITECTURES["gfx950"].limits_us(256, 2 * 16384 * 8192 * 28672, 1)) == pytest.approx(764.6, abs=0.2)
    assert OTHER_AMD.limits_us(104, 1, 1) == ()


def test_an_unknown_architecture_has_what_its_vendor_has_and_no_rates() -> None:
    amd, nvidia = DeviceKey("gfx90a", 104).architecture, DeviceKey("sm_80", 108).architecture
    assert (amd.wave, nvidia.wave) == (64, 32)
    assert amd.flops_per_clk == nvidia.flops_per_clk == 0
    assert not amd.scaled_fp4
