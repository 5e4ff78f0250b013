"""Programs compiled for gfx950 in tests, each kernel once a session."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path

from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.program import Program
from search.compiled import CompiledCall, compile_call, load_calls
from search.gate import GateReport, check_program
from search.gfx950.artifacts import ArtifactCache


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


def check(program: Program, shape: GemmShape) -> GateReport:
    """Compile and execute."""
    return check_program(program, load_calls(compiled(program)), shape)


def default_program(family: str, shape: GemmShape, **knobs: int | str) -> Program:
    """A family at its default configuration, but for ``knobs``."""
    return FAMILIES[family].program(shape, FAMILIES[family].config(knobs))
