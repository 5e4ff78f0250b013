"""A winner is confirmed through the path that serves it: the dispatcher, with the row that would be exported."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from functools import partial

import torch

from kernels.device import DeviceKey
from kernels.dispatch import Dispatcher
from kernels.families import FAMILIES
from kernels.tables import Made, TableRow, TunedTable
from kernels.weights import PackedWeight
from search.evaluate import Candidate
from search.timing import Launch
from search.trial_inputs import Tensors

UNKNOWN_US = 1.0  # the row's time: the dispatcher does not read it


def dispatcher_launch(candidate: Candidate, sets: Sequence[Tensors], device: DeviceKey) -> list[Launch]:
    """Calls of ``Dispatcher.gemm``, one a set, served by a table whose only row is ``candidate``."""
    dispatcher = Dispatcher(device, TunedTable(device, (_row(candidate),)))
    shape = candidate.shape
    weights = [PackedWeight(one["b"], one["b_scale"], shape.N, shape.K) for one in sets]
    return [
        partial(_call, dispatcher, one["a"], weight, one["out"])
        for one, weight in zip(sets, weights, strict=True)
    ]


def _call(dispatcher: Dispatcher, a: torch.Tensor, weight: PackedWeight, out: torch.Tensor) -> None:
    dispatcher.gemm(a, weight, out=out, graph=False)


def _row(candidate: Candidate) -> TableRow:
    shape = candidate.shape
    family = FAMILIES[candidate.family]
    made = Made(date.today(), "", "", family.source_hash, "", "")
    return TableRow(
        shape.M, shape.N, shape.K, candidate.family, candidate.config, "measured",
        family.is_deterministic(candidate.config), made, time_us=UNKNOWN_US,
    )  # fmt: skip
