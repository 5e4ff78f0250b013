"""One kernel launch made ready: compiled and loaded, or interpreted, with nothing left to decide between calls."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Protocol

import torch

from kernels.errors import InputError, KernelError
from kernels.families import triton_functions
from kernels.launches.kernels import LibraryKernel, NativeKernel
from kernels.launches.program import Buffer, KernelCall, Program
from kernels.rocm.loader import native_runner
from kernels.rocm.runtime import hip_runtime
from kernels.runtime import interpreter

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


def settle_cache_keys() -> None:
    """Hash every kernel's source in one order; to be called before a process compiles its first kernel.

    Triton hashes a kernel together with the device functions that it calls, when it first needs the key. Until
    3.6 (``DependenciesFinder._update_hash``) the globals of such a function count only if another kernel had it
    hashed before, so that a process that quantised first had another key for the fused kernel, and what it compiled
    ahead was compiled again in the GPU's process. The first kernel here is the one that most processes hash first.
    """
    for kernel in triton_functions():
        getattr(kernel, "cache_key", None)  # an interpreted kernel has none


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


class Extent(Protocol):
    """What a pointer's memory is like; :class:`kernels.runtime.runner.PointerSpec` is one."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the elements."""
        ...

    @property
    def bytes(self) -> int:
        """How many may be touched."""
        ...


def library_runner(kernel: LibraryKernel, pointers: Mapping[str, Extent], device: torch.device) -> Callable[..., None]:
    """A function of addresses and integers, in the order of ``arg_names``, that calls the library.

    Args:
        kernel: To call.
        pointers: What lies behind each argument that is an address.
        device: Where.

    Raises:
        UnavailableError: The library cannot be imported.
    """
    kernel.prepare()

    def run(*values: int) -> None:
        given: dict[str, Any] = dict(zip(kernel.arg_names, values, strict=True))
        for name, extent in pointers.items():
            given[name] = tensor_at(given[name], extent, device)
        kernel.run(**given)

    return run


@dataclass(frozen=True)
class _DeviceMemory:
    """Memory of a GPU for ``torch.as_tensor``, which knows the interface on CUDA and ROCm."""

    __cuda_array_interface__: Mapping[str, Any]


def tensor_at(address: int, extent: Extent, device: torch.device) -> torch.Tensor:
    """Flat tensor over memory that somebody else keeps alive."""
    import torch

    if device.type == "cpu":
        memory = (ctypes.c_uint8 * extent.bytes).from_address(address)
        return torch.frombuffer(memory, dtype=extent.dtype)
    shape = {"shape": (extent.bytes,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 2}
    return torch.as_tensor(_DeviceMemory(shape), device=device).view(extent.dtype)


def launch_native(call: KernelCall, tensors: Mapping[str, torch.Tensor]) -> None:
    """Launch one kernel on the current stream; raises as :func:`native_runner`, and RuntimeError where there is no GPU.

    Args:
        call: Its kernel is a :class:`~kernels.launches.kernels.NativeKernel`.
        tensors: By name of the buffer.
    """
    if interpreter.interpreting():
        raise interpretation_error(call.kernel)
    run = _runner_on(hip_runtime().device(), call.kernel, call.grid)
    given = (call.args[name] for name in call.kernel.arg_names)
    run(*(tensors[value].data_ptr() if isinstance(value, str) else value for value in given))


def interpretation_error(kernel: NativeKernel) -> RuntimeError:
    """What to raise where Triton's interpreter is to run everything."""
    return RuntimeError(f"{kernel.name} is machine code, which Triton's interpreter does not run")


@lru_cache(maxsize=256)
def _runner_on(device: int, kernel: NativeKernel, grid: tuple[int, int, int]) -> Callable[..., None]:
    """Runner on the current GPU, which is ``device``."""
    return native_runner(kernel, grid)
