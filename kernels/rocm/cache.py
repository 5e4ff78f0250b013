"""HIP builds kept on disk, by the content that decides them, failed ones included: each is made once a machine.

One file a build, under :func:`kernels.rocm.compiler.build_key`, in the user's cache folder. A file is written under
a temporary name and renamed. Processes and threads that want the same build wait for the first of them; the lock
ends with its process. A file that cannot be read whole counts as absent. Of a folder that cannot be written, what it
has is used; the rest is built into what :func:`~kernels.disk.writable_cache` names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

from filelock import FileLock

from kernels.device import GFX950
from kernels.disk import BuildCache, default_cache, digest_of, writable_cache
from kernels.errors import InputError, KernelError, TimedOutError
from kernels.rocm.compiler import (
    SOURCES,
    HipBuild,
    HipCompileError,
    HipCompiler,
    HipSource,
    assemble,
    build_key,
    compile_hip,
    find_compiler,
)

DIGEST_BYTES = sha256().digest_size  # behind a code object


@dataclass(frozen=True)
class Parcel:
    """A built kernel on its way to the cache of another machine, where the same compiler finds it.

    Args:
        key: Of the build.
        code_key: Of the code object.
    """

    key: str
    build: HipBuild
    code_key: str
    code: bytes


@dataclass(frozen=True)
class HipCache(BuildCache[HipBuild]):
    """Builds on disk."""

    folder: Path = field(default_factory=lambda: default_cache() / "hip")
    sources: Path = SOURCES

    KIND: ClassVar[type[Any]] = HipBuild
    FAILURES: ClassVar[tuple[type[KernelError], ...]] = (HipCompileError, TimedOutError)

    def build(self, kernel: HipSource, arch: str = GFX950.arch, compiler: HipCompiler | None = None) -> HipBuild:
        """As :func:`~kernels.rocm.compiler.compile_hip`, answered from the folder where possible.

        Raises:
            HipCompileError: The compiler rejects it, now or when it was first asked.
            TimedOutError: It did not end in time, now or when it was first asked.
            KernelError: The compiler was killed; the next call tries again.
            InputError: There is no compiler, no such source, or no folder that has room and can be written.
        """
        compiler = compiler or find_compiler()
        key = build_key(kernel, arch, compiler, self.sources)
        make = partial(compile_hip, kernel, arch, compiler, folder=self.sources)
        known = self.load(key) or self._writable()._make(key, make)
        if isinstance(known, KernelError):
            raise known
        return known

    def code_object(self, kernel: HipSource, arch: str = GFX950.arch, compiler: HipCompiler | None = None) -> bytes:
        """The ELF of :meth:`build`, assembled from its text; raises as that does."""
        return self.parcel(kernel, arch, compiler).code

    def parcel(self, kernel: HipSource, arch: str = GFX950.arch, compiler: HipCompiler | None = None) -> Parcel:
        """What :meth:`receive` takes; raises as :meth:`build` does."""
        compiler = compiler or find_compiler()
        build = self.build(kernel, arch, compiler)
        key = digest_of([build.assembly, arch, compiler.version])
        code = self._assembled(key) or self._writable()._assemble(key, build.assembly, arch, compiler)
        return Parcel(build_key(kernel, arch, compiler, self.sources), build, key, code)

    def receive(self, parcel: Parcel) -> None:
        """Keep what another machine has built.

        Raises:
            InputError: The folder has no room or cannot be written.
        """
        cache = self._writable()
        with _named(cache.folder):
            cache.store(parcel.key, parcel.build)
            cache._keep_code(parcel.code_key, parcel.code)

    def _writable(self) -> HipCache:
        """This cache, or the one that takes what this one cannot."""
        return replace(self, folder=writable_cache(self.folder))

    def _assembled(self, key: str) -> bytes | None:
        """The code object under ``key``; None if nothing whole is there."""
        try:
            stored = self.path(key, ".co").read_bytes()
        except OSError:
            return None
        content = stored[:-DIGEST_BYTES]
        return content if sha256(content).digest() == stored[-DIGEST_BYTES:] else None

    def _assemble(self, key: str, assembly: str, arch: str, compiler: HipCompiler) -> bytes:
        """Assemble and keep, unless that was done before."""
        known = self._assembled(key)
        if known is not None:
            return known
        content = assemble(assembly, arch, compiler)
        with _named(self.folder):
            self._keep_code(key, content)
        return content

    def _keep_code(self, key: str, content: bytes) -> None:
        self.keep(self.path(key, ".co"), content + sha256(content).digest())

    def _make(self, key: str, make: Callable[[], HipBuild]) -> HipBuild | KernelError:
        """Build and keep, unless another process or thread does so first."""
        path = self.path(key)
        with _named(self.folder):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path.with_suffix(".lock"))
            lock.acquire()
        try:
            known = self.load(key)
            if known is None:
                try:
                    known = make()
                except self.FAILURES as error:
                    known = error
                with _named(self.folder):
                    self.store(key, known)
            return known
        finally:
            lock.release()


@contextmanager
def _named(folder: Path) -> Iterator[None]:
    """Name the folder, and the cure, where it cannot be used."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}; set XDG_CACHE_HOME to a folder you may write") from error
