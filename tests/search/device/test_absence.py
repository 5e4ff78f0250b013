"""search.device.visible: an AMD machine on which torch sees no GPU is told why, not searched offline in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from search.device.visible import why_no_gpu


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The driver is loaded, its device is there."""
    (tmp_path / "sys/class/kfd").mkdir(parents=True)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch(0o666)
    return tmp_path


def test_a_machine_without_an_amd_gpu_has_nothing_to_explain(tmp_path: Path) -> None:
    assert why_no_gpu(tmp_path) is None


def test_a_torch_of_another_kind_is_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert "is built for CUDA 13.0" in (why_no_gpu(machine) or "")


def test_a_container_without_the_device_is_told_its_flags(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.1")
    (machine / "dev/kfd").unlink()
    assert "--device=/dev/kfd" in (why_no_gpu(machine) or "")


def test_who_may_not_open_the_device_is_told_the_groups(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.1")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert "`render`" in (why_no_gpu(machine) or "")


def test_a_mask_that_hides_all_is_named(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.1")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "9")
    assert "HIP_VISIBLE_DEVICES=9 hides every GPU" in (why_no_gpu(machine) or "")
