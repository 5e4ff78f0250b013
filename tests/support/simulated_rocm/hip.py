"""Builds the stand-in for ``libamdhip64``, maps it into this process, and answers what it asks."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import triton

from simulated_rocm.device import INVALID_IMAGE, INVALID_VALUE, NOT_FOUND, SimulatedDevice
from simulated_rocm.machine import GpuSpec, MachineSpec

CHOICE = "TRITON_LIBHIP_PATH"  # environment variable: the copy of libamdhip64 that Triton takes before any other
SOURCE = Path(__file__).with_name("amdhip64.c")
HEADERS = Path(triton.__file__).parent / "backends" / "amd" / "include"
FLAGS = ("-shared", "-fPIC", "-Wl,-Bsymbolic", "-O1", "-w", f"-I{HEADERS}")
_LOAD = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_ulong))
_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.POINTER(ctypes.c_ulong))
_ATTRIBUTE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_int)
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_ulong, ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_uint), ctypes.c_uint,
    ctypes.c_ulong, ctypes.c_void_p, ctypes.c_void_p,
)  # fmt: skip
_POINTER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_ulong)


class _Hooks(ctypes.Structure):
    _fields_ = (
        ("load", _LOAD), ("function", _FUNCTION), ("attribute", _ATTRIBUTE), ("launch", _LAUNCH),
        ("is_device_pointer", _POINTER),
    )  # fmt: skip


class _Machine(ctypes.Structure):
    _fields_ = (
        ("runtime_version", ctypes.c_int), ("device_count", ctypes.c_int), ("current_device", ctypes.c_int),
        ("compute_units", ctypes.c_int), ("architecture", ctypes.c_char * 256),
    )  # fmt: skip


def build() -> Path:
    """The library, compiled once for each version of its source.

    Raises:
        FileNotFoundError: No C compiler.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler: the stand-in for libamdhip64 cannot be built")
    digest = hashlib.sha256(SOURCE.read_bytes() + repr(FLAGS).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"simulated-rocm-{os.getuid()}-{digest}"
    path = folder / "libamdhip64.so"
    if not path.exists():
        folder.mkdir(exist_ok=True)
        half = folder / f"{os.getpid()}.so"
        subprocess.run([compiler, *FLAGS, "-o", half, SOURCE, "-ldl"], check=True)
        half.replace(path)
    return path


def map_library(spec: MachineSpec) -> Any:
    """The library, mapped into this process; of its answers only the version is there yet.

    Triton is told to take it, as it looks for others where several are mapped, and in what the user has set.
    """
    path = build()
    os.environ[CHOICE] = str(path)
    library = ctypes.CDLL(str(path))
    _Machine.in_dll(library, "simulated_machine").runtime_version = spec.runtime
    return library


class Library:
    """The mapped library, with its hooks in ``device``."""

    def __init__(self, spec: MachineSpec, gpus: tuple[GpuSpec, ...], device: SimulatedDevice) -> None:
        self._hip = map_library(spec)
        self._device = device
        machine = _Machine.in_dll(self._hip, "simulated_machine")
        machine.device_count = len(gpus)
        if gpus:
            machine.compute_units, machine.architecture = gpus[0].compute_units, gpus[0].architecture.encode()
        self._hooks = _Hooks.in_dll(self._hip, "simulated_hooks")
        self._kept = (  # as long as the library may call them
            _LOAD(self._load), _FUNCTION(self._function), _ATTRIBUTE(device.attribute), _LAUNCH(self._launch),
            _POINTER(lambda address: int(device.is_device_pointer(address))),
        )  # fmt: skip
        for (name, _), hook in zip(_Hooks._fields_, self._kept, strict=True):
            setattr(self._hooks, name, hook)

    def _load(self, image: int, handle: Any) -> int:
        handle[0] = self._device.load(image)
        return 0

    def _function(self, module: int, name: bytes, handle: Any) -> int:
        try:
            handle[0] = self._device.function(module, name.decode())
        except LookupError:
            return NOT_FOUND if module else INVALID_IMAGE
        return 0

    def _launch(self, function: int, grid: Any, block: Any, lds: int, stream: int, params: int, extra: int) -> int:
        if block[0] * block[1] * block[2] > 1024 or (not params and not extra):
            return INVALID_VALUE
        self._device.launch(function, grid[:3], block[:3], lds, params, extra)
        return 0
