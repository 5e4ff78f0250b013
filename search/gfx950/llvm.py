"""Runs LLVM's binary tools: ROCm's, or any LLVM from 20 on, by name or version suffix on PATH."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kernels.rocm.toolchain import find_tool


class ToolError(Exception):
    """A tool failed; the text is its first error line."""


def run_tool(name: str, *arguments: str) -> str:
    """Standard output of an LLVM tool.

    Raises:
        ToolNotFoundError: The tool is absent.
        ToolError: It failed.
    """
    done = subprocess.run(
        [str(find_tool(name)), *arguments], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[0]
        raise ToolError(f"{name} failed: {reason}")
    return done.stdout


def disassemble(path: Path) -> str:
    """``llvm-objdump -d`` text of a gfx950 code object."""
    return run_tool("llvm-objdump", "-d", "--mcpu=gfx950", str(path))


def read_notes(path: Path) -> str:
    """``llvm-readelf --notes`` text, which holds the kernel metadata as YAML."""
    return run_tool("llvm-readelf", "--notes", str(path))
