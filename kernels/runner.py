"""One kernel launch made ready: compiled and loaded, or interpreted, with nothing left to decide between calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernels import interpreter
from kernels.cache_keys import settle_cache_keys
from kernels.errors import InputError, KernelError
from kernels.launch import backend_options
from kernels.library import LibraryKernel, library_runner, tensor_at
from kernels.native import NativeKernel
from kernels.native_runner import interpretation_error, native_runner
from kernels.program import KernelCall

Runner = Callable[..., object]  # launches the kernel; takes every argument of its source, in order


@dataclass(frozen=True)
class PointerSpec:
    """What the compiler may assume of a pointer. Stands for a tensor in ``JITFunction.warmup``.

    Args:
        dtype: Of the elements.
        bytes: From the first element that a kernel reaches to the last; below 2 GB the AMD backend uses 32-bit
            buffer offsets.
        aligned: Whether the address is a multiple of 16, which permits wide loads.
    """

    dtype: torch.dtype
    bytes: int
    aligned: bool

    def data_ptr(self) -> int:
        """Return an address with the alignment that holds: Triton asks tensors by this name."""
        return 0 if self.aligned else self.dtype.itemsize

    def ptr_range(self) -> int:
        """Return the bytes: Triton's AMD backend asks by this name."""
        return self.bytes


Compile = Callable[[KernelCall, Mapping[str, PointerSpec]], Runner]


def compile_call(call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
    """Compile ``call`` for the current GPU (or take it from Triton's caches) and load it.

    The runner takes addresses for pointers and launches on the stream that is current when it runs. It spares the
    work of ``kernel[grid](...)``: binding arguments, reading their types and alignments, and looking up the kernel.

    Args:
        call: What to compile.
        pointers: By name of the buffer.

    Raises:
        TritonError: The compiler or the device's limits reject the configuration; also RuntimeError or IndexError
            from inside the compiler.
        RuntimeError: A kernel that Triton does not make cannot be built or loaded here.
        UnavailableError: A library cannot be imported.
    """
    if isinstance(call.kernel, NativeKernel):
        return _load(call)
    if isinstance(call.kernel, LibraryKernel):
        return library_runner(call.kernel, _specs(call, pointers), torch.device("cuda", torch.cuda.current_device()))
    options = backend_options(call.options, amd=torch.version.hip is not None)
    values = {name: pointers[value] if isinstance(value, str) else value for name, value in call.args.items()}
    settle_cache_keys()  # those of the processes that tuned and compiled before
    compiled = call.kernel.warmup(grid=call.grid, **values, **call.constexprs, **options)
    runner: Runner = compiled[call.grid]
    return runner


def _load(call: KernelCall) -> Runner:
    try:
        return native_runner(call.kernel, call.grid)
    except (KernelError, InputError) as error:
        raise RuntimeError(str(error)) from error


def interpret_call(call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
    """Return a runner that interprets ``call`` on addresses of the host's memory (TRITON_INTERPRET=1).

    Raises:
        RuntimeError: Triton did not make the kernel.
    """
    if isinstance(call.kernel, NativeKernel):
        raise interpretation_error(call.kernel)
    specs = _specs(call, pointers)
    if isinstance(call.kernel, LibraryKernel):
        return library_runner(call.kernel, specs, torch.device("cpu"))
    interpreter.install()
    names = tuple(call.kernel.arg_names)

    def run(*values: int | str | bool) -> None:
        arguments: dict[str, Any] = dict(zip(names, values, strict=True))
        for name, spec in specs.items():
            arguments[name] = tensor_at(arguments[name], spec, torch.device("cpu"))
        call.kernel[call.grid](**arguments)

    return run


def _specs(call: KernelCall, pointers: Mapping[str, PointerSpec]) -> dict[str, PointerSpec]:
    """What lies behind each argument that is an address."""
    return {name: pointers[value] for name, value in call.args.items() if isinstance(value, str)}
