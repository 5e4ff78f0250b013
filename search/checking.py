"""Correct before timed: a candidate's output on the GPU against the float64 reference."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from kernels.errors import WrongResultError
from kernels.program import Program
from kernels.reference import ErrorReport
from search.evaluate import Value
from search.gpu import Gpu
from search.tolerance import judge_result
from search.trial_inputs import CheckedInput, Tensors, poison

REPEATS = 3  # further runs whose bits are compared with the first


def check(
    program: Program, inputs: Sequence[CheckedInput], working: Tensors, gpu: Gpu, facts: dict[str, Value]
) -> bool:
    """Compare with the references from poisoned outputs and workspaces; whether every run gave the same bits.

    Raises:
        WrongResultError: An output is wrong, not finite, or was not written.
    """
    start_s = time.perf_counter()
    for given in inputs:
        out = _run_poisoned(program, given, working, gpu)
        report = judge_result(out[given.rows], given.reference, given.bound(program))
        facts |= {"max_rel_error": report.max_rel, "mismatches": report.mismatches}
        _reject_wrong(report, bool(out.isfinite().all()))
    first = out.clone()
    same = all(torch.equal(_run_poisoned(program, inputs[-1], working, gpu), first) for _ in range(REPEATS))
    facts["check_s"] = time.perf_counter() - start_s
    return same


def _run_poisoned(program: Program, given: CheckedInput, working: Tensors, gpu: Gpu) -> torch.Tensor:
    poison(working)
    gpu.launch(program, given.tensors | working)
    gpu.synchronize()
    return working["out"]


def _reject_wrong(report: ErrorReport, finite: bool) -> None:
    if not report.ok:
        raise WrongResultError(
            f"{report.mismatches} of {report.elements} values differ by more than {report.ulp} ulp, first at "
            f"{report.first_mismatch}; {report.nan_count} NaN; largest error {report.max_rel:.3g}"
        )
    if not finite:
        raise WrongResultError("a value that was not compared is NaN or Inf: not written, or computed from a pad")
