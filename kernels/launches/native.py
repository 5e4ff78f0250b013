"""Kernels that are machine code: HIP sources of this package, and code objects of others.

A :class:`~kernels.launches.program.KernelCall` of one of these has no ``constexprs``;
its ``args`` follow ``arg_names``.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from kernels.device import DeviceKey
from kernels.errors import InputError, UnavailableError
from kernels.launches.program import Built, KernelCall, Loaded, PointerSpec
from kernels.rocm.arguments import Field, Number, Packer, make_packer
from kernels.rocm.cache import HipCache
from kernels.rocm.compiler import build_key, find_compiler
from kernels.rocm.loader import native_runner
from kernels.triton import interpreter

ArgumentType = Literal["ptr", "i32"]
_CODES: Mapping[ArgumentType, str] = {"ptr": "Q", "i32": "i"}


@dataclass(frozen=True)
class NativeKernel(ABC):
    """One kernel of a code object.

    Args:
        name: Symbol of the kernel function.
        threads: Of a workgroup.
    """

    name: str
    arg_names: tuple[str, ...]
    threads: int

    @abstractmethod
    def packer(self) -> Packer:
        """What writes the kernel-argument buffer."""

    @abstractmethod
    def code_object(self, builds: HipCache) -> bytes:
        """ELF that holds the kernel; raises as :func:`kernels.rocm.loader.native_runner`."""

    def build(self, call: KernelCall, pointers: Mapping[str, PointerSpec], device: DeviceKey) -> Built:
        """Nothing has to be built."""
        return Built()

    def load(self, call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Loaded:
        """Fetch the code and load it; scratch is counted in registers of 4 bytes a lane.

        Raises:
            RuntimeError: Everything is to run through Triton's interpreter, or the GPU does not take the code.
            KernelError: The compiler rejects the kernel, or is missing, or a file is.
        """
        if interpreter.interpreting():
            raise RuntimeError(f"{self.name} is machine code, which Triton's interpreter does not run")
        try:
            run, code = native_runner(self, call.grid)
        except InputError as error:
            raise UnavailableError(str(error)) from error
        return Loaded(self.name, run, code.registers, code.scratch_bytes // 4, code.lds_bytes)

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
    """

    source: str
    defines: Mapping[str, int] = field(hash=False)
    arg_types: tuple[ArgumentType, ...] = ()

    def code_object(self, builds: HipCache) -> bytes:
        """Built, or from ``builds``."""
        return builds.code_object(self)

    def build(self, call: KernelCall, pointers: Mapping[str, PointerSpec], device: DeviceKey) -> Built:
        """Into the cache that a load asks.

        Raises:
            UnavailableError: There is no compiler.
            InputError: The cache cannot be written, or the compiler is gone: no fault of this candidate.
        """
        builds = HipCache()
        try:
            compiler = find_compiler()
        except InputError as error:
            raise UnavailableError(str(error)) from error
        cached = builds.load(build_key(self, device.arch, compiler)) is not None
        builds.code_object(self, device.arch, compiler)
        return Built(cached)

    def packer(self) -> Packer:
        """The arguments in order, each at a multiple of its size: what the compiler lays out."""
        fields: list[Field] = []
        end = 0
        for name, kind in zip(self.arg_names, self.arg_types, strict=True):
            size = struct.calcsize(_CODES[kind])
            offset = -(-end // size) * size
            fields.append((name, _CODES[kind], offset))
            end = offset + size
        return make_packer(self.name, self.arg_names, fields, {}, end)


@dataclass(frozen=True)
class PrebuiltKernel(NativeKernel):
    """A kernel in a code object on this machine.

    Args:
        fields: Name, ``struct`` code and byte offset of every field of the argument buffer.
        constants: Values of the fields that are no arguments.
        size: Bytes of the argument buffer.
    """

    path: Path
    fields: tuple[Field, ...] = ()
    constants: Mapping[str, Number] = field(default_factory=dict, hash=False)
    size: int = 0

    def code_object(self, builds: HipCache) -> bytes:
        """The file."""
        try:
            return self.path.read_bytes()
        except OSError as error:
            raise InputError(f"{self.path}: {error.strerror}; reinstall AITER") from error

    def packer(self) -> Packer:
        """Every field at its offset, zero between them."""
        return make_packer(self.name, self.arg_names, self.fields, self.constants, self.size)
