"""kernels.launches.library on a GPU: a library is given tensors over memory that a plan knows by its address."""

from __future__ import annotations

import pytest
import torch

from kernels.launches.coverage import WholeCoverage
from kernels.launches.library import LibraryKernel
from kernels.launches.program import KernelCall, PointerSpec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use"),
]


def test_tensors_over_addresses_share_the_memory_also_in_a_graph() -> None:
    def twice(x: torch.Tensor, out: torch.Tensor, count: int) -> None:
        out.view(2, count)[1].copy_(x * 2)

    device = torch.device("cuda", torch.cuda.current_device())
    x = torch.arange(8, device=device).to(torch.bfloat16)
    out = torch.zeros(16, device=device, dtype=torch.bfloat16)
    kernel = LibraryKernel("twice", ("x", "out", "count"), lambda: None, twice)
    call = KernelCall(kernel, (1, 1, 1), {"x": "x", "out": "out", "count": 8}, {}, WholeCoverage(2, 8))
    pointers = {"x": PointerSpec(x.dtype, 16, True), "out": PointerSpec(out.dtype, 32, True)}
    run = kernel.load(call, pointers).run
    run(x.data_ptr(), out.data_ptr(), 8)
    assert out.tolist() == [0.0] * 8 + [2.0 * i for i in range(8)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x.data_ptr(), out.data_ptr(), 8)
    x += 1
    graph.replay()
    torch.cuda.synchronize()
    assert out.tolist()[8:] == [2.0 * i + 2 for i in range(8)]
