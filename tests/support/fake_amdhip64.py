"""A stand-in for ``libamdhip64``, built from C: it keeps what the launcher passes through the C interface."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("fake_amdhip64.c")
NO_DEVICE, NO_BINARY, INVALID_HANDLE, NOT_FOUND = 100, 209, 400, 500  # Source: hip_runtime_api.h, hipError_t


class FakeLaunch(ctypes.Structure):
    _fields_ = (
        ("function", ctypes.c_ulong), ("stream", ctypes.c_ulong), ("argument_bytes", ctypes.c_ulong),
        ("kernel_params", ctypes.c_ulong), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint), ("device", ctypes.c_int), ("arguments", ctypes.c_ubyte * 1024),
    )  # fmt: skip


class FakeState(ctypes.Structure):
    _fields_ = (
        ("failing", ctypes.c_char * 64), ("status", ctypes.c_int), ("last_error", ctypes.c_int),
        ("device", ctypes.c_int), ("loaded", ctypes.c_int), ("unloaded", ctypes.c_int), ("launches", ctypes.c_int),
        ("image", ctypes.c_ubyte * 64), ("symbol", ctypes.c_char * 256), ("launch", FakeLaunch * 64),
    )  # fmt: skip


def build(folder: Path) -> Path:
    """The library, compiled into ``folder``; the test is skipped where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    path = folder / "fake_hip.so"  # named so that nothing takes it for the real one
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(path), str(SOURCE)], check=True)
    return path


class FakeHip:
    """What happened in the library, and what is to happen."""

    def __init__(self, library: Path) -> None:
        self.library = library
        self.state: Any = FakeState.in_dll(ctypes.CDLL(str(library)), "fake_state")

    def reset(self) -> None:
        ctypes.memset(ctypes.addressof(self.state), 0, ctypes.sizeof(self.state))

    def fail(self, call: str, status: int) -> None:
        self.state.failing, self.state.status = call.encode(), status

    @property
    def last(self) -> Any:
        """The latest launch."""
        return self.state.launch[(self.state.launches - 1) % 64]

    @property
    def arguments(self) -> bytes:
        """Of the latest launch."""
        return bytes(self.last.arguments[: self.last.argument_bytes])
