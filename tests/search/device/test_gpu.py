"""search.device.gpu without a GPU: which GPUs a process sees, what errors mean, and what is forgotten."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from fake_gpu import FakeGpu

from kernels.errors import IllegalConfigError
from kernels.rocm.runtime import HipError, HipFunction
from search.device.gpu import (
    KERNELS_KEPT,
    GpuFaultError,
    Loaded,
    _forget_old,
    _load_native,
    kernel_error,
    one_line,
)


def test_an_error_after_which_the_gpu_does_not_answer_is_a_fault_whatever_it_says() -> None:
    assert isinstance(kernel_error(RuntimeError("out of memory"), FakeGpu(broken=True)), GpuFaultError)
    assert kernel_error(RuntimeError("a bug"), FakeGpu()) is None


def test_a_launch_that_hip_refuses_is_the_configurations_fault() -> None:
    refused = HipError("hipModuleLaunchKernel: hipErrorInvalidConfiguration")
    assert isinstance(kernel_error(refused, FakeGpu()), IllegalConfigError)


def test_a_native_kernel_reports_what_the_runtime_says_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    function = HipFunction("k", handle=1, device=0, registers=128, scratch_bytes=24, lds_bytes=4096)
    monkeypatch.setattr("search.device.gpu.load_native", lambda kernel: function)
    call: Any = SimpleNamespace(name="k", kernel=None)
    assert _load_native(call) == Loaded("k", registers=128, spills=6, lds_bytes=4096)


def test_one_line_is_the_first_line_or_the_type() -> None:
    assert one_line(RuntimeError("CUDA error: misaligned address\nCompile with TORCH_USE_CUDA_DSA")) == (
        "CUDA error: misaligned address"
    )
    assert one_line(ValueError()) == "ValueError"


def test_a_kernel_with_too_many_compiled_variants_forgets_them() -> None:
    def call(variants: int) -> Any:
        caches = {0: (dict.fromkeys(range(variants)), {}, None, None, None)}
        return SimpleNamespace(kernel=SimpleNamespace(device_caches=caches))

    few, many = call(KERNELS_KEPT), call(KERNELS_KEPT + 1)
    _forget_old(few)
    _forget_old(many)
    assert len(few.kernel.device_caches) == 1
    assert not many.kernel.device_caches
