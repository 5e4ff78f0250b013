"""Files that are either the old or the new one, whole, whatever happens while they are written."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from kernels.errors import InputError


def write_atomically(path: Path, content: bytes) -> None:
    """:func:`replace_file` of a file that the user named, links followed.

    Raises:
        InputError: The folder is missing or cannot be written; ``path`` is unchanged.
    """
    try:
        replace_file(path.resolve(), content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); name a folder you may write") from error


def replace_file(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``: temporary name in the same folder, fsync, rename.

    Raises:
        OSError: The folder is missing, full, or cannot be written; ``path`` is unchanged and nothing else is left.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            _keep_mode(file.fileno(), path)
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _keep_mode(handle: int, path: Path) -> None:
    """Give the new file the permissions of the one it replaces."""
    with suppress(FileNotFoundError):
        os.fchmod(handle, path.stat().st_mode & 0o777)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
