"""search.device.gpu without a GPU: which GPUs a process sees, what errors mean, and what is forgotten."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
from fake_gpu import FakeGpu

from kernels.errors import CompileError, IllegalConfigError, InputError, KernelError, ResourceLimitError
from kernels.rocm.runtime import HipError
from search.device.gpu import (
    CaptureRefusedError,
    GpuFaultError,
    fault_line,
    kernel_error,
    one_line,
    start_driver,
)


def test_an_error_after_which_the_gpu_does_not_answer_is_a_fault_whatever_it_says() -> None:
    assert isinstance(kernel_error(RuntimeError("out of memory"), FakeGpu(broken=True)), GpuFaultError)
    assert kernel_error(RuntimeError("a bug"), FakeGpu()) is None


def test_memory_that_others_hold_is_in_the_reason_of_a_candidate_that_found_none_left() -> None:
    error = kernel_error(RuntimeError("HIP out of memory"), FakeGpu(others="other processes hold 270 of 288 GiB"))
    assert isinstance(error, ResourceLimitError)
    assert str(error) == "HIP out of memory; other processes hold 270 of 288 GiB"
    assert str(kernel_error(RuntimeError("HIP out of memory"), FakeGpu())) == "HIP out of memory"


def test_a_launch_that_hip_refuses_is_the_configurations_fault() -> None:
    refused = HipError("hipModuleLaunchKernel: hipErrorInvalidConfiguration")
    assert isinstance(kernel_error(refused, FakeGpu()), IllegalConfigError)


# What torch, HIP and Triton say on ROCm, and what that is.
TEXTS = [
    ("HIP error: operation not permitted when stream is capturing", CaptureRefusedError),
    ("HIP error: invalid device function", CompileError),
    ("AMD code-generation failure: ran out of registers", CompileError),
]


@pytest.mark.parametrize("text, kind", TEXTS)
def test_an_error_of_one_candidate_is_no_bug_that_ends_the_sweep(text: str, kind: type[KernelError]) -> None:
    assert type(kernel_error(RuntimeError(text), FakeGpu())) is kind


@pytest.mark.parametrize(
    "error", [RuntimeError("Failed to find C compiler. Please specify"), subprocess.CalledProcessError(1, ["gcc"])]
)
def test_a_launcher_that_cannot_be_compiled_is_said_with_its_cure(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise error

    driver = SimpleNamespace(active=SimpleNamespace(get_current_device=fails))
    monkeypatch.setattr("search.device.gpu.triton", SimpleNamespace(runtime=SimpleNamespace(driver=driver)))
    with pytest.raises(InputError, match=r"launcher cannot be compiled: .*; apt-get install gcc python3-dev"):
        start_driver()


@pytest.mark.parametrize(
    "text, line", [("a\nHW Exception by GPU node-1\n", "HW Exception by GPU node-1"), ("a\n", None)]
)
def test_the_line_of_a_fault_is_found_in_what_a_process_said(text: str, line: str | None) -> None:
    assert fault_line(text) == line


def test_one_line_is_the_first_line_or_the_type() -> None:
    assert one_line(RuntimeError("CUDA error: misaligned address\nCompile with TORCH_USE_CUDA_DSA")) == (
        "CUDA error: misaligned address"
    )
    assert one_line(ValueError()) == "ValueError"
