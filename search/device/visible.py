"""Which GPUs a process sees, and how a worker is given one of them.

On ROCm two masks lie above one another: ROCr leaves out what ROCR_VISIBLE_DEVICES does not list, and HIP counts among
the rest, by HIP_VISIBLE_DEVICES or, where that is unset or empty, CUDA_VISIBLE_DEVICES. A process opens every GPU that
ROCr leaves. Source: HIP documentation, "GPU isolation"; clr ``rocdevice.cpp``.
"""

from __future__ import annotations

import os

import torch

CUDA, HIP, ROCR = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


def see_only(index: int) -> None:
    """Hide every GPU but the one with ``index`` among those visible now. To be called before the GPU is used."""
    if torch.version.hip is None:
        os.environ[CUDA] = _entry(CUDA, index)
        return
    mask = _hip_mask()
    if mask is None:  # ROCr hides the others, so that the process does not even open them
        os.environ[ROCR] = _entry(ROCR, index)
        os.environ[HIP] = "0"
    else:
        os.environ[HIP] = _entry(mask, index)
    os.environ.pop(CUDA, None)


def see_none() -> None:
    """Hide every GPU. To be called before the GPU is used."""
    os.environ[CUDA if torch.version.hip is None else HIP] = "-1"


def _hip_mask() -> str | None:
    """The variable that HIP heeds; None where neither says anything."""
    return next((name for name in (HIP, CUDA) if os.environ.get(name)), None)


def _entry(mask: str, index: int) -> str:
    """Entry ``index`` of the list in ``mask``, which may name GPUs by UUID; without a list, the index itself."""
    listed = [name for name in os.environ.get(mask, "").split(",") if name]
    return listed[index] if index < len(listed) else str(index)
