"""HIP sources to machine code, with ROCm's ``hipcc`` or a plain clang: no GPU and no HIP header is needed.

A build is the compiler's assembly, which the simulator executes; the code object is assembled from that very text
when a GPU asks for it, so what runs is what was checked, and a machine without a linker still judges candidates.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from kernels.device import GFX950
from kernels.disk import RunFolder
from kernels.errors import CompileError, InputError, KernelError, TimedOutError, before_cure
from kernels.rocm.toolchain import LLVM_OLDEST, llvm_tools, rocm_tools, said

COMPILER_VARIABLE: Final = "MXFP4_HIP_COMPILER"  # path or name of the hipcc or clang to use
SOURCES: Final = Path(__file__).parent.parent / "hip"
FLAGS: Final = (
    "-x", "hip", "--cuda-device-only", "-nogpulib", "-nogpuinc", "-std=c++17", "-O3", "-S",
    "-mcode-object-version=5",  # the newest that every ROCm with CDNA 4 loads, whichever clang is the compiler
    "-Wno-unused-command-line-argument",
)  # fmt: skip
ENVIRONMENT: Final = {"HIP_PLATFORM": "amd", "LC_ALL": "C"}
ADDED_FLAGS: Final = ("HIPCC_COMPILE_FLAGS_APPEND", "HIPCC_LINK_FLAGS_APPEND", "CCC_OVERRIDE_OPTIONS")
TIMEOUT_S: Final = 100.0  # of one build; the largest of this package takes a few seconds
LINKER: Final = "ld.lld"
MESSAGE_LENGTH: Final = 300  # characters kept of a diagnostic in the one-line message
OUTPUT_LENGTH: Final = 1 << 16  # characters kept of what a compiler writes
# Signals that users and operating systems send, as the process itself or a wrapper reports them.
_ENDED: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM, signal.SIGXCPU)
_KILLED: Final = frozenset(status for number in _ENDED for status in (-number, 128 + number))
# What a compiler says where the machine failed it; asked again, it may well succeed.
_LACKING: Final = re.compile(
    r".*(?:No space left on device|Disk quota exceeded|Read-only file system|Input/output error|[Oo]ut of memory"
    r"|Cannot allocate memory|bad_alloc|Too many open files|Resource temporarily unavailable"
    r"|unable to execute command: (?:Killed|Terminated|Hangup|Interrupt)).*"
)
_INCLUDE: Final = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
_DIAGNOSTICS: Final = (
    r"(?m)^(?:.*/)?([^/\n]+:\d+):\d+: (?:fatal )?error: (.*)",
    r"()(?:fatal )?error: (?:error in backend: )?(.*)",
    r"()(LLVM ERROR: .*|Assertion .* failed.*|.*undefined (?:symbol|hidden symbol): .*)",
)


class HipSource(Protocol):
    """What is compiled; :class:`kernels.launches.native.HipKernel` is one."""

    @property
    def name(self) -> str:
        """Symbol of the kernel function."""

    @property
    def source(self) -> str:
        """File name in ``kernels/hip``."""

    @property
    def defines(self) -> Mapping[str, int]:
        """Preprocessor constants."""


@dataclass(frozen=True)
class HipCompiler:
    """A compiler that knows ``GFX950``.

    Args:
        command: ``hipcc`` or ``clang``.
        clang: The clang behind it, which assembles and links.
        version: What it says of itself, without paths.
    """

    command: Path
    clang: Path
    version: str

    def __str__(self) -> str:
        return f"{self.command} ({self.version})"

    def linker(self) -> str | None:
        """Path of the ``ld.lld`` that makes code objects; None if there is none."""
        return shutil.which(said(str(self.clang), f"--print-prog-name={LINKER}").strip() or LINKER)


@dataclass(frozen=True)
class HipBuild:
    """What became of a source.

    Args:
        assembly: Text of the whole source, AMDGPU syntax, with the kernels' metadata.
        compiler: :attr:`HipCompiler.version`.
    """

    assembly: str
    compiler: str
    compile_s: float


class HipCompileError(CompileError):
    """The compiler rejected a source; ``str`` is one line, ``output`` all that the compiler wrote."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message, output)
        self.output = output

    def __str__(self) -> str:
        return str(self.args[0])


def find_compiler() -> HipCompiler:
    """The compiler that ``MXFP4_HIP_COMPILER`` names, else ROCm's hipcc, else the newest clang with AMDGPU.

    Raises:
        InputError: There is none that knows ``GFX950``.
    """
    named = os.environ.get(COMPILER_VARIABLE)
    if named:
        found = probe_compiler(named)
        if found is None:
            raise InputError(
                f"{COMPILER_VARIABLE}={named} does not compile for {GFX950.arch}: "
                f"name a hipcc, or a clang {LLVM_OLDEST} or newer with the AMDGPU target"
            )
        return found
    for candidate in (*rocm_tools("hipcc"), *llvm_tools("clang")):
        found = probe_compiler(candidate)
        if found is not None:
            return found
    raise InputError(
        f"no HIP compiler: install ROCm 7 or newer, or clang {LLVM_OLDEST} or newer with the AMDGPU target, "
        f"or name one in {COMPILER_VARIABLE}"
    )


def lacking_compiler(*, linked: bool) -> str | None:
    """What this machine lacks of a HIP compiler, after a semicolon the cure; None if it can build.

    Args:
        linked: Whether code objects are made, which takes a linker.
    """
    try:
        compiler = find_compiler()
    except InputError as error:
        return before_cure(error)
    if not linked or compiler.linker() is not None:
        return None
    return f"{compiler} has no {LINKER}; install lld of the same LLVM"


@cache
def probe_compiler(command: str) -> HipCompiler | None:
    """``command``, asked once a process, or None where it does not compile for ``GFX950``."""
    command = os.path.abspath(shutil.which(command) or command)  # it will run in another folder
    answer = said(command, "--version")
    version = re.search(r"clang version (\d+).*", answer)
    folder = re.search(r"(?m)^InstalledDir: (.*)$", answer)
    clang = Path(folder[1]) / "clang" if folder else Path(command)
    if not clang.exists():
        clang = Path(command)
    if version is None or int(version[1]) < LLVM_OLDEST or "amdgcn" not in said(str(clang), "--print-targets"):
        return None
    toolkit = re.search(r"HIP version: \S+", answer)
    words = [match[0] for match in (toolkit, version) if match is not None]
    return HipCompiler(Path(command), clang, ", ".join(words))


def build_key(
    kernel: HipSource, arch: str = GFX950.arch, compiler: HipCompiler | None = None, folder: Path = SOURCES
) -> str:
    """SHA-256, in hexadecimal, of all that decides a build: sources with what they include, macros, compiler, flags.

    Raises:
        InputError: There is no compiler, or no such source.
    """
    compiler = compiler or find_compiler()
    digest = hashlib.sha256()
    for part in (compiler.version, *_arguments(kernel, arch)):
        digest.update(f"{len(part)}\0{part}".encode())
    for name, content in sorted(read_sources(kernel.source, folder).items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def read_sources(name: str, folder: Path = SOURCES) -> dict[str, bytes]:
    """Content of the source ``name`` and of the files of ``folder`` that it includes, by name.

    Raises:
        InputError: There is no source of that name.
    """
    found: dict[str, bytes] = {}
    waiting = [name]
    while waiting:
        path = folder / waiting.pop()
        if path.name in found or not path.is_file():
            continue
        found[path.name] = path.read_bytes().replace(b"\r\n", b"\n")
        waiting += _INCLUDE.findall(found[path.name].decode(errors="replace"))
    if name not in found:
        raise InputError(f"{folder / name}: no such HIP source; reinstall the package")
    return found


def compile_hip(
    kernel: HipSource,
    arch: str = GFX950.arch,
    compiler: HipCompiler | None = None,
    log: Path | None = None,
    folder: Path = SOURCES,
) -> HipBuild:
    """Compile the source of ``kernel``, with its macros, to assembly.

    Args:
        log: File that receives what the compiler writes.

    Raises:
        HipCompileError: The compiler rejects it.
        TimedOutError: It takes longer than ``TIMEOUT_S``.
        KernelError: The compiler was killed, lacked memory or space, or wrote no assembly.
        InputError: There is no compiler, no such source, or no temporary folder.
    """
    compiler = compiler or find_compiler()
    sources = read_sources(kernel.source, folder)
    started = time.perf_counter()
    with _bench(sources) as place:
        command = [str(compiler.command), *_arguments(kernel, arch), kernel.source, "-o", "kernel.s"]
        _run(command, kernel.source, place, log)
        assembly = _written(place / "kernel.s", kernel.source).decode(errors="replace")
    if re.search(rf"(?m)^{re.escape(kernel.name)}:", assembly) is None:
        raise KernelError(f"{kernel.source}: the compiler wrote no assembly of {kernel.name}")
    return HipBuild(assembly, compiler.version, time.perf_counter() - started)


def assemble(assembly: str, arch: str = GFX950.arch, compiler: HipCompiler | None = None) -> bytes:
    """The code object, ELF, of an assembly text.

    Raises:
        HipCompileError: The text is no assembly, or ``ld.lld`` is missing.
        TimedOutError: It takes longer than ``TIMEOUT_S``.
        KernelError: The compiler was killed, lacked memory or space, or wrote nothing.
        InputError: There is no compiler, or no temporary folder.
    """
    compiler = compiler or find_compiler()
    target = ("--target=amdgcn-amd-amdhsa", f"-mcpu={arch}")
    with _bench({"kernel.s": assembly.encode()}) as place:
        _run([str(compiler.clang), *target, "kernel.s", "-o", "kernel.co"], "code object", place, None)
        return _written(place / "kernel.co", "code object")


@contextmanager
def _bench(files: Mapping[str, bytes]) -> Iterator[Path]:
    """A temporary folder with these files."""
    with ExitStack() as stack:
        try:
            place = stack.enter_context(closing(RunFolder())).path
            for name, content in files.items():
                (place / name).write_bytes(content)
        except OSError as error:
            raise InputError(
                f"{tempfile.gettempdir()}: {error.strerror}; make room there or set TMPDIR to a folder that has some"
            ) from error
        yield place


def _written(path: Path, what: str) -> bytes:
    """What a compiler that reports success has written."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise KernelError(f"{what}: the compiler reports success but wrote no {path.name}") from error


def _arguments(kernel: HipSource, arch: str) -> tuple[str, ...]:
    defines = (f"-D{name}={value}" for name, value in sorted(kernel.defines.items()))
    return (*FLAGS, f"--offload-arch={arch}", *defines)


def _run(command: Sequence[str], what: str, folder: Path, log: Path | None) -> None:
    """Run a compiler in ``folder``; its failure is an error of one line."""
    try:
        status, written = _finish(command, folder)
    except subprocess.TimeoutExpired as error:
        raise TimedOutError(f"{what}: compilation took longer than {TIMEOUT_S:.0f} s") from error
    except OSError as error:
        raise InputError(f"{command[0]} cannot be run: {error.strerror}") from error
    output = written[:OUTPUT_LENGTH]
    if log is not None:
        log.write_text(output)
    if status in _KILLED:
        raise KernelError(f"{what}: the compiler was killed")
    lacking = _LACKING.search(output) if status else None
    if lacking is not None:
        raise KernelError(f"{what}: the compiler could not work: {lacking[0].strip()[:MESSAGE_LENGTH]}")
    if status:
        reason = diagnostic(output) or f"exit code {status}"
        raise HipCompileError(reason if reason.startswith(f"{what}:") else f"{what}: {reason}", output)


def _finish(command: Sequence[str], folder: Path) -> tuple[int, str]:
    """Exit status and output; where this process cannot wait, the wrapper and the compiler behind it end with it."""
    with subprocess.Popen(
        command, cwd=folder, env=_environment(os.environ, folder), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=TIMEOUT_S)
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, output


def _environment(given: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Without the variables that add flags, which no key would know; temporary files go to ``folder``."""
    kept = {name: value for name, value in given.items() if name not in ADDED_FLAGS}
    return {**kept, **ENVIRONMENT, "TMPDIR": str(folder)}


def diagnostic(output: str) -> str:
    """First error in a compiler's output, with file and line where it names them, or ""."""
    return next(_diagnostics(output), "")[:MESSAGE_LENGTH]


def _diagnostics(output: str) -> Iterator[str]:
    for pattern in _DIAGNOSTICS:
        for place, message in re.findall(pattern, output):
            yield f"{place}: {message.strip()}" if place else message.strip()
