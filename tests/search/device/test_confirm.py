"""search.device.served: the winner is timed through the path that will serve it."""

from __future__ import annotations

import inspect
from functools import partial

import torch
from fake_gpu import H200

from kernels.families.fused import SplitKWorkspaceConfig
from kernels.problem import GemmShape
from kernels.runtime.dispatcher import Dispatcher
from search.device.check import checked_input, copies_of
from search.device.served import dispatcher_launch
from search.evaluation import Candidate

SHAPE = GemmShape(5, 64, 512)
CONFIG = SplitKWorkspaceConfig(BLOCK_K=128, split_k=2, quantizer="software")
CANDIDATE = Candidate(SHAPE, "fused_splitk_workspace", CONFIG)


def test_each_set_is_computed_by_a_dispatcher_whose_table_serves_exactly_the_winner() -> None:
    sets = copies_of(checked_input(SHAPE, 1, torch.device("cpu")).tensors, SHAPE, 3)
    launches = dispatcher_launch(CANDIDATE, sets, H200)
    assert len(launches) == 3
    for launch, one in zip(launches, sets, strict=True):
        assert isinstance(launch, partial)
        dispatcher, a, weight, out = launch.args
        choice = dispatcher.choose(SHAPE)
        assert (choice.family, choice.config, choice.lookup.how) == (CANDIDATE.family, CANDIDATE.config, "exact")
        assert a is one["a"] and weight.data is one["b"] and out is one["out"]


def test_the_dispatcher_takes_the_call() -> None:
    inspect.signature(Dispatcher.gemm).bind(None, None, None, out=None, graph=False)
