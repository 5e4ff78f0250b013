"""search.device.inventory on a simulated ROCm: who opens the GPUs, which are alike, what is said of the others."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_rocm.machine import GpuSpec, MachineSpec, environment

from kernels.device import GFX950, DeviceKey
from search.device.inventory import GpuFacts, alike, others_note
from search.device.product import Product

ROOT = Path(__file__).resolve().parents[3]
WHOLE = GpuFacts(0, GFX950, "AMD Radeon Graphics", "0000:75:00.0", Product("MI355X", "SPX", "NPS1", 2400))
CPX = Product("MI355X", "CPX", "NPS1", 2400)
PART = GpuFacts(
    1, DeviceKey("gfx950", 32), "AMD Radeon Graphics", "0000:85:00.0", Product("MI355X", "CPX", "NPS1", 2400)
)
ASK = """
import json
from search.device.inventory import local_gpus
gpus = local_gpus()
import torch
print(json.dumps([torch.cuda.is_initialized(), [[g.index, str(g.key), g.address] for g in gpus]]))
"""


def ask(spec: MachineSpec, **masks: str) -> tuple[bool, list[list[object]]]:
    done = subprocess.run(
        [sys.executable, "-c", ASK], cwd=ROOT, env=environment(spec) | masks, capture_output=True, text=True, check=True
    )
    opened, gpus = json.loads(done.stdout.splitlines()[-1])
    return opened, gpus


def test_on_rocm_the_process_that_asks_opens_no_gpu_and_counts_after_the_start() -> None:
    two = (GpuSpec(), GpuSpec(pci_bus=0x85))
    opened, gpus = ask(MachineSpec(gpus=two, count_before_start=0))
    assert not opened
    assert gpus == [[0, "gfx950-256cu", "0000:75:00.0"], [1, "gfx950-256cu", "0000:85:00.0"]]


def test_a_mask_for_cuda_is_heeded() -> None:
    assert ask(MachineSpec(gpus=(GpuSpec(), GpuSpec(pci_bus=0x85))), CUDA_VISIBLE_DEVICES="1")[1] == [
        [0, "gfx950-256cu", "0000:85:00.0"]
    ]


def test_gpus_of_the_larger_kind_measure_and_the_others_are_named() -> None:
    gpus = (PART, replace(WHOLE, index=2), replace(WHOLE, index=3))
    assert [gpu.index for gpu in alike(gpus)] == [2, 3]
    assert others_note(gpus, alike(gpus)) == (
        "2 GPUs of gfx950-256cu measure; left out: GPU 1 is gfx950-32cu (MI355X-CPX-NPS1-2400MHz)"
    )


@pytest.mark.parametrize("gpus", [(), (WHOLE,), (WHOLE, replace(WHOLE, index=1))])
def test_where_all_are_alike_nothing_is_said(gpus: tuple[GpuFacts, ...]) -> None:
    assert alike(gpus) == gpus
    assert others_note(gpus, gpus) is None


def test_another_product_of_the_same_size_is_another_kind() -> None:
    other = replace(WHOLE, index=1, product=Product("MI350X", "SPX", "NPS1", 2200))
    assert alike((WHOLE, other)) == (WHOLE,)
