"""A GEMM as data: the buffers and the kernel launches of one configuration at one shape.

The same :class:`Program` is launched on a device, compiled offline, and executed by the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from kernels.device import DeviceKey
from kernels.launches.coverage import Coverage

if TYPE_CHECKING:
    import torch

ITEM_BYTES = {"bf16": 2, "fp32": 4, "u8": 1, "i32": 4}  # Triton's names of element types
Role = Literal["input", "workspace", "output", "tickets"]


@dataclass(frozen=True)
class Buffer:
    """One tensor of a program.

    Args:
        name: ``a``, ``b``, ``b_scale``, ``out`` for the caller's tensors, any other name for a workspace.
        dtype: Element type: ``bf16``, ``fp32``, ``u8`` or ``i32``.
        shape: Extents in elements; the storage of ``a`` may have a larger row stride.
        role: Who owns it; a workspace and the output hold garbage before the first launch, tickets hold zeros before it
            and after the last one.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role

    @property
    def bytes(self) -> int:
        """Size of the tensor without the padding of strided rows."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


Runner = Callable[..., object]  # launches the kernel; takes every argument of its source, in order


@dataclass(frozen=True)
class PointerSpec:
    """What a compiler may assume of a pointer. Stands for a tensor in ``JITFunction.warmup``.

    Args:
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


@dataclass(frozen=True)
class Built:
    """What compiling for a cache on disk gave.

    Args:
        lds_bytes: Shared memory of a workgroup; 0 where nobody says.
    """

    cached: bool = True
    lds_bytes: int = 0


@dataclass(frozen=True)
class Loaded:
    """A kernel ready to be launched, and what it needs as its driver reports it.

    Args:
        run: Launches it on the stream that is current then.
        registers: Of a lane; 0 where nobody says, as of a library.
        spills: Registers that live in memory.
        lds_bytes: Shared memory of a workgroup.
    """

    name: str
    run: Runner
    registers: int = 0
    spills: int = 0
    lds_bytes: int = 0


class Kernel(Protocol):
    """What a launch runs: of Triton, a HIP source, a code object, or a library's function."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def arg_names(self) -> tuple[str, ...]:
        """Arguments in order."""

    def build(self, call: KernelCall, pointers: Mapping[str, PointerSpec], device: DeviceKey) -> Built:
        """Compile what ``call`` launches into the cache on disk, without a GPU."""

    def load(self, call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Loaded:
        """Compile what ``call`` launches for the current GPU, or fetch it, and load it."""


@dataclass(frozen=True)
class KernelCall:
    """One kernel launch.

    Args:
        grid: Workgroups in x, y, z.
        args: Run-time arguments in the kernel's order: a ``str`` names a buffer, an ``int`` is an i32.
        coverage: Which workgroups a part of the output depends on.
        options: Launch options such as ``num_warps``; the ones a backend does not know are dropped at launch.
    """

    kernel: Kernel
    grid: tuple[int, int, int]
    args: Mapping[str, str | int]
    constexprs: Mapping[str, int | str | bool | None]
    coverage: Coverage
    options: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return self.kernel.name

    @property
    def workgroups(self) -> int:
        """Size of the grid."""
        return math.prod(self.grid)


@dataclass(frozen=True)
class Program:
    """Buffers and launches, in order, that compute ``out = Q(a) @ b.T``.

    Args:
        bf16_slice_k: Elements of K of each slice whose sum is rounded to bf16 and added to ``out`` by atomics, which
            costs exactness and fixed bits; None where all sums are fp32.
        ordinary_only: Whether it gives NaN, Inf and the ends of bf16 in A another meaning; then it is judged without.
    """

    buffers: tuple[Buffer, ...]
    calls: tuple[KernelCall, ...]
    bf16_slice_k: int | None = None
    ordinary_only: bool = False

    def buffer(self, name: str) -> Buffer:
        """The buffer called ``name``.

        Raises:
            KeyError: There is none.
        """
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise KeyError(name)

    @property
    def workspaces(self) -> tuple[Buffer, ...]:
        """Buffers that belong to the launch and hold garbage before it."""
        return tuple(buffer for buffer in self.buffers if buffer.role == "workspace")

    @property
    def tickets(self) -> tuple[Buffer, ...]:
        """Counters that launches of one stream share, zero between them."""
        return tuple(buffer for buffer in self.buffers if buffer.role == "tickets")
