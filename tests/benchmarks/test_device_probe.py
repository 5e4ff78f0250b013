"""benchmarks.device_probe and device_compare without a GPU: what a graph costs, and who multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import device_compare
import pytest
import torch
from device_probe import Overhead, overhead
from fake_gpu import FakeGpu


class CostlyEvents(FakeGpu):
    """Each sample takes 30 us on top of its kernels."""

    def replay_us(self, graph: Sequence[Any], count: int) -> list[float]:
        return [time_us + 30.0 for time_us in super().replay_us(graph, count)]


def test_a_nodes_cost_is_free_of_that_of_the_events() -> None:
    gpu = CostlyEvents(kernel_us=2.5)
    assert overhead(gpu, lambda: None) == Overhead(node_us=2.5, events_us=30.0)
    assert gpu.captured == [200, 1000]


@pytest.mark.parametrize(("tunes", "said"), [(False, "Cublaslt"), (True, "Cublaslt, TunableOp")])
def test_the_library_behind_matmul_is_named(tunes: bool, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    library = type(torch.backends.cuda.preferred_blas_library()).Cublaslt
    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", lambda: library)
    monkeypatch.setattr(torch.cuda.tunable, "is_enabled", lambda: tunes)
    assert device_compare.matmul_by() == said
