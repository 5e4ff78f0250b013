"""What a benchmark cannot do without."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.device import DeviceKey, local_device
from kernels.errors import InputError


def required_gpu() -> DeviceKey:
    """Key of the current GPU, for what cannot be done without one.

    Raises:
        InputError: torch finds none.
    """
    device = local_device()
    if device is None:
        raise InputError("torch finds no GPU here; run this on a machine that has one")
    return device
