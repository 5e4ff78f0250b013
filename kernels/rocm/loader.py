"""Runners of kernels that Triton did not make: code object fetched, loaded, arguments laid out once, then launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import triton

from kernels.rocm.arguments import Packer
from kernels.rocm.cache import HipCache
from kernels.rocm.runtime import ArgumentBuffer, HipFunction, HipRuntime, hip_runtime

CurrentStream = Callable[[int], int]  # handle of the current stream of the GPU with this index


class Loadable(Protocol):
    """A kernel of a code object; :class:`kernels.launches.native.NativeKernel` is one."""

    @property
    def name(self) -> str:
        """Symbol of the kernel function."""

    @property
    def threads(self) -> int:
        """Of a workgroup."""

    def packer(self) -> Packer:
        """What writes the kernel-argument buffer."""

    def code_object(self, builds: HipCache) -> bytes:
        """ELF that holds it."""


def native_runner(
    kernel: Loadable,
    grid: tuple[int, int, int],
    runtime: HipRuntime | None = None,
    builds: HipCache | None = None,
    current_stream: CurrentStream | None = None,
) -> tuple[Callable[..., None], HipFunction]:
    """Load ``kernel`` on the current GPU: what launches it there, on the stream that is current then, and its code.

    The launcher takes an address or an integer for each argument, in order, and does nothing but pack them and launch,
    so a graph can capture it. Threads may share it.

    Args:
        current_stream: Default: the one that Triton's launches ask, so that all launches of a plan share a stream.

    Raises:
        KernelError: The compiler rejects the kernel.
        InputError: There is no compiler, or a file is missing.
        HipError: The GPU does not take it. A launch raises it as well.
    """
    runtime = runtime or hip_runtime()
    function = runtime.load(kernel.code_object(builds or HipCache()), kernel.name)
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

    return run, function
