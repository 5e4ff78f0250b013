"""Triton's cache keys of the kernels, the same in every process whatever it compiled before."""

from __future__ import annotations

from typing import Any

from kernels.triton_fused import fused_gemm_kernel
from kernels.triton_quantize import quantize_kernel
from kernels.triton_reduce import reduce_kernel, zero_kernel
from kernels.triton_staged import staged_gemm_kernel

KERNELS: tuple[Any, ...] = (fused_gemm_kernel, quantize_kernel, staged_gemm_kernel, reduce_kernel, zero_kernel)


def settle_cache_keys() -> None:
    """Hash every kernel's source in one order; to be called before a process compiles its first kernel.

    Triton hashes a kernel together with the device functions that it calls, when it first needs the key. Until
    3.6 (``DependenciesFinder._update_hash``) the globals of such a function count only if another kernel had it
    hashed before, so that a process that quantised first had another key for the fused kernel, and what it compiled
    ahead was compiled again in the GPU's process. The first kernel here is the one that most processes hash first.
    """
    for kernel in KERNELS:
        getattr(kernel, "cache_key", None)  # an interpreted kernel has none
