"""Why torch finds no GPU on a machine that has one of AMD's: the build, the container, the groups, or a mask."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from search.device.visible import CUDA, HIP, ROCR

C_CURE = "apt-get install gcc python3-dev"  # where Triton cannot compile what launches its kernels
KFD_DEVICE, KFD_CLASS = Path("dev/kfd"), Path("sys/class/kfd")  # what opens the GPUs; what says that there are some


def why_no_gpu(root: Path = Path("/")) -> str | None:
    """One line with a cure; None where nothing says that there is an AMD GPU."""
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
    mask = next((name for name in (ROCR, HIP, CUDA) if os.environ.get(name)), None)
    if mask is not None:
        return f"{mask}={os.environ[mask]} hides every GPU; unset it, or list GPUs that are there"
    return "the driver is there and torch opens no GPU; see what `rocminfo` and `dmesg` say"
