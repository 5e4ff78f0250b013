"""A configuration as the dispatcher serves it: its time, and whether it is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import cast

import torch
import triton

from kernels.device import DeviceKey
from kernels.errors import KernelError, WrongResultError
from kernels.families import FAMILIES
from kernels.mxfp4.weights import PackedWeight
from kernels.runtime.dispatcher import Dispatcher
from kernels.tables.rows import Made, TableRow, TunedTable
from search.device.check import SEEDS, Tensors, checked_input, poison, reject_wrong
from search.device.gpu import Gpu, kernel_error
from search.device.timing import Launch
from search.evaluation import Candidate, Evaluation, Outcome
from search.gate.served import Serving, served_M, ways
from search.gate.tolerance import judge_result
from search.workers.pool import WorkerDied, WorkerPool, WorkerTimedOut

TIMEOUT_S = 300.0  # of one row: compilation, and a float64 product


def judged_on_device(device: DeviceKey, candidates: Sequence[Candidate]) -> Iterator[Evaluation]:
    """Evaluation of each candidate; one that breaks the GPU's context takes only its own worker with it."""
    pool: WorkerPool[Candidate, Evaluation] = WorkerPool(partial(run_on_device, device=device), 1)
    try:
        for candidate in candidates:
            try:
                yield pool.submit(candidate, TIMEOUT_S).result()
            except WorkerTimedOut as error:
                yield Evaluation("timed_out", str(error))
            except (WorkerDied, KernelError) as error:
                yield Evaluation("crashed", str(error))
    finally:
        pool.close()


def run_on_device(candidate: Candidate, *, device: DeviceKey) -> Evaluation:
    """Compare the dispatcher's product with the reference, in every way in which the candidate's row serves.

    Raises:
        KernelError: The GPU's context is broken; the process must end.
        RuntimeError: A bug, or a broken installation.
    """
    gpu = Gpu()
    try:
        error = max(_largest_error(candidate, device, seed, gpu.torch_device) for seed in SEEDS)
    except KernelError as failed:
        return Evaluation(cast(Outcome, failed.outcome), str(failed))
    except RuntimeError as failed:
        found = kernel_error(failed, gpu)
        if found is None or found.outcome == "crashed":
            raise (found or failed) from failed
        return Evaluation(cast(Outcome, found.outcome), str(found))
    return Evaluation("ok", facts={"checked_on": "device", "max_rel_error": error})


def _largest_error(candidate: Candidate, device: DeviceKey, seed: int, where: torch.device) -> float:
    """Largest relative error of one product.

    Raises:
        WrongResultError: An element is no rounding of its sum (or further from it than sums of bf16 values allow, where
            the configuration has such), or was not written.
    """
    own = _error(candidate, Serving(candidate.shape.M), device, seed, where)
    for serving in ways(candidate, device):
        try:
            _error(candidate, serving, device, seed, where)
        except WrongResultError as error:
            raise WrongResultError(f"{serving}: {error}") from error
    return own


def _error(candidate: Candidate, serving: Serving, device: DeviceKey, seed: int, where: torch.device) -> float:
    shape = replace(candidate.shape, M=serving.M)
    given = checked_input(shape, seed, where)
    a = given.a if serving.stride_am is None else _apart(given.a, serving.stride_am)
    out = torch.empty(shape.M, shape.N, dtype=torch.bfloat16, device=where)
    poison({"out": out})
    _dispatcher(candidate, device).gemm(a, given.weight, out=out, graph=False)
    program = FAMILIES[candidate.family].program(shape, candidate.config, serving.stride_am)
    report = judge_result(out[given.rows], given.reference, given.bound(program))
    reject_wrong(report, bool(out.isfinite().all()))
    return report.max_rel


def _apart(a: torch.Tensor, stride: int) -> torch.Tensor:
    """``a`` [M, K] with rows ``stride`` elements apart, NaN between them."""
    wide = a.new_full((a.shape[0], stride), torch.nan)
    wide[:, : a.shape[1]] = a
    return wide[:, : a.shape[1]]


UNKNOWN_US = 1.0  # the row's time: the dispatcher does not read it


def dispatcher_launch(candidate: Candidate, sets: Sequence[Tensors], device: DeviceKey) -> list[Launch]:
    """Calls of ``Dispatcher.gemm``, one a set, served by a table whose only row is ``candidate``."""
    dispatcher, shape = _dispatcher(candidate, device), candidate.shape
    weights = [PackedWeight(one["b"], one["b_scale"], shape.N, shape.K) for one in sets]
    return [partial(_call, dispatcher, one["a"], weight, one["out"]) for one, weight in zip(sets, weights, strict=True)]


def _call(dispatcher: Dispatcher, a: torch.Tensor, weight: PackedWeight, out: torch.Tensor) -> None:
    dispatcher.gemm(a, weight, out=out, graph=False)


def _dispatcher(candidate: Candidate, device: DeviceKey) -> Dispatcher:
    return Dispatcher(device, TunedTable(device, (_row(candidate),)))


def _row(candidate: Candidate) -> TableRow:
    shape = candidate.shape
    first, last = served_M(candidate)
    family = FAMILIES[candidate.family]
    made = Made(date.today(), triton.__version__, "", family.source_hash, "", "")
    return TableRow(
        shape.M, shape.N, shape.K, candidate.family, candidate.config, "measured",
        family.is_deterministic(candidate.config), made, time_us=UNKNOWN_US, serves_from=first, serves_to=last,
    )  # fmt: skip
