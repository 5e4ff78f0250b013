"""The GPU behind one small interface: load, launch, capture, replay. The only module that touches it."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
import triton
from triton.errors import TritonError
from triton.runtime.errors import OutOfResources

from kernels.device import DeviceKey
from kernels.errors import (
    CompileError,
    IllegalConfigError,
    InputError,
    KernelError,
    ResourceLimitError,
)
from kernels.launches.program import Program
from kernels.rocm.runtime import HipError, rocm_version
from kernels.runtime.plan import LoadedProgram, load_program
from kernels.runtime.runner import settle_cache_keys
from search.device.inventory import GpuFacts, facts_of
from search.device.peaks import last_level_cache_bytes
from search.device.product import Product
from search.device.telemetry import GpuState, crowding, driver_version, read_state
from search.device.timing import Launch
from search.device.visible import C_CURE

# An event of HIP is a barrier with a release of the whole system, some microseconds. Source: clr, hip_event.cpp.
HIP_SAMPLE_US = 1500.0
# In what ROCr writes before it aborts the process. Source: ROCR-Runtime, runtime.cpp and amd_gpu_agent.cpp.
FAULT_MARKS = ("Memory access fault", "HW Exception", "HSA_STATUS_ERROR")
REASON_LENGTH = 300  # characters kept of a driver's message


class GpuFaultError(KernelError):
    """A kernel broke the GPU's context: this process can use it no longer and must end."""


class CaptureRefusedError(KernelError):
    """The runtime does not capture a launch of this candidate into a graph."""


class ReplayDiffersError(GpuFaultError):
    """A captured graph did not compute what its launches compute: this process's graphs are not to be trusted.

    ROCm 7.2.0 to 7.2.3 corrupt the graphs of some processes, 7.2.4 was seen to read stale memory. Source:
    https://github.com/ROCm/clr/issues/279, https://github.com/ROCm/hip/issues/3902.
    """


@dataclass(frozen=True)
class Origin:
    """What a measurement was made on.

    Args:
        rocm_or_cuda: Toolkit that torch was built for, and its version.
        product: What sets it apart from others of the same device; None on CUDA.
    """

    device: DeviceKey
    device_name: str
    rocm_or_cuda: str
    driver: str | None
    product: Product | None = None


class Gpu:
    """The first GPU that this process sees.

    ``least_sample_us`` is that of a replay between two events, below which their own time would count; 0 is no limit.
    """

    def __init__(self) -> None:
        start_driver()
        settle_cache_keys()  # those of the processes that compile ahead
        self.torch_device = torch.device("cuda", 0)
        self.least_sample_us = 0.0 if torch.version.hip is None else HIP_SAMPLE_US

    def origin(self) -> Origin:
        """What it is."""
        return _first_gpu()

    def load(self, program: Program, tensors: Mapping[str, torch.Tensor]) -> LoadedProgram:
        """Compile and load every kernel of ``program``.

        Raises:
            KernelError: The compiler refuses it, or it needs more than the GPU has.
        """
        try:
            return load_program(program, tensors)
        except OutOfResources as error:
            raise ResourceLimitError(one_line(error)) from error
        except TritonError as error:
            raise CompileError(one_line(error)) from error

    def launch(self, loaded: LoadedProgram, tensors: Mapping[str, torch.Tensor]) -> None:
        """Queue every launch on the current stream, as the dispatcher's plans do."""
        loaded.run(tensors)

    def synchronize(self) -> None:
        """Wait until everything queued has run; a fault of a kernel shows here."""
        torch.cuda.synchronize(self.torch_device)

    def cache_bytes(self) -> int:
        """Size of the last-level cache."""
        return last_level_cache_bytes(_first_gpu().device, torch.cuda.get_device_properties(0).L2_cache_size)

    def capture(self, launches: Sequence[Launch]) -> Any:
        """A graph that runs ``launches`` in order; each has run before, so that nothing is loaded in between."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for one in launches:
                one()
        return graph

    def replay(self, graph: Any) -> None:
        """Run ``graph`` once, and wait for it."""
        graph.replay()
        self.synchronize()

    def replay_us(self, graph: Any, count: int) -> list[float]:
        """Device time of each of ``count`` replays, behind one that is not timed and hides the submission."""
        event: Any = partial(torch.cuda.Event, enable_timing=True)
        events = [(event(), event()) for _ in range(count)]
        graph.replay()
        for start, end in events:
            start.record()
            graph.replay()
            end.record()
        self.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in events]

    def state(self) -> GpuState:
        """Clocks and disturbances."""
        state, others = read_state(), crowding()
        return state if others is None else replace(state, notes=(*state.notes, others))

    def crowding(self) -> str | None:
        """What other processes hold of its memory, in words; None where it is little."""
        return crowding()


def start_driver() -> None:
    """Have Triton compile, in C, and load the helper that it launches through.

    Raises:
        InputError: There is no C compiler, or it does not find Python's headers.
    """
    try:
        triton.runtime.driver.active.get_current_device()
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        raise InputError(f"Triton's launcher cannot be compiled: {one_line(error)}; {C_CURE}") from error
    except RuntimeError as error:
        if "C compiler" not in str(error):
            raise
        raise InputError(f"Triton's launcher cannot be compiled: {one_line(error)}; {C_CURE}") from error


@cache
def _first_gpu() -> Origin:
    gpu = facts_of(0)
    toolkit = f"cuda {torch.version.cuda}" if torch.version.hip is None else f"rocm {rocm_version()}"
    return Origin(gpu.key, _display_name(gpu), toolkit, driver_version(), gpu.product)


def _display_name(gpu: GpuFacts) -> str:
    """Torch's name, which some ROCm images leave empty, with what tells this GPU from its neighbours."""
    return " ".join(part for part in (gpu.name, gpu.address and f"at {gpu.address}") if part)


def kernel_error(error: RuntimeError, gpu: Gpu) -> KernelError | None:
    """What ``error`` says of the configuration; None where it is a bug of this program."""
    text = one_line(error)
    try:
        gpu.synchronize()
    except RuntimeError as fault:
        return GpuFaultError(one_line(fault))
    if isinstance(error, torch.OutOfMemoryError) or "out of memory" in text:
        others = gpu.crowding()
        return ResourceLimitError(text if others is None else f"{text}; {others}")
    if "captur" in text:  # an operation that a graph cannot hold
        return CaptureRefusedError(text)
    if "invalid device function" in text or "code-generation failure" in text:
        return CompileError(text)
    if isinstance(error, HipError) or "Triton Error" in text:  # an option or a grid that the driver refuses
        return IllegalConfigError(text)
    if "PassManager" in text or "ptxas" in text.lower():
        return CompileError(text)
    return None


def fault_line(errors: str) -> str | None:
    """What a process that ended of its GPU's fault wrote of that: the last such line of its errors, or None."""
    lines = [line.strip() for line in errors.splitlines() if any(mark in line for mark in FAULT_MARKS)]
    return lines[-1][:REASON_LENGTH] if lines else None


def one_line(error: BaseException) -> str:
    """The first line of an error's text, or its type."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:REASON_LENGTH]
