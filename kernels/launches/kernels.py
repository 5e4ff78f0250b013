"""Kernels that Triton does not make, as values: HIP sources of this package, code objects, a library's calls.

A :class:`~kernels.launches.program.KernelCall` holds one of these where it else holds a ``triton.jit`` function; its
``args`` follow ``arg_names``, its ``constexprs`` are empty.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Literal

ArgumentType = Literal["ptr", "i32"]
Field = tuple[str, str, int]  # name, struct code, byte offset
Number = int | float
_CODES: Mapping[ArgumentType, str] = {"ptr": "Q", "i32": "i"}


@dataclass(frozen=True)
class Packer:
    """Writes a kernel-argument buffer; made once, so that a launch only converts numbers.

    Args:
        name: Of the kernel.
        layout: The whole buffer, zero between the fields.
        constants: Values of the fields that are no arguments.
        arrange: Puts (*arguments, *constants) into the order of the buffer.
    """

    name: str
    layout: struct.Struct
    constants: tuple[Number, ...]
    arrange: Callable[[tuple[Number, ...]], Sequence[Number]]

    def into(self, buffer: object, values: tuple[int, ...]) -> None:
        """Fill ``buffer``, of ``layout.size`` bytes, with one value for each argument, in order.

        Raises:
            ValueError: There are more or fewer values, or one does not fit.
        """
        try:
            self.layout.pack_into(buffer, 0, *self.arrange(values + self.constants))  # type: ignore[arg-type]
        except (struct.error, IndexError, OverflowError) as error:
            raise ValueError(f"{self.name}: arguments {values} do not fit: {error}") from error


@dataclass(frozen=True)
class NativeKernel(ABC):
    """One kernel of a code object.

    Args:
        name: Symbol of the kernel function.
        arg_names: Run-time arguments in order.
        threads: Of a workgroup.
    """

    name: str
    arg_names: tuple[str, ...]
    threads: int

    @abstractmethod
    def packer(self) -> Packer:
        """What writes the kernel-argument buffer."""

    def pack(self, values: Mapping[str, int]) -> bytes:
        """The kernel-argument buffer.

        Args:
            values: One device address or integer for each of ``arg_names``.

        Raises:
            ValueError: A name is missing or unknown, or a value does not fit.
        """
        if values.keys() != set(self.arg_names):
            raise ValueError(f"{self.name}: arguments differ in {sorted(values.keys() ^ set(self.arg_names))}")
        packer = self.packer()
        packed = bytearray(packer.layout.size)
        packer.into(packed, tuple(values[name] for name in self.arg_names))
        return bytes(packed)


@dataclass(frozen=True)
class HipKernel(NativeKernel):
    """A kernel in a HIP source of ``kernels/hip``, compiled for one set of its parameters.

    Args:
        source: File name in ``kernels/hip``.
        defines: Preprocessor constants that choose the template parameters.
        arg_types: Of the arguments, in order.
    """

    source: str
    defines: Mapping[str, int] = field(hash=False)
    arg_types: tuple[ArgumentType, ...] = ()

    def packer(self) -> Packer:
        """The arguments in order, each at a multiple of its size: what the compiler lays out."""
        fields: list[Field] = []
        end = 0
        for name, kind in zip(self.arg_names, self.arg_types, strict=True):
            size = struct.calcsize(_CODES[kind])
            offset = -(-end // size) * size
            fields.append((name, _CODES[kind], offset))
            end = offset + size
        return _packer(self, fields, {}, end)


@dataclass(frozen=True)
class PrebuiltKernel(NativeKernel):
    """A kernel in a code object on this machine.

    Args:
        path: ELF file.
        fields: Name, ``struct`` code and byte offset of every field of the argument buffer.
        constants: Values of the fields that are no arguments.
        size: Bytes of the argument buffer.
    """

    path: Path
    fields: tuple[Field, ...] = ()
    constants: Mapping[str, Number] = field(default_factory=dict, hash=False)
    size: int = 0

    def packer(self) -> Packer:
        """Every field at its offset, zero between them."""
        return _packer(self, self.fields, self.constants, self.size)


def _packer(kernel: NativeKernel, fields: Sequence[Field], constants: Mapping[str, Number], size: int) -> Packer:
    ordered = sorted(fields, key=itemgetter(2))
    given = (*kernel.arg_names, *constants)
    if sorted(given) != sorted(name for name, _, _ in ordered):
        raise ValueError(f"{kernel.name}: arguments and constants are not the fields of its buffer, one each")
    layout, end = "<", 0
    for _, code, offset in ordered:
        if offset < end:
            raise ValueError(f"{kernel.name}: the fields of its buffer overlap at byte {offset}")
        layout += f"{offset - end}x{code}"
        end = offset + struct.calcsize(f"<{code}")
    if end > size:
        raise ValueError(f"{kernel.name}: its fields end at byte {end}, its buffer at {size}")
    order = tuple(given.index(name) for name, _, _ in ordered)
    return Packer(kernel.name, struct.Struct(f"{layout}{size - end}x"), tuple(constants.values()), _arrangement(order))


def _arrangement(order: tuple[int, ...]) -> Callable[[tuple[Number, ...]], Sequence[Number]]:
    if order == tuple(range(len(order))):
        return tuple
    return itemgetter(*order)  # of two or more: a single field is in order


@dataclass(frozen=True)
class LibraryKernel:
    """Stands where a :class:`~kernels.launches.program.KernelCall` else holds a kernel.

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
