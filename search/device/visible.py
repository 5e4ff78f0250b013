"""Which GPUs a process sees, how a worker is given one of them, and why torch finds none where there is one.

On ROCm two masks lie above one another: ROCr leaves out what ROCR_VISIBLE_DEVICES does not list, and HIP counts among
the rest, by HIP_VISIBLE_DEVICES or, where that is unset or empty, CUDA_VISIBLE_DEVICES. A process opens every GPU that
ROCr leaves. Source: HIP documentation, "GPU isolation"; clr ``rocdevice.cpp``.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"
C_CURE = "apt-get install gcc python3-dev"  # where Triton cannot compile what launches its kernels
KFD_DEVICE, KFD_CLASS = Path("dev/kfd"), Path("sys/class/kfd")  # what opens the GPUs; what says that there are some


def see_only(index: int) -> None:
    """Hide every GPU but the one with ``index`` among those visible now. To be called before the GPU is used."""
    if torch.version.hip is None:
        os.environ[CUDA] = _entry(CUDA, index)
        return
    mask = _first_set(HIP, CUDA)  # the variable that HIP heeds
    if mask is None:  # ROCr hides the others, so that the process does not even open them
        os.environ[ROCR] = _entry(ROCR, index)
        os.environ[HIP] = "0"
    else:
        os.environ[HIP] = _entry(mask, index)
    os.environ.pop(CUDA, None)


def see_none() -> None:
    """Hide every GPU. To be called before the GPU is used."""
    os.environ[CUDA if torch.version.hip is None else HIP] = "-1"


def _first_set(*masks: str) -> str | None:
    """The first of these variables that says anything."""
    return next((name for name in masks if os.environ.get(name)), None)


def _entry(mask: str, index: int) -> str:
    """Entry ``index`` of the list in ``mask``, which may name GPUs by UUID; without a list, the index itself."""
    listed = [name for name in os.environ.get(mask, "").split(",") if name]
    return listed[index] if index < len(listed) else str(index)


def why_no_gpu(root: Path = Path("/")) -> str | None:
    """Why torch opens none: the build, the container, the groups or a mask, with a cure; None without an AMD GPU."""
    device = root / KFD_DEVICE
    if not device.exists() and not (root / KFD_CLASS).exists():
        return None
    if torch.version.hip is None:
        build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a CPU build"
        return (
            f"this machine has an AMD GPU, but torch {torch.__version__} is {build}; "
            "use an interpreter whose torch is built for ROCm: `make clean`, then `make install PYTHON=...`"
        )
    if not device.exists():
        return "the AMD GPU is not passed into this container; start it with --device=/dev/kfd --device=/dev/dri"
    if not os.access(device, os.R_OK | os.W_OK):
        return "/dev/kfd may not be opened; join the groups `render` and `video` (container: --group-add both)"
    mask = _first_set(ROCR, HIP, CUDA)
    if mask is not None:
        return f"{mask}={os.environ[mask]} hides every GPU; unset it, or list GPUs that are there"
    return "the driver is there and torch opens no GPU; see what `rocminfo` and `dmesg` say"
