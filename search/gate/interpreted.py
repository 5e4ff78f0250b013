"""Run candidates through Triton's CPU interpreter, a few tiles of each, in a process of their own.

The interpreter must be chosen before Triton is imported, so ``python -m search.gate.interpreted`` is started with
TRITON_INTERPRET=1. It reads one JSON line a candidate, and answers each with one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.errors import KernelError, UnavailableError, WrongResultError
from kernels.families import FAMILIES
from kernels.families.family import Family
from kernels.launches.coverage import GridIndex
from kernels.launches.program import KernelCall, Program
from kernels.problem import GemmShape
from kernels.runtime.runner import TORCH_DTYPES, run_call
from kernels.triton import interpreter
from search.evaluation import Candidate, Evaluation, Outcome, Value
from search.gate.sample import Sample, shared_inputs, take_sample
from search.gate.served import Serving, named, ways

ROOT = Path(__file__).resolve().parents[2]
LAST_WORDS = 300  # characters kept of what a broken interpreter wrote


def judged_by_interpreter(device: DeviceKey, candidates: Sequence[Candidate]) -> Iterator[Evaluation]:
    """Evaluation of each candidate; one on which the interpreter's process ends is ``crashed``."""
    process: Interpreter | None = None
    try:
        for candidate in candidates:
            process = process or Interpreter()
            done = process.judge(candidate, device)
            if done is None:
                yield Evaluation("crashed", f"the interpreter ended: {process.last_words()}")
                process = None
            else:
                yield done
    finally:
        if process is not None:
            process.close()


class Interpreter:
    """A process with Triton's interpreter, asked one candidate at a time."""

    def __init__(self) -> None:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-m", "search.gate.interpreted"],
            env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, bufsize=1,
        )  # fmt: skip

    def judge(self, candidate: Candidate, device: DeviceKey) -> Evaluation | None:
        """Evaluation of ``candidate``; None if the process ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(_question(candidate, device)) + "\n")
        except BrokenPipeError:
            return None
        line = self._process.stdout.readline()
        return Evaluation(**json.loads(line)) if line else None

    def last_words(self) -> str:
        """End of what an ended process wrote on its error stream."""
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        self.close()
        return lines[-1][:LAST_WORDS] if lines else f"exit code {code}"

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def _question(candidate: Candidate, device: DeviceKey) -> dict[str, Any]:
    shape = candidate.shape
    return {
        "shape": (shape.M, shape.N, shape.K), "family": candidate.family, "config": candidate.config.to_dict(),
        "servings": [(one.M, one.stride_am) for one in ways(candidate, device)],
    }  # fmt: skip


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of the evaluation of one candidate."""
    shape, family = GemmShape(*question["shape"]), FAMILIES[question["family"]]
    facts: dict[str, Value] = {"checked_on": "interpreter"}
    try:
        config = family.config(question["config"])
        if not all(stage.FUNCTIONS for stage in family.launched(config)):
            raise UnavailableError(f"{family.name} launches what is no Triton kernel, which the interpreter could run")
        facts["max_rel_error"] = _execute(family, shape, config, None)
        for M, stride_am in question["servings"]:
            with named(Serving(M, stride_am)):
                _execute(family, replace(shape, M=M), config, stride_am)
    except KernelError as error:
        return {"outcome": cast(Outcome, error.outcome), "reason": str(error), "facts": facts}
    return {"outcome": "ok", "reason": "", "facts": facts}


def _execute(family: Family, shape: GemmShape, config: KernelConfig, stride_am: int | None) -> float:
    """Largest relative error of a sample, on operands that are this call's own: kernels can write to them here.

    Raises:
        WrongResultError: An element is off, or was written beside the tiles or in an operand.
    """
    program = family.program(shape, config, stride_am)
    extreme = config.to_dict().get("a_operand") != "bf16"  # bf16 overflows at the ends of the format
    shared_inputs.cache_clear()
    sample = take_sample(program, shape, extreme=extreme, stride_am=stride_am)
    interpret(program, sample)
    error = sample.compare()
    sample.reject_stray_values()
    sample.reject_open_tickets()
    shared_inputs.cache_clear()
    before = take_sample(program, shape, extreme=extreme, stride_am=stride_am)
    for name in ("a", "b", "b_scale"):
        if not np.array_equal(sample.memory[name].array, before.memory[name].array):
            raise WrongResultError(f"operand {name} was written to")
    return error


def interpret(program: Program, sample: Sample) -> None:
    """Run the chosen workgroups of every launch on the sample's memory."""
    interpreter.install()
    tensors = {}
    for buffer in program.buffers:
        array = sample.memory[buffer.name].array
        tensors[buffer.name] = torch.from_numpy(np.asarray(array)).view(TORCH_DTYPES[buffer.dtype])
    for call, workgroups in zip(program.calls, sample.workgroups, strict=True):
        with _only(call, workgroups) as fewer:
            run_call(fewer, tensors)


@contextmanager
def _only(call: KernelCall, workgroups: Sequence[GridIndex]) -> Iterator[KernelCall]:
    """A launch of as many programs, while program i believes to be ``workgroups[i]`` of the whole grid."""
    from triton.runtime.interpreter import interpreter_builder as builder

    set_dim, set_index = builder.set_grid_dim, builder.set_grid_idx
    builder.set_grid_dim = lambda *_: set_dim(*call.grid)
    builder.set_grid_idx = lambda i, *_: set_index(*workgroups[i])
    try:
        yield replace(call, grid=(len(workgroups), 1, 1))
    finally:
        builder.set_grid_dim, builder.set_grid_idx = set_dim, set_index


def main() -> None:
    """Answer each line of the standard input."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
