"""Run a :class:`~kernels.program.Program` on tensors: through the GPU, or through Triton's interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import torch

from kernels import interpreter
from kernels.library import LibraryKernel
from kernels.native import NativeKernel
from kernels.native_runner import launch_native
from kernels.program import Buffer, KernelCall, Program

TORCH_DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32, "u8": torch.uint8}
AMD_OPTIONS = frozenset({"waves_per_eu", "matrix_instr_nonkdim"})  # the CUDA backend rejects them
# Triton emits overflow checks of integer sums, which are dropped again where kernels are not compiled for debugging:
# without them its front end has less to do.
FRONT_END: Final[Mapping[str, int]] = MappingProxyType({"sanitize_overflow": False})


def allocate(buffer: Buffer, device: torch.device | str) -> torch.Tensor:
    """Uninitialised tensor for ``buffer``."""
    return torch.empty(buffer.shape, dtype=TORCH_DTYPES[buffer.dtype], device=device)


def backend_options(options: Mapping[str, int], *, amd: bool) -> dict[str, int]:
    """The options that the backend knows, and those that every kernel of the project is compiled with."""
    known = {name: value for name, value in options.items() if amd or name not in AMD_OPTIONS}
    return {**FRONT_END, **known}


def launch_call(call: KernelCall, tensors: Mapping[str, torch.Tensor]) -> None:
    """Launch one kernel on the current stream, or interpret it."""
    if isinstance(call.kernel, NativeKernel):
        return launch_native(call, tensors)
    if isinstance(call.kernel, LibraryKernel):
        given = {name: tensors[value] if isinstance(value, str) else value for name, value in call.args.items()}
        return call.kernel.run(**given)
    arguments: dict[str, Any] = {
        name: tensors[value] if isinstance(value, str) else value for name, value in call.args.items()
    }
    options = backend_options(call.options, amd=torch.version.hip is not None)
    call.kernel[call.grid](**arguments, **call.constexprs, **options)


def launch(program: Program, tensors: Mapping[str, torch.Tensor]) -> None:
    """Run every call of ``program``.

    Args:
        program: What to run.
        tensors: One tensor a buffer, by name, with at least the buffer's extents.
    """
    if interpreter.interpreting():
        interpreter.install()
    for call in program.calls:
        launch_call(call, tensors)
