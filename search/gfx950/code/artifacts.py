"""Compilations kept on disk, successful or not."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from kernels.disk import replace_file
from kernels.errors import CompileError, KernelError, TimedOutError
from search.gfx950.code.triton import CompiledKernel, Specialization

SCHEMA = 2
FAILURES = {failure.outcome: failure for failure in (CompileError, TimedOutError)}
UNREADABLE = (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError)  # of a torn or foreign file


@dataclass(frozen=True)
class ArtifactCache:
    """Compiled kernels and compile errors by :meth:`~search.gfx950.code.triton.Specialization.key`, one file each.

    Any number of processes may share a folder: a file is written under a temporary name and renamed. A file
    that cannot be read whole counts as absent and is written again.

    Args:
        folder: Where the files lie; created on the first write.
    """

    folder: Path

    def compile(self, wanted: Specialization, log: Path | None = None) -> CompiledKernel:
        """As :meth:`~search.gfx950.code.triton.Specialization.compile`, answered from the folder where possible.

        Raises:
            CompileError: The compiler rejects the kernel, now or when it was first asked.
            TimedOutError: It did not end in time when it was first asked.
            OSError: The folder cannot be written.
        """
        key = wanted.key()
        known: CompiledKernel | KernelError | None = self.load(key)
        if known is None:
            try:
                known = wanted.compile(log)
            except CompileError as error:
                known = error
            self.store(key, known)
        if isinstance(known, KernelError):
            raise known
        return known

    def load(self, key: str) -> CompiledKernel | KernelError | None:
        """What was stored under ``key``; None if nothing whole was."""
        try:
            record = json.loads(gzip.decompress(self.path(key).read_bytes()))
            if record["schema"] != SCHEMA or record["key"] != key:
                return None
            if record["error"] is not None:
                return FAILURES[record.get("outcome", CompileError.outcome)](record["error"])
            return CompiledKernel(**record["kernel"]) if record["digest"] == _digest(record["kernel"]) else None
        except UNREADABLE:
            return None

    def store(self, key: str, result: CompiledKernel | KernelError) -> None:
        """Keep ``result`` under ``key``; a reader sees the old file or the whole new one.

        Args:
            result: Its code, or one of ``FAILURES``.

        Raises:
            OSError: The folder is full or cannot be written; the old file is still there.
        """
        record = {
            "schema": SCHEMA,
            "key": key,
            "error": str(result) if isinstance(result, KernelError) else None,
            "outcome": result.outcome if isinstance(result, KernelError) else None,
            "digest": None if isinstance(result, KernelError) else _digest(asdict(result)),
            "kernel": None if isinstance(result, KernelError) else asdict(result),
        }
        path = self.path(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, gzip.compress(json.dumps(record).encode(), compresslevel=5, mtime=0))

    def path(self, key: str) -> Path:
        """File of ``key``."""
        return self.folder / key[:2] / f"{key}.json.gz"


def _digest(kernel: Mapping[str, Any]) -> str:
    """Tells a record that was altered from one that was written."""
    return sha256(json.dumps(kernel, sort_keys=True).encode()).hexdigest()
