"""A kernel that Triton makes: compiled and loaded, or interpreted (TRITON_INTERPRET=1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import triton
from triton.errors import TritonError
from triton.language.target_info import cuda_capability_geq, is_hip

from kernels.device import DeviceKey
from kernels.launches.library import on_tensors
from kernels.launches.program import Built, KernelCall, Loaded, PointerSpec
from kernels.triton import interpreter

# Triton emits overflow checks of integer sums, which are dropped again where kernels are not compiled for debugging:
# without them its front end has less to do.
FRONT_END: Final[Mapping[str, int]] = MappingProxyType({"sanitize_overflow": False})
# Raised by the compiler for a configuration that it cannot build: its own errors, a failed MLIR or LLVM pass
# (RuntimeError), and a C++ std::out_of_range from its layout arithmetic (IndexError).
COMPILER_ERRORS: Final = (TritonError, RuntimeError, IndexError)
VARIANTS_KEPT: Final = 200  # compiled variants of one kernel that stay in Triton's memory, up to 1 MB each


def backend_options(options: Mapping[str, int], *, amd: bool) -> dict[str, int]:
    """The options that the backend knows, and those that every kernel of the project is compiled with."""
    known = options if amd else {name: value for name, value in options.items() if name in cuda_options()}
    return {**FRONT_END, **known}


@cache
def cuda_options() -> frozenset[str]:
    """Names of the CUDA backend's options; it rejects others, such as ``waves_per_eu``."""
    from triton.backends.nvidia.compiler import CUDAOptions  # which a Triton for ROCm may lack

    return frozenset(option.name for option in fields(CUDAOptions))


@dataclass(frozen=True)
class TritonKernel:
    """A function of ``triton.jit``.

    Args:
        function: A runtime.JITFunction, or an InterpretedFunction under TRITON_INTERPRET=1.
        waits: Whether it waits itself for the kernel before (``kernels.triton.tiles.wait_for_previous``), so that the
            GPU may start it earlier: programmatic dependent launch, from compute capability 9.0 on.
    """

    function: Any
    waits: bool = False

    @property
    def name(self) -> str:
        """Of the function."""
        return str(self.function.__name__)

    @property
    def arg_names(self) -> tuple[str, ...]:
        """Of the function, constants included."""
        return tuple(self.function.arg_names)

    def build(self, call: KernelCall, pointers: Mapping[str, PointerSpec], device: DeviceKey) -> Built:
        """Compile for ``device``, which the active driver names, into Triton's cache on disk.

        Raises:
            TritonError: The compiler or the device's limits reject it; also RuntimeError or IndexError from inside.
        """
        hits: list[bool] = []
        before = triton.knobs.compilation.listener
        triton.knobs.compilation.listener = lambda *, cache_hit, **rest: hits.append(cache_hit)
        try:
            compiled = self._compile(call, pointers)
        finally:
            triton.knobs.compilation.listener = before
        return Built(all(hits), int(compiled.metadata.shared))

    def load(self, call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Loaded:
        """Compile for the current GPU (or take it from Triton's caches) and load, or interpret.

        What it gives launches on the stream that is current then. It spares the work of ``kernel[grid](...)``:
        binding arguments, reading their types and alignments, and looking up the kernel.

        Raises:
            TritonError: As :meth:`build`.
        """
        if interpreter.interpreting():
            import torch

            interpreter.install()
            return Loaded(self.name, on_tensors(self.function[call.grid], call, pointers, torch.device("cpu")))
        self._forget_old()
        compiled = self._compile(call, pointers)
        compiled._init_handles()
        needs = int(compiled.n_regs), int(compiled.n_spills), int(compiled.metadata.shared)
        return Loaded(self.name, compiled[call.grid], *needs)

    def options(self, call: KernelCall) -> dict[str, int]:
        """Options that ``call`` is compiled and launched with on the target of the active driver."""
        options = backend_options(call.options, amd=bool(is_hip()))
        return options | {"launch_pdl": True} if self.waits and cuda_capability_geq(9, 0) else options

    def _compile(self, call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Any:
        given = {name: pointers[value] if isinstance(value, str) else value for name, value in call.args.items()}
        arguments = {**given, **call.constexprs, **self.options(call)}  # an option may be both
        return self.function.warmup(grid=call.grid, **arguments)

    def _forget_old(self) -> None:
        """Triton keeps every variant that it ever compiled; a sweep of thousands would fill the memory."""
        caches = self.function.device_caches
        if any(len(variants) > VARIANTS_KEPT for variants, *_ in caches.values()):
            caches.clear()
