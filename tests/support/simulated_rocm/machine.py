"""The machine that is pretended: its GPUs, what its runtime says, and which of its faults happen.

A test or the rehearsal writes it as JSON into the environment, so that every process of a sweep sees the same one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

SITE = Path(__file__).with_name("site")
VARIABLE = "SIMULATED_ROCM"  # environment variable that holds the machine


@dataclass(frozen=True)
class GpuSpec:
    """One GPU.

    Args:
        architecture: As HIP says it, flags included.
        compute_units: Of the partition that the process sees.
        name: What torch calls it.
        pci_bus: Bus number, in hexadecimal in an address.
    """

    architecture: str = "gfx950:sramecc+:xnack-"
    compute_units: int = 256
    name: str = "AMD Radeon Graphics"
    pci_bus: int = 0x75


@dataclass(frozen=True)
class MachineSpec:
    """The whole machine.

    Args:
        gpus: In the order of the runtime.
        hip: ``torch.version.hip``.
        runtime: As ``hipRuntimeGetVersion`` counts: major * 10,000,000 + minor * 100,000 + patch.
        faults: By a part of a kernel's name: ``fault`` (of memory), ``hang`` or ``abort``.
        stale_replays: Graphs run every node of a kernel with the arguments of the first.
        count_before_start: What ``device_count`` says before a GPU is used; None: the truth.
    """

    gpus: tuple[GpuSpec, ...] = (GpuSpec(),)
    hip: str = "7.1.52802"
    runtime: int = 70_152_802
    faults: Mapping[str, str] = field(default_factory=dict)
    stale_replays: bool = False
    count_before_start: int | None = None

    def to_json(self) -> str:
        """For the environment."""
        return json.dumps(asdict(self))


def machine_of(environment: Mapping[str, str]) -> MachineSpec | None:
    """The machine that ``environment`` describes; None where nothing is pretended."""
    text = environment.get(VARIABLE)
    if text is None:
        return None
    fields = json.loads(text)
    gpus = tuple(GpuSpec(**gpu) for gpu in fields.pop("gpus"))
    return MachineSpec(gpus=gpus, **fields)


def visible(count: int, environment: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """Physical indices of the GPUs that a process sees, in its order.

    ROCr masks first; HIP then takes HIP_VISIBLE_DEVICES, or CUDA_VISIBLE_DEVICES where that is unset or empty, and
    counts among what ROCr left. Source: HIP documentation, "GPU isolation"; clr ``rocdevice.cpp``.
    """
    indices = _masked(tuple(range(count)), environment.get("ROCR_VISIBLE_DEVICES"))
    return _masked(indices, environment.get("HIP_VISIBLE_DEVICES") or environment.get("CUDA_VISIBLE_DEVICES"))


def _masked(indices: tuple[int, ...], mask: str | None) -> tuple[int, ...]:
    """``mask`` of ``indices``; a list ends at its first entry that names no GPU."""
    if not mask:
        return indices
    kept: list[int] = []
    for entry in mask.split(","):
        if not entry.strip().isdigit() or int(entry) >= len(indices):
            break
        kept.append(indices[int(entry)])
    return tuple(kept)


def environment(spec: MachineSpec) -> dict[str, str]:
    """Variables that give a new Python process this machine; its own masks are taken away."""
    path = os.pathsep.join([str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])])
    masks = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    kept = {name: value for name, value in os.environ.items() if name not in masks}
    return {**kept, VARIABLE: spec.to_json(), "PYTHONPATH": path}
