"""Where shipped files, user tables and the cache lie; files that appear whole or not at all; temporary folders."""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import logging
import multiprocessing
import os
import secrets
import shutil
import stat
import tempfile
import time
import zlib
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, TypeVar

from kernels.errors import CompileError, InputError, KernelError, TimedOutError

DISTRIBUTION = "mxfp4-tune"
_MARK = Path("spaces") / "fused.yaml"  # of a folder that is ours


def write_atomically(path: Path, content: bytes) -> None:
    """:func:`replace_file` of a file that the user named, links followed.

    Raises:
        InputError: The folder is missing or cannot be written; ``path`` is unchanged.
    """
    try:
        replace_file(real_path(path), content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror}); name a folder you may write") from error


def real_path(path: Path) -> Path:
    """Where the links of ``path`` lead; a circle of them fails once it is opened, as an OSError on every Python."""
    return Path(os.path.realpath(path))


def replace_file(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content``: temporary name in the same folder, fsync, rename.

    Raises:
        OSError: The folder is missing, full, or cannot be written, or ``path`` is a device or a pipe; it is unchanged
            and nothing else is left.
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
    """Give the new file the permissions of the one it replaces, which must be a file: not /dev/null, nor a pipe."""
    with suppress(FileNotFoundError):
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # of a folder the rename says it
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        os.fchmod(handle, mode & 0o777)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


LOGGER = logging.getLogger(__name__)


def in_checkout() -> bool:
    """Whether the program runs from its repository, not from an installed wheel."""
    return (_checkout() / _MARK).is_file()


def configs_folder() -> Path:
    """``configs`` of the checkout that this module is in, or the folder ``share/mxfp4-tune`` of an installed wheel."""
    return _checkout() if in_checkout() else _installed()


def tables_folder() -> Path:
    """Where tuned tables are written: ``configs/tables`` of a checkout, else the user's folder for data."""
    return (_checkout() if in_checkout() else user_data()) / "tables"


def _checkout() -> Path:
    return Path(__file__).resolve().parents[1] / "configs"


@cache
def _installed() -> Path:
    """Where the installer put the data files, as it recorded; a folder that is missing where it recorded none."""
    try:
        recorded = files(DISTRIBUTION) or ()
    except PackageNotFoundError:
        recorded = ()
    marks = [Path(str(file.locate())) for file in recorded if file.match(f"share/{DISTRIBUTION}/{_MARK.as_posix()}")]
    return marks[0].resolve().parents[1] if marks else _checkout()


def user_data() -> Path:
    """``$XDG_DATA_HOME/mxfp4-tune`` or ``~/.local/share/mxfp4-tune``."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / DISTRIBUTION


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


@cache
def _say_once(line: str) -> None:
    """Log ``line``; processes that another one started leave it to that one."""
    level = logging.WARNING if multiprocessing.parent_process() is None else logging.INFO
    LOGGER.log(level, "%s", line)


UNREADABLE: Final = (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError)  # of a torn or foreign file
SCHEMA: Final = 3
BUILT: Final = "ok"
T = TypeVar("T")


@dataclass(frozen=True)
class BuildCache(Generic[T]):
    """Builds by the content that decides them, failed ones included, one file each.

    Any number of processes may share a folder: a file is written under a temporary name and renamed. A file
    that cannot be read whole counts as absent and is written again.

    Args:
        folder: Where the files lie; created on the first write.
    """

    folder: Path

    KIND: ClassVar[type[Any]]  # of a build: a dataclass of plain values
    FAILURES: ClassVar[tuple[type[KernelError], ...]] = (CompileError, TimedOutError)  # that recur

    def load(self, key: str) -> T | KernelError | None:
        """What was stored under ``key``; None if nothing whole was."""
        try:
            record = json.loads(gzip.decompress(self.path(key).read_bytes()))
            if record["schema"] != SCHEMA or record["key"] != key or record["digest"] != digest_of(record["result"]):
                return None
            outcome, values = record["result"]
            if outcome == BUILT:
                build: T = self.KIND(**values)
                return build
            return next(failure for failure in self.FAILURES if failure.outcome == outcome)(*values)
        except (*UNREADABLE, StopIteration):
            return None

    def store(self, key: str, result: T | KernelError) -> None:
        """Keep ``result`` under ``key``; a reader sees the old file or the whole new one.

        Raises:
            OSError: The folder is full or cannot be written; the old file is still there.
        """
        told = _told(result)
        record = {"schema": SCHEMA, "key": key, "digest": digest_of(told), "result": told}
        self.keep(self.path(key), gzip.compress(json.dumps(record).encode(), compresslevel=5, mtime=0))

    def keep(self, path: Path, content: bytes) -> None:
        """Write a file of the folder whole, or raise OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, content)

    def path(self, key: str, suffix: str = ".json.gz") -> Path:
        """File of ``key``."""
        return self.folder / key[:2] / f"{key}{suffix}"


def _told(result: Any) -> list[Any]:
    """A build's fields, or a failure's arguments, under the word for what became of it."""
    return [result.outcome, list(result.args)] if isinstance(result, KernelError) else [BUILT, asdict(result)]


def digest_of(value: object) -> str:
    """Tells a record that was altered from one that was written."""
    return sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
