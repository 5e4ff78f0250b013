"""The user's folder of compiled kernels, and what stands in for it where it cannot be written."""

from __future__ import annotations

import errno
import functools
import logging
import multiprocessing
import os
import stat
import tempfile
from pathlib import Path

from kernels.errors import InputError

LOGGER = logging.getLogger(__name__)


def default_cache() -> Path:
    """``$XDG_CACHE_HOME/mxfp4-tune`` or ``~/.cache/mxfp4-tune``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mxfp4-tune"


def writable_cache(folder: Path) -> Path:
    """``folder``, made if need be, or the user's stand-in below the temporary folder, which a log line says once.

    All processes of the user share the stand-in: what lies there is named by its content, whatever it stands for.

    Raises:
        InputError: Neither can be written.
    """
    try:
        return _tried(folder)
    except OSError as error:
        refused = f"{folder}: compiled kernels cannot be kept there ({error.strerror})"
    try:
        stand_in = _tried(_stand_in())
    except OSError as error:
        cure = "set XDG_CACHE_HOME to a folder that can be written"
        raise InputError(f"{refused}, nor in a temporary folder ({error.strerror}); {cure}") from error
    _say_once(f"{refused}; {stand_in} serves instead, set XDG_CACHE_HOME to choose")
    return stand_in


def _tried(folder: Path) -> Path:
    """``folder``, which is there and takes files."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return folder


def _stand_in() -> Path:
    """A folder that nobody else can put kernels into.

    Raises:
        OSError: It cannot be made, or is another's.
    """
    folder = Path(tempfile.gettempdir()) / f"mxfp4-tune-cache-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EACCES, f"{folder} is not this user's alone")
    return folder


@functools.cache
def _say_once(line: str) -> None:
    """Log ``line``; processes that another one started leave it to that one."""
    level = logging.WARNING if multiprocessing.parent_process() is None else logging.INFO
    LOGGER.log(level, "%s", line)
