"""search.device.visible: a worker measures on the GPU that its parent meant. Masks as HIP's documentation has them."""

from __future__ import annotations

import os

import pytest
import torch
from simulated_rocm.machine import visible

from search.device.visible import see_none, see_only

NAMES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def set_masks(monkeypatch: pytest.MonkeyPatch, values: tuple[str | None, ...]) -> None:
    for name, value in zip(NAMES, values, strict=True):
        monkeypatch.setenv(name, value or "")
        if value is None:
            monkeypatch.delenv(name)


@pytest.mark.parametrize("before, index, after", [(None, 2, "2"), ("4,5,6", 1, "5"), ("GPU-ab,GPU-cd", 0, "GPU-ab")])
def test_a_worker_sees_one_gpu_of_those_that_its_parent_sees(
    monkeypatch: pytest.MonkeyPatch, before: str | None, index: int, after: str
) -> None:
    set_masks(monkeypatch, (None, None, before))
    see_only(index)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == after


# ROCR, HIP, CUDA, and the physical GPUs of eight that a process sees with them.
SIX = [
    ((None, None, None), (0, 1, 2, 3, 4, 5, 6, 7)),
    ((None, "5,6", None), (5, 6)),
    (("4,5", None, None), (4, 5)),
    ((None, None, "5,6"), (5, 6)),  # the habit of vLLM's users
    ((None, "3", "5,6"), (3,)),
    (("4,5,6", None, "1,2"), (5, 6)),
    ((None, "", "5,6"), (5, 6)),
]


@pytest.mark.parametrize("values, physical", SIX)
def test_on_rocm_every_combination_of_masks_gives_a_worker_the_gpu_that_its_parent_counts(
    monkeypatch: pytest.MonkeyPatch, values: tuple[str | None, ...], physical: tuple[int, ...]
) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.1")
    for index, gpu in enumerate(physical):
        set_masks(monkeypatch, values)
        assert visible(8) == physical
        see_only(index)
        assert visible(8) == (gpu,)


def test_a_rocm_worker_opens_no_other_gpu_where_the_user_masks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.1")
    set_masks(monkeypatch, (None, None, None))
    see_only(6)
    names = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    assert [os.environ.get(name) for name in names] == ["6", "0", None]


@pytest.mark.parametrize("hip, mask", [(None, "CUDA_VISIBLE_DEVICES"), ("7.1", "HIP_VISIBLE_DEVICES")])
def test_a_compiling_process_sees_none(monkeypatch: pytest.MonkeyPatch, hip: str | None, mask: str) -> None:
    monkeypatch.setattr(torch.version, "hip", hip)
    set_masks(monkeypatch, (None, "0,1", "0,1"))
    see_none()
    assert os.environ[mask] == "-1"
