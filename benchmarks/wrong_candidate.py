"""Show the gate at work: correct candidates pass, and the same ones with a classic mistake are caught.

Usage: python benchmarks/wrong_candidate.py

The mistakes are those of published kernels: the tail of K is not masked where K is no multiple of BLOCK_K, and a
reduction reads one split slice more than the GEMM has written. Nothing but the compiled gfx950 code is looked at.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.errors import KernelError
from kernels.families import FAMILIES
from kernels.launches.program import Program
from kernels.problem import GemmShape
from search.gate.check import check_program, load_calls
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.calls import compile_call
from search.terminal import one_line_errors

SHAPE = GemmShape(16, 2112, 576)  # 576 = 2.25 * BLOCK_K


def with_constexprs(program: Program, index: int, **changes: int) -> Program:
    """``program`` with other compile-time arguments of launch ``index``."""
    calls = list(program.calls)
    calls[index] = replace(calls[index], constexprs={**calls[index].constexprs, **changes})
    return replace(program, calls=tuple(calls))


def verdict(program: Program, cache: ArtifactCache, logs: Path) -> str:
    """What the gate says of ``program``."""
    try:
        compiled = [compile_call(program, call, cache, logs) for call in program.calls]
        report = check_program(program, load_calls(compiled), SHAPE)
    except KernelError as error:
        return f"{error.outcome}: {error}"
    return f"ok: {report.elements} elements compared, largest relative error {report.max_rel_error:.4f}"


def main() -> None:
    """Print one line a program."""
    fused, split = FAMILIES["fused"], FAMILIES["fused_splitk_workspace"]
    tiled = fused.program(SHAPE, fused.config({"BLOCK_K": 256}))
    sliced = split.program(SHAPE, split.config({"BLOCK_K": 128, "split_k": 3}))
    programs = {
        "fused": tiled,
        "fused, K tail not masked": with_constexprs(tiled, 0, K=768),
        "split in 3": sliced,
        "split in 3, 4 slices summed": with_constexprs(sliced, 1, SPLIT_K=4),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, program in programs.items():
            print(f"{name:28}{verdict(program, ArtifactCache(Path(folder)), Path(folder))}")


if __name__ == "__main__":
    with one_line_errors():
        main()
