"""A GEMM as data: the buffers and the kernel launches of one configuration at one shape.

The same :class:`Program` is launched on a device, compiled offline, and executed by the simulator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kernels.launches.coverage import Coverage
from kernels.launches.kernels import LibraryKernel, NativeKernel

ITEM_BYTES = {"bf16": 2, "fp32": 4, "u8": 1}  # Triton's names of element types
Role = Literal["input", "workspace", "output"]


@dataclass(frozen=True)
class Buffer:
    """One tensor of a program.

    Args:
        name: ``a``, ``b``, ``b_scale``, ``out`` for the caller's tensors, any other name for a workspace.
        dtype: Element type: ``bf16``, ``fp32`` or ``u8``.
        shape: Extents in elements; the storage of ``a`` may have a larger row stride.
        role: Who owns it; a workspace and the output hold garbage before the first launch.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role

    @property
    def bytes(self) -> int:
        """Size of the tensor without the padding of strided rows."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class KernelCall:
    """One kernel launch.

    Args:
        kernel: The ``triton.jit`` function, a :class:`~kernels.launches.kernels.NativeKernel`, or a
            :class:`~kernels.launches.kernels.LibraryKernel`.
        grid: Workgroups in x, y, z.
        args: Run-time arguments in the kernel's order: a ``str`` names a buffer, an ``int`` is an i32.
        constexprs: Compile-time arguments.
        coverage: Which workgroups a part of the output depends on.
        options: Launch options such as ``num_warps``; the ones a backend does not know are dropped at launch.
    """

    kernel: Any  # of Triton: runtime.JITFunction, or InterpretedFunction under TRITON_INTERPRET=1
    grid: tuple[int, int, int]
    args: Mapping[str, str | int]
    constexprs: Mapping[str, int | str | bool]
    coverage: Coverage
    options: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the kernel function."""
        return str(self.kernel.__name__ if self.is_triton else self.kernel.name)

    @property
    def is_triton(self) -> bool:
        """Whether Triton makes the kernel."""
        return not isinstance(self.kernel, (NativeKernel, LibraryKernel))

    @property
    def workgroups(self) -> int:
        """Size of the grid."""
        return math.prod(self.grid)


@dataclass(frozen=True)
class Program:
    """Buffers and launches, in order, that compute ``out = Q(a) @ b.T``.

    Args:
        buffers: What the launches read and write.
        calls: In order.
        bf16_slice_k: Elements of K of each slice whose sum is rounded to bf16 and added to ``out`` by atomics, which
            costs exactness and fixed bits; None where all sums are fp32.
    """

    buffers: tuple[Buffer, ...]
    calls: tuple[KernelCall, ...]
    bf16_slice_k: int | None = None

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
