"""The HIP runtime of this process: load code objects, find functions in them, launch; every failure is named.

The binding is ctypes on the ``libamdhip64`` that torch has mapped into the process: streams, contexts and addresses
belong to one copy of that library, torch's wheels bring their own, and hip-python opens the one of ``ROCM_PATH``.
A launch of twelve arguments costs 2.0 us of host time, of which 1.2 us are the ctypes call. hip-python, which must
match the ROCm in use, takes 2.6 us with the same packed buffer and 65 us where it packs; torch's own class, which is
private, 37 us. Source: benchmarks/native_launch_cost.py, Xeon, hip-python 10.0.0, torch 2.13.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from kernels.errors import UnavailableError

LIBRARY_NAME: Final = "libamdhip64.so"
# Source: hip_runtime_api.h. The kernel arguments as one buffer: pairs of what follows and a pointer, then the end.
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 3
# HIP copies the arguments that a code object's metadata lists, whatever size it is told. AITER's list padding behind
# the last field, 12 bytes beyond the size that AITER itself passes.
_SLACK_BYTES = 64
_SHARED_BYTES, _LOCAL_BYTES, _REGISTERS = 1, 3, 4  # hipFunction_attribute


class HipError(RuntimeError):
    """A call of the HIP runtime failed; one line that names the call and HIP's error."""


@dataclass(frozen=True)
class HipFunction:
    """A kernel that is loaded.

    Args:
        device: Index of the GPU that it was loaded on.
        registers: A lane.
        scratch_bytes: A lane; spilled registers live there.
    """

    name: str
    handle: int
    device: int
    registers: int
    scratch_bytes: int
    lds_bytes: int


class ArgumentBuffer:
    """Memory for the arguments of one launch, and the list that tells HIP where it is."""

    def __init__(self, size: int) -> None:
        self.memory = (ctypes.c_char * (size + _SLACK_BYTES))()
        self._size = ctypes.c_size_t(size)
        places = (_BUFFER_POINTER, ctypes.addressof(self.memory), _BUFFER_SIZE, ctypes.addressof(self._size), _END)
        self.extra = (ctypes.c_void_p * len(places))(*places)


class HipRuntime:
    """One copy of the runtime library. Safe to share between threads.

    A module stays loaded as long as the process: a captured graph refers to its functions, and nothing tells when
    the last such graph is gone. There is one for each device and code object, of some ten kilobytes.

    Args:
        library: Path of ``libamdhip64``.
    """

    def __init__(self, library: Path) -> None:
        self._hip: Any = ctypes.CDLL(str(library))
        self._hip.hipGetErrorName.restype = ctypes.c_char_p
        self._hip.hipGetErrorString.restype = ctypes.c_char_p
        pointer, count = ctypes.c_void_p, ctypes.c_uint
        self._hip.hipModuleLaunchKernel.argtypes = [pointer, *7 * (count,), *3 * (pointer,)]
        self._modules: dict[tuple[int, bytes], ctypes.c_void_p] = {}
        self._functions: dict[tuple[int, bytes, str], HipFunction] = {}
        self._lock = threading.Lock()

    def device(self) -> int:
        """Index of the calling thread's current GPU.

        Raises:
            HipError: There is none.
        """
        index = ctypes.c_int()
        self._check("hipGetDevice", self._hip.hipGetDevice(ctypes.byref(index)))
        return index.value

    def version(self) -> str:
        """Of the runtime itself, which need not be the one that torch was built with; ``7.2.26015``.

        Raises:
            HipError: It does not say.
        """
        number = ctypes.c_int()
        self._check("hipRuntimeGetVersion", self._hip.hipRuntimeGetVersion(ctypes.byref(number)))
        # Source: hip_version.h, HIP_VERSION.
        return f"{number.value // 10_000_000}.{number.value // 100_000 % 100}.{number.value % 100_000}"

    def load(self, code_object: bytes, name: str) -> HipFunction:
        """The function ``name`` of ``code_object`` on the current GPU, loaded if it is not.

        Raises:
            HipError: There is no GPU, it does not take the code object, or there is no such function.
        """
        device, digest = self.device(), sha256(code_object).digest()
        with self._lock:
            known = self._functions.get((device, digest, name))
            if known is None:
                module = self._modules.get((device, digest)) or self._load_module(code_object, name)
                try:
                    known = self._find(module, name, device)
                except HipError:
                    if (device, digest) not in self._modules:
                        self._hip.hipModuleUnload(module)
                    raise
                self._modules[device, digest] = module
                self._functions[device, digest, name] = known
            return known

    def launcher(
        self, function: HipFunction, grid: tuple[int, int, int], threads: int
    ) -> Callable[[int, ArgumentBuffer], None]:
        """What launches ``function`` on a stream, given its handle, with the arguments in a buffer.

        HIP copies the buffer before the launch returns. LDS needs no attribute, however large: these kernels
        declare all of it in the code object.

        Args:
            grid: Workgroups in x, y, z.
            threads: Of a workgroup.
        """
        launch = self._hip.hipModuleLaunchKernel
        # Converted once; a launch is left with the stream and the list of arguments.
        fixed = (ctypes.c_void_p(function.handle), *map(ctypes.c_uint, (*grid, threads, 1, 1, 0)))

        def run(stream: int, arguments: ArgumentBuffer) -> None:
            status = launch(*fixed, stream, None, arguments.extra)
            if status:
                self._failed(f"launch of {function.name} (grid {grid}, {threads} threads)", status)

        return run

    def _load_module(self, code_object: bytes, name: str) -> ctypes.c_void_p:
        module = ctypes.c_void_p()
        status = self._hip.hipModuleLoadData(ctypes.byref(module), code_object)
        self._check(f"hipModuleLoadData of the code object of {name}", status)
        return module

    def _find(self, module: ctypes.c_void_p, name: str, device: int) -> HipFunction:
        handle = ctypes.c_void_p()
        status = self._hip.hipModuleGetFunction(ctypes.byref(handle), module, name.encode())
        self._check(f"hipModuleGetFunction of {name}", status)
        facts = (self._attribute(which, handle, name) for which in (_REGISTERS, _LOCAL_BYTES, _SHARED_BYTES))
        return HipFunction(name, handle.value or 0, device, *facts)

    def _attribute(self, which: int, handle: ctypes.c_void_p, name: str) -> int:
        value = ctypes.c_int()
        status = self._hip.hipFuncGetAttribute(ctypes.byref(value), which, handle)
        self._check(f"hipFuncGetAttribute of {name}", status)
        return value.value

    def _check(self, call: str, status: int) -> None:
        if status:
            self._failed(call, status)

    def _failed(self, call: str, status: int) -> None:
        """Raise; the error is taken off the runtime first, or torch would blame its own next launch."""
        self._hip.hipGetLastError()
        name, text = (self._text(function, status) for function in ("hipGetErrorName", "hipGetErrorString"))
        raise HipError(f"{call}: {name} ({status}){'' if text == name else f': {text}'}")

    def _text(self, function: str, status: int) -> str:
        said: bytes | None = getattr(self._hip, function)(status)
        return "unknown" if said is None else said.decode(errors="replace").strip()


@cache
def hip_runtime() -> HipRuntime:
    """The runtime that torch uses; the same object for the whole process.

    Raises:
        HipError: torch of this process is not built for ROCm.
    """
    return HipRuntime(mapped_library())


def rocm_version() -> str:
    """Version of HIP that torch was built with, and that of the runtime in use where it is another one."""
    import torch  # here: what launches needs no more than the library that torch has mapped

    built, running = str(torch.version.hip), hip_runtime().version()
    short = ".".join(built.split("-")[0].split(".")[:3])
    return built if running == short else f"{built}, runtime {running}"


def mapped_library(maps: Path = Path("/proc/self/maps"), own: Path | None = None) -> Path:
    """Path of the ``libamdhip64`` that torch uses: the one that is mapped into the process.

    Args:
        maps: List of what is mapped, as Linux writes it.
        own: torch's folder: of several copies, the one below it or beside it counts. Default: that of the process.

    Raises:
        HipError: There is none.
        UnavailableError: There are several, and nothing tells which is torch's.
    """
    mapped = (Path(line.split(maxsplit=5)[-1]) for line in maps.read_text().splitlines())
    found = sorted({path for path in mapped if path.name.startswith(LIBRARY_NAME)})
    if not found:
        raise HipError(f"no {LIBRARY_NAME} in this process: HIP kernels need a torch that is built for ROCm")
    if len(found) == 1:
        return found[0]
    packages = (own or _torch_folder()).parent  # wheels bring ROCm in torch/lib, or as packages beside torch
    of_torch = [path for path in found if path.is_relative_to(packages)]
    if len(of_torch) == 1:
        return of_torch[0]
    raise UnavailableError(
        f"two HIP runtimes in this process, {found[0]} and {found[1]}: streams of one fail in the other"
    )


def _torch_folder() -> Path:
    import torch  # here, as in rocm_version

    return Path(torch.__file__).parent
