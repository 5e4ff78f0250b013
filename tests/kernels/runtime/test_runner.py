"""Runners: what Triton makes of a pointer's description, and the order of a compiled kernel's arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch
from triton._C.libtriton import native_specialize_impl
from triton.backends.amd.compiler import HIPBackend
from triton.backends.nvidia.compiler import CUDABackend

from kernels.launches.coverage import TileCoverage
from kernels.launches.program import KernelCall, PointerSpec
from kernels.launches.triton_kernel import VARIANTS_KEPT, TritonKernel
from kernels.runtime.runner import make_runner


@pytest.mark.parametrize(
    "spec, amd, nvidia",
    [
        (PointerSpec(torch.bfloat16, 100, aligned=True), ("*bf16", "DS"), ("*bf16", "D")),
        (PointerSpec(torch.bfloat16, 100, aligned=False), ("*bf16", "S"), ("*bf16", "")),
        (PointerSpec(torch.uint8, (1 << 31) - 1, aligned=True), ("*u8", "DS"), ("*u8", "D")),
        (PointerSpec(torch.float32, 1 << 31, aligned=True), ("*fp32", "D"), ("*fp32", "D")),
    ],
)
def test_triton_specializes_on_type_alignment_and_span(
    spec: PointerSpec, amd: tuple[str, str], nvidia: tuple[str, str]
) -> None:
    # "D": the address is divisible by 16; "S": the span is small, 32-bit offsets reach it.
    assert native_specialize_impl(HIPBackend, spec, False, True, True) == amd
    assert native_specialize_impl(CUDABackend, spec, False, True, True) == nvidia


@dataclass
class FakeCompiled:
    launches: list[tuple[object, tuple[object, ...]]] = field(default_factory=list)
    n_regs: int = 96
    n_spills: int = 2
    metadata: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(shared=1024))

    def _init_handles(self) -> None:
        """As Triton's: load the code."""

    def __getitem__(self, grid: tuple[int, int, int]) -> Callable[..., None]:
        return lambda *values: self.launches.append((grid, values))


@dataclass
class FakeKernel:
    compiled: FakeCompiled = field(default_factory=FakeCompiled)
    warmups: list[dict[str, object]] = field(default_factory=list)
    device_caches: dict[int, object] = field(default_factory=dict)
    __name__: str = "fake_kernel"

    def warmup(self, **arguments: object) -> FakeCompiled:
        self.warmups.append(arguments)
        return self.compiled


def test_a_call_is_compiled_once_with_descriptions_and_launched_with_addresses() -> None:
    kernel = FakeKernel()
    options, coverage = {"num_warps": 4, "waves_per_eu": 2}, TileCoverage(48, 128, 16, 64)
    call = KernelCall(TritonKernel(kernel), (3, 2, 1), {"x_ptr": "a", "M": 7}, {"BLOCK": 64}, coverage, options)
    spec = PointerSpec(torch.bfloat16, 100, aligned=True)
    run = make_runner(call, {"a": spec})
    run(1 << 32, 7, 64)
    run(2 << 32, 7, 64)
    [told] = kernel.warmups
    chosen = {"num_warps": 4, "sanitize_overflow": False, **({"waves_per_eu": 2} if torch.version.hip else {})}
    assert told == {"grid": (3, 2, 1), "x_ptr": spec, "M": 7, "BLOCK": 64, **chosen}
    assert kernel.compiled.launches == [((3, 2, 1), (1 << 32, 7, 64)), ((3, 2, 1), (2 << 32, 7, 64))]


def test_a_loaded_kernel_says_what_it_needs() -> None:
    call = KernelCall(TritonKernel(FakeKernel()), (1, 1, 1), {}, {}, TileCoverage(48, 128, 16, 64))
    loaded = call.kernel.load(call, {})
    assert (loaded.name, loaded.registers, loaded.spills, loaded.lds_bytes) == (call.name, 96, 2, 1024)


@pytest.mark.parametrize("variants, left", [(VARIANTS_KEPT, 1), (VARIANTS_KEPT + 1, 0)])
def test_a_kernel_with_too_many_compiled_variants_forgets_them(variants: int, left: int) -> None:
    caches = {0: (dict.fromkeys(range(variants)), {}, None, None, None)}
    kernel = TritonKernel(FakeKernel(device_caches=dict(caches)))
    kernel.load(KernelCall(kernel, (1, 1, 1), {}, {}, TileCoverage(48, 128, 16, 64)), {})
    assert len(kernel.function.device_caches) == left
