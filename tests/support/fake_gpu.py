"""A GPU of the mind: kernels are the float64 reference on the CPU, times come from a script. Shared by device tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from kernels.device import DeviceKey
from kernels.launches.program import Loaded, Program
from kernels.mxfp4.reference import mxfp4_gemm_reference, to_bf16
from kernels.mxfp4.weights import PackedWeight
from kernels.runtime.plan import LoadedProgram, Plan
from search.device.gpu import Origin
from search.device.telemetry import GpuState
from search.device.timing import Launch

H200 = DeviceKey("sm_90", 132)
ORIGIN = Origin(H200, "Imaginary H200", "cuda 13.0", "580.1")
Flaw = Callable[[torch.Tensor, int], None]  # spoils an output in place; told how many launches there were


def right(out: torch.Tensor, launches: int) -> None:
    """No flaw."""


@dataclass(eq=False)
class FakeGpu:
    """Args:
    flaw: What is wrong with the kernels.
    kernel_us: Device time of a launch.
    fault: Error of the first launch.
    least_sample_us: See ``Gpu``.
    stale_replays: Whether graphs run the first of their launches in place of each.
    others: What other processes hold of the memory.
    broken: Whether the context is lost once ``fault`` was raised.
    """

    flaw: Flaw = right
    kernel_us: float = 20.0
    fault: RuntimeError | None = None
    broken: bool = False
    refusal: Exception | None = None
    torch_device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    launched: int = 0
    replayed: int = 0
    captured: list[int] = field(default_factory=list)
    stale_replays: bool = False
    least_sample_us: float = 0.0
    poisoned_outputs: int = 0
    others: str | None = None

    def origin(self) -> Origin:
        return ORIGIN

    def load(self, program: Program, tensors: Mapping[str, torch.Tensor]) -> LoadedProgram:
        assert {b.name for b in program.buffers} <= tensors.keys()
        if self.refusal is not None:
            raise self.refusal
        kernels = tuple(Loaded(call.name, print, 100 + i, 0, 1024) for i, call in enumerate(program.calls))
        return LoadedProgram(program, kernels, Plan((), 0))

    def launch(self, loaded: LoadedProgram, tensors: Mapping[str, torch.Tensor]) -> None:
        if self.fault is not None:
            raise self.fault
        self.launched += 1
        out = tensors["out"]
        self.poisoned_outputs += bool(out.isnan().all())
        shape = out.shape
        weight = PackedWeight(tensors["b"], tensors["b_scale"], shape[1], tensors["a"].shape[1])
        out.copy_(to_bf16(mxfp4_gemm_reference(tensors["a"], weight)))
        self.flaw(out, self.launched)

    def synchronize(self) -> None:
        if self.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def cache_bytes(self) -> int:
        return 1 << 20

    def capture(self, launches: Sequence[Launch]) -> Any:
        self.captured.append(len(launches))
        return list(launches)

    def replay(self, graph: Any) -> None:
        launched = self.launched
        for launch in dict.fromkeys(graph[:1] if self.stale_replays else graph):
            launch()
        self.launched = launched  # in the eyes of a flaw, a replay is no launch

    def replay_us(self, graph: Any, count: int) -> list[float]:
        self.replayed += count
        return [self.kernel_us * len(graph)] * count

    def state(self) -> GpuState:
        return GpuState(1980, ("power cap",), 690)

    def crowding(self) -> str | None:
        return self.others
