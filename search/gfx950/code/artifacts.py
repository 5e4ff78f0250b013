"""Compilations of Triton kernels kept on disk, successful or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kernels.disk import BuildCache
from kernels.errors import CompileError, KernelError
from search.gfx950.code.triton import CompiledKernel, Specialization


@dataclass(frozen=True)
class ArtifactCache(BuildCache[CompiledKernel]):
    """Compiled kernels and compile errors by :meth:`~search.gfx950.code.triton.Specialization.key`."""

    KIND: ClassVar[type[Any]] = CompiledKernel

    def compile(self, wanted: Specialization, log: Path | None = None) -> CompiledKernel:
        """As :meth:`~search.gfx950.code.triton.Specialization.compile`, answered from the folder where possible.

        Raises:
            CompileError: The compiler rejects the kernel, now or when it was first asked.
            TimedOutError: It did not end in time when it was first asked.
            OSError: The folder cannot be written.
        """
        key = wanted.key()
        known = self.load(key)
        if known is None:
            try:
                known = wanted.compile(log)
            except CompileError as error:
                known = error
            self.store(key, known)
        if isinstance(known, KernelError):
            raise known
        return known
