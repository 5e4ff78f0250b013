"""A launch that is a call of somebody's Python library, which takes tensors and starts its kernels itself."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kernels.tiling import GridIndex

if TYPE_CHECKING:  # the registry of the families is read by much that needs no torch, which takes seconds to load
    import torch


@dataclass(frozen=True)
class WholeCoverage:
    """One workgroup, as it were, that computes all of C [M, N]."""

    M: int
    N: int

    def workgroups(self, rows: range, columns: range) -> tuple[GridIndex, ...]:
        """The only one."""
        return ((0, 0, 0),)

    def extent(self, rows: range, columns: range) -> tuple[range, range]:
        """All of C."""
        return range(self.M), range(self.N)


@dataclass(frozen=True)
class LibraryKernel:
    """Stands where a :class:`~kernels.program.KernelCall` else holds a kernel.

    Args:
        name: For messages.
        arg_names: Arguments of ``run`` in order.
        prepare: Imports the library, or raises :class:`~kernels.errors.UnavailableError`.
        run: Takes each argument by name: a tensor over a buffer's memory, flat or in the buffer's shape, or an integer.
            It works on the current stream.
    """

    name: str
    arg_names: tuple[str, ...]
    prepare: Callable[[], object]
    run: Callable[..., None]


class Extent(Protocol):
    """What a pointer's memory is like; :class:`kernels.runner.PointerSpec` is one."""

    @property
    def dtype(self) -> torch.dtype:
        """Of the elements."""
        ...

    @property
    def bytes(self) -> int:
        """How many may be touched."""
        ...


def library_runner(
    kernel: LibraryKernel, pointers: Mapping[str, Extent], device: torch.device
) -> Callable[..., None]:
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
