"""Compile ahead of the GPU: fill Triton's cache on disk, in processes that see no GPU, with what a launch looks up.

The launcher's own path is taken (``JITFunction.warmup``) on descriptions of the pointers, under a driver that only
knows the target, so that types, alignments and options are decided by the same code as at launch. Triton's cache
is keyed on nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.cache import FileCacheManager
from triton.runtime.errors import OutOfResources

from kernels.device import DeviceKey
from kernels.errors import CompileError, ResourceLimitError
from kernels.launches.native import HipKernel
from kernels.launches.program import PointerSpec, Program
from kernels.launches.triton_kernel import COMPILER_ERRORS
from kernels.rocm.cache import HipCache, Parcel
from kernels.runtime.runner import TORCH_DTYPES, settle_cache_keys
from search.workers.compiler_output import captured_stderr, innermost, reason, written

Files = dict[str, bytes]  # of one kernel, by their names


@dataclass(frozen=True)
class Artefacts:
    """What compiled kernels leave on disk.

    Args:
        triton: By Triton's key of the kernel and its name for all of its files.
        hip: Kernels that Triton did not make.
    """

    triton: Mapping[tuple[str, str], Files] = field(default_factory=dict)
    hip: tuple[Parcel, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """What compiling a program gave.

    Args:
        cached: Whether every kernel was on disk already.
        lds_bytes: Largest shared memory of a kernel.
    """

    compile_s: float
    cached: bool
    kernels: int
    lds_bytes: int


class TargetDriver:
    """Stands in for Triton's driver where code is compiled and never launched."""

    def __init__(self, target: GPUTarget) -> None:
        self._target = target

    def get_current_target(self) -> GPUTarget:
        """What to compile for."""
        return self._target

    def get_current_device(self) -> int:
        """There is one."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """The default one; nothing is queued."""
        return 0


def target_of(device: DeviceKey) -> GPUTarget:
    """Triton's name for ``device``."""
    if device.is_amd:
        return GPUTarget("hip", device.arch, device.architecture.wave)
    return GPUTarget("cuda", int(device.arch.removeprefix("sm_")), device.architecture.wave)


def compile_only(device: DeviceKey) -> None:
    """Make this process compile for ``device`` and see no GPU; to be called before anything is compiled."""
    triton.runtime.driver.set_active(TargetDriver(target_of(device)))
    settle_cache_keys()
    triton.knobs.compilation.store_binary_only = True  # a launch needs no more, and a sweep leaves thousands


def compile_ahead(program: Program, device: DeviceKey) -> Compiled:
    """Compile every kernel of ``program`` into Triton's cache on disk, or the cache of HIP builds.

    Args:
        program: Its buffers give the types and sizes of the pointers.
        device: The one given to :func:`compile_only`.

    Raises:
        CompileError: The compiler rejects a kernel; one line.
        ResourceLimitError: A kernel needs more than the target has.
    """
    start_s = time.perf_counter()
    pointers = {b.name: PointerSpec(TORCH_DTYPES[b.dtype], b.bytes, aligned=True) for b in program.buffers}
    with captured_stderr() as said:
        try:
            built = [call.kernel.build(call, pointers, device) for call in program.calls]
        except OutOfResources as error:
            raise ResourceLimitError(innermost(error)) from error
        except COMPILER_ERRORS as error:
            raise CompileError(reason(error, written(said))) from error
    shared = max(one.lds_bytes for one in built)
    return Compiled(time.perf_counter() - start_s, all(one.cached for one in built), len(built), shared)


def hip_parcels(program: Program, device: DeviceKey) -> tuple[Parcel, ...]:
    """The kernels of ``program`` that :func:`compile_ahead` built and Triton did not make."""
    kernels = (call.kernel for call in program.calls)
    return tuple(HipCache().parcel(kernel, device.arch) for kernel in kernels if isinstance(kernel, HipKernel))


@contextmanager
def noted_artefacts() -> Iterator[dict[tuple[str, str], Files]]:
    """What Triton's cache on disk holds of the kernels that are compiled meanwhile, or that it had already.

    A kernel that this process still has in its memory is not among them.
    """
    noted: dict[tuple[str, str], Files] = {}

    class Noting(FileCacheManager):  # type: ignore[misc] # Triton has no types
        def get_group(self, filename: str) -> dict[str, str] | None:
            return self._note(filename, super().get_group(filename))

        def put_group(self, filename: str, group: dict[str, str]) -> str:
            self._note(filename, group)
            return str(super().put_group(filename, group))

        def _note(self, filename: str, group: dict[str, str] | None) -> dict[str, str] | None:
            if group is not None:
                noted[self.key, filename] = {name: Path(path).read_bytes() for name, path in group.items()}
            return group

    with triton.knobs.cache.scope():
        triton.knobs.cache.manager_class = Noting
        yield noted


def keep_artefacts(artefacts: Artefacts) -> None:
    """Put what another machine has compiled into the caches on disk, where a launch finds it."""
    for parcel in artefacts.hip:
        HipCache().receive(parcel)
    for (key, filename), files in artefacts.triton.items():
        manager = FileCacheManager(key)
        manager.put_group(filename, {name: manager.put(content, name) for name, content in files.items()})
