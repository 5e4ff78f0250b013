"""Locks on files that several processes read, change and replace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from kernels.disk import real_path
from kernels.errors import InputError

WAIT_S: Final = 60.0  # an export of thousands of rows takes seconds


@contextmanager
def lock_beside(file: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock of ``file``: a hidden file in its folder, which is gone afterwards.

    It is removed while it is held. Who waited for it gets a lock on a file that is no more, which FileLock sees since
    version 3.21, and then takes one on the next file of that name.

    Raises:
        Timeout: Another process holds it for longer than ``wait_s``.
        OSError: The folder cannot be written.
    """
    lock = file.with_name(f".{file.name}.lock")
    os.close(os.open(lock, os.O_RDWR | os.O_CREAT, 0o644))  # where it cannot be made, FileLock tries on
    with FileLock(lock, timeout=wait_s):
        try:
            yield
        finally:
            with suppress(OSError):
                lock.unlink()


@contextmanager
def locked(paths: Iterable[Path], wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the locks of ``paths``, by whatever names they are given; their folders must exist.

    Raises:
        InputError: Another process holds one for longer than ``wait_s``, or a folder cannot be written.
    """
    with ExitStack() as held:
        for real in sorted({real_path(path) for path in paths}):  # in one order, so that two never wait for each other
            if not real.parent.is_dir():
                raise InputError(
                    f"{real}: cannot be written (there is no such folder); make it or name another --output"
                )
            try:
                held.enter_context(lock_beside(real, wait_s))
            except Timeout as error:
                raise InputError(f"{real}: another process is changing it; wait for it, or write elsewhere") from error
            except OSError as error:
                raise InputError(
                    f"{real}: cannot be written ({error.strerror}); name a folder you may write"
                ) from error
        yield
