"""Kernels that Triton does not make: HIP sources of this package, and code objects that others built.

A :class:`~kernels.program.KernelCall` holds one of these where it else holds a ``triton.jit`` function; its ``args``
follow ``arg_names``, its ``constexprs`` are empty.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

ArgumentType = Literal["ptr", "i32"]
_CODES: Mapping[ArgumentType, str] = {"ptr": "Q", "i32": "i"}


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
    def pack(self, values: Mapping[str, int]) -> bytes:
        """The kernel-argument buffer.

        Args:
            values: One device address or integer for each of ``arg_names``.

        Raises:
            ValueError: A name is missing or unknown, or a value does not fit.
        """


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

    def pack(self, values: Mapping[str, int]) -> bytes:
        """The arguments in order, each at a multiple of its size: what the compiler lays out."""
        if values.keys() != set(self.arg_names):
            raise ValueError(f"{self.name}: arguments differ in {sorted(values.keys() ^ set(self.arg_names))}")
        packed = bytearray()
        for name, kind in zip(self.arg_names, self.arg_types, strict=True):
            code = _CODES[kind]
            packed += bytes(-len(packed) % struct.calcsize(code))
            try:
                packed += struct.pack(f"<{code}", values[name])
            except struct.error as error:
                raise ValueError(f"{self.name}: argument {name} = {values[name]} does not fit: {error}") from error
        return bytes(packed)


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
    fields: tuple[tuple[str, str, int], ...] = ()
    constants: Mapping[str, int | float] = field(default_factory=dict, hash=False)
    size: int = 0

    def pack(self, values: Mapping[str, int]) -> bytes:
        """Every field at its offset, zero between them."""
        if values.keys() != set(self.arg_names):
            raise ValueError(f"{self.name}: arguments differ in {sorted(values.keys() ^ set(self.arg_names))}")
        given: dict[str, int | float] = {**self.constants, **values}
        packed = bytearray(self.size)
        for name, code, offset in self.fields:
            try:
                struct.pack_into(f"<{code}", packed, offset, given[name])
            except struct.error as error:
                raise ValueError(f"{self.name}: argument {name} = {given[name]} does not fit: {error}") from error
        return bytes(packed)
