"""Temporary folders that a killed process leaves behind no longer than until the next one is made."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from kernels.errors import InputError

PREFIX: Final = "mxfp4-tune-run-"
YOUNG_S: Final = 60.0  # a younger folder may be one that its process has not locked yet


class RunFolder:
    """A temporary folder, removed when it is closed; before it is made, those of processes that are gone are removed.

    Its process holds a lock on the folder, which ends with the process however that ends, also where process numbers
    are reused or containers share the temporary folder. Of a file system without locks nothing is removed.

    Raises:
        InputError: It cannot be made: no place, or no temporary folder.
    """

    def __init__(self) -> None:
        self._resources = ExitStack()
        try:
            _remove_abandoned(Path(tempfile.gettempdir()))
            self.path = Path(self._resources.enter_context(tempfile.TemporaryDirectory(prefix=PREFIX)))
            handle = _lock(self.path)
        except OSError as error:
            place = error.filename or "the temporary folder"
            raise InputError(
                f"{place}: {error.strerror}; make room there or set TMPDIR to a folder that has some"
            ) from error
        if handle is not None:
            self._resources.callback(os.close, handle)

    def close(self) -> None:
        """Remove the folder."""
        self._resources.close()


def _lock(folder: Path) -> int | None:
    """Open handle that holds the lock of ``folder``; None if another process does, or there are no locks.

    Raises:
        OSError: It is no folder, or gone, or another user's.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _remove_abandoned(where: Path) -> None:
    for folder in where.glob(f"{PREFIX}*"):
        with suppress(OSError):  # another process was faster, or it is another user's
            _remove_if_abandoned(folder)


def _remove_if_abandoned(folder: Path) -> None:
    found = folder.lstat()
    if found.st_uid != os.getuid() or time.time() - found.st_mtime < YOUNG_S:
        return
    handle = _lock(folder)
    if handle is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)
