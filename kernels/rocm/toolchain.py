"""Where the programs of ROCm and LLVM are looked for: the variables that name an install, PATH, AMD's usual folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

LLVM_OLDEST: Final = 20  # the first LLVM that knows CDNA 4
LLVM_NEWEST: Final = 30  # the highest version suffix that is looked for
ROCM_VARIABLES: Final = ("HIP_PATH", "ROCM_PATH", "ROCM_HOME")
ROCM_DEFAULT: Final = Path("/opt/rocm")  # where AMD's packages install
PROBE_TIMEOUT_S: Final = 20.0


def rocm_folders() -> tuple[Path, ...]:
    """Folders that may hold ROCm, best first; none of them need exist."""
    named = (os.environ.get(variable) for variable in ROCM_VARIABLES)
    return tuple(dict.fromkeys((*(Path(folder) for folder in named if folder), ROCM_DEFAULT)))


def rocm_tools(name: str) -> Iterator[str]:
    """Paths of ROCm's program ``name``: of the named installs, on PATH, in the usual folder."""
    *named, usual = (str(folder / "bin" / name) for folder in rocm_folders())
    yield from _existing(*named, name, usual)


def llvm_tools(name: str) -> Iterator[str]:
    """Paths of LLVM's program ``name``: ROCm's, the newest with a version suffix, the plain one."""
    versioned = (f"{name}-{version}" for version in range(LLVM_NEWEST, LLVM_OLDEST - 1, -1))
    yield from _existing(*(str(folder / "llvm" / "bin" / name) for folder in rocm_folders()), *versioned, name)


def llvm_tool(name: str) -> Path | None:
    """The first of :func:`llvm_tools` that is of LLVM 20 or newer, or None."""
    recent = (found for found in llvm_tools(name) if _llvm_version(found) >= LLVM_OLDEST)
    return next(map(Path, recent), None)


class ToolNotFoundError(Exception):
    """No llvm-objdump or llvm-readelf on PATH."""


def find_tool(name: str) -> Path:
    """Path of ``llvm-objdump``, ``llvm-readelf`` or another LLVM tool: ROCm's, the newest versioned one, the plain one.

    Raises:
        ToolNotFoundError: None of them is LLVM 20 or newer.
    """
    found = llvm_tool(name)
    if found is None:
        oldest = f"{name}-{LLVM_OLDEST} or newer on PATH"
        raise ToolNotFoundError(f"{name} not found: install ROCm or LLVM >= {LLVM_OLDEST} ({oldest})")
    return found


def said(program: str, argument: str) -> str:
    """Standard output of ``program argument``; "" where it cannot be run."""
    try:
        done = subprocess.run([program, argument], capture_output=True, text=True, check=False, timeout=PROBE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _llvm_version(tool: str) -> int:
    """Major version that ``tool`` prints; 0 if it prints none."""
    match = re.search(r"LLVM version (\d+)", said(tool, "--version"))
    return int(match[1]) if match else 0


def _existing(*places: str) -> Iterator[str]:
    return (found for found in map(shutil.which, places) if found is not None)


@cache
def torch_version() -> str:
    """Version of torch; it is not loaded for that, which takes more than a second."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:  # built from source and not installed
        import torch

        return str(torch.__version__)


TRITON_DISTRIBUTIONS: Final = ("triton", "triton-rocm", "pytorch-triton-rocm")


@cache
def triton_version() -> str:
    """Version of Triton that tells builds apart: that of its distribution where it says more than ``__version__``.

    Forks and nightly builds for ROCm all call themselves 3.6.0 or 3.7.0; the hash of their sources is in the
    distribution's version only, as in ``3.7.0+amd.rocm7.2.0.git1a2b3c4d``.
    """
    import triton  # here: it takes a second, and what asks for LLVM's tools needs none of it

    short = str(triton.__version__)
    for name in TRITON_DISTRIBUTIONS:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if version.startswith(short):
            return version
    return short
