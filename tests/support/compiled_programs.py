"""Programs compiled for gfx950 in tests, each kernel once a session."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path

import pytest

from kernels.device import GFX950
from kernels.families import FAMILIES
from kernels.launches.program import Program
from kernels.problem import GemmShape
from search.gate.check import GateReport, check_program, load_calls
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.calls import CompiledCall, compile_call
from search.space.available import absence


@cache
def session_folder() -> Path:
    """Folder that lives as long as the process."""
    folder = tempfile.TemporaryDirectory(prefix="mxfp4-tests-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def compiled(program: Program) -> list[CompiledCall]:
    """Machine code of every launch."""
    logs = session_folder() / "logs"
    logs.mkdir(exist_ok=True)
    return [compile_call(program, call, ArtifactCache(session_folder()), logs) for call in program.calls]


def simulated_families() -> list[str]:
    """Families whose code the simulator can execute, if what they need is here."""
    return sorted(name for name in FAMILIES if name != "aiter")


def skip_unless_here(family: str) -> None:
    """Skip the test, saying why, where this machine cannot compile or read the family's kernels."""
    reason = absence(family, GFX950, offline=True)
    if reason is not None:
        pytest.skip(f"{family}: {reason}")


def check(program: Program, shape: GemmShape) -> GateReport:
    """Compile and execute."""
    return check_program(program, load_calls(compiled(program)), shape)


def default_program(family: str, shape: GemmShape, **knobs: int | str) -> Program:
    """A family at its default configuration, but for ``knobs``."""
    return FAMILIES[family].program(shape, FAMILIES[family].config(knobs))
