"""Runners of kernels that Triton did not make: code object fetched, loaded, arguments laid out once, then launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton

from kernels.errors import InputError
from kernels.launches.kernels import HipKernel, NativeKernel, PrebuiltKernel
from kernels.rocm.cache import HipCache
from kernels.rocm.runtime import ArgumentBuffer, HipFunction, HipRuntime, hip_runtime

CurrentStream = Callable[[int], int]  # handle of the current stream of the GPU with this index


def load_native(kernel: NativeKernel, runtime: HipRuntime | None = None, builds: HipCache | None = None) -> HipFunction:
    """``kernel``, built if it has to be, loaded on the current GPU.

    Args:
        kernel: What to load.
        runtime: Default: torch's.
        builds: Default: the user's cache.

    Raises:
        KernelError: The compiler rejects it.
        InputError: There is no compiler, or a file is missing.
        HipError: The GPU does not take it.
    """
    return (runtime or hip_runtime()).load(code_object(kernel, builds or HipCache()), kernel.name)


def code_object(kernel: NativeKernel, builds: HipCache) -> bytes:
    """ELF that holds ``kernel``; raises as :func:`load_native`."""
    if isinstance(kernel, HipKernel):
        return builds.code_object(kernel)
    assert isinstance(kernel, PrebuiltKernel)
    try:
        return kernel.path.read_bytes()
    except OSError as error:
        raise InputError(f"{kernel.path}: {error.strerror}; reinstall AITER") from error


def native_runner(
    kernel: NativeKernel,
    grid: tuple[int, int, int],
    runtime: HipRuntime | None = None,
    builds: HipCache | None = None,
    current_stream: CurrentStream | None = None,
) -> Callable[..., None]:
    """Load ``kernel`` on the current GPU; the result launches it there, on the stream that is current when it runs.

    It takes an address or an integer for each argument, in order, and does nothing but pack them and launch, so
    a graph can capture it. Threads may share it.

    Args:
        kernel: What to launch.
        grid: Workgroups in x, y, z.
        runtime: Default: torch's.
        builds: Default: the user's cache.
        current_stream: Default: the one that Triton's launches ask, so that all launches of a plan share a stream.

    Raises:
        KernelError: The compiler rejects the kernel.
        InputError: There is no compiler, or a file is missing.
        HipError: The GPU does not take it. A launch raises it as well.
    """
    runtime = runtime or hip_runtime()
    function = load_native(kernel, runtime, builds)
    launch = runtime.launcher(function, grid, kernel.threads)
    stream_of: Any = current_stream or triton.runtime.driver.active.get_current_stream
    packer, device = kernel.packer(), function.device
    fill, size = packer.into, packer.layout.size
    # A launch takes a buffer from here and brings it back: ctypes lets other threads run while HIP copies it.
    free: list[ArgumentBuffer] = []

    def run(*values: int) -> None:
        try:
            arguments = free.pop()
        except IndexError:
            arguments = ArgumentBuffer(size)
        fill(arguments.memory, values)
        launch(stream_of(device), arguments)
        free.append(arguments)

    return run
