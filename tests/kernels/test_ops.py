"""The operator under torch.compile and torch.export, on the CPU."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernels.dispatch import gemm_op, mxfp4_gemm
from kernels.linear import MXFP4Linear
from kernels.mxfp4.weights import PackedWeight


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(2, 3, 128, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)


@pytest.fixture
def weight() -> PackedWeight:
    return PackedWeight.from_dense(torch.randn(64, 128, generator=torch.Generator().manual_seed(2)))


class Mlp(nn.Module):
    """Up, SwiGLU, down."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.up = MXFP4Linear.from_linear(nn.Linear(128, 256))
        self.down = MXFP4Linear.from_linear(nn.Linear(128, 128, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.up(x).chunk(2, dim=-1)
        result: torch.Tensor = self.down(nn.functional.silu(gate) * value)
        return result


def test_torchs_own_checks_of_an_operator_pass(x: torch.Tensor, weight: PackedWeight) -> None:
    torch.library.opcheck(torch.ops.mxfp4_tune.gemm.default, (x, weight.data, weight.scale))
    torch.library.opcheck(torch.ops.mxfp4_tune.gemm.default, (x[:0], weight.data, weight.scale))


def test_the_operator_is_the_function(x: torch.Tensor, weight: PackedWeight) -> None:
    assert torch.equal(gemm_op(x, weight.data, weight.scale), mxfp4_gemm(x, weight))


def test_its_fake_refuses_extents_that_disagree(x: torch.Tensor, weight: PackedWeight) -> None:
    with torch.device("meta"), pytest.raises(ValueError, match="a has 64 columns, the weight 128"):
        gemm_op(torch.empty(3, 64, dtype=torch.bfloat16), weight.data.to("meta"), weight.scale.to("meta"))


def test_a_model_compiles_as_one_graph_for_any_number_of_rows(x: torch.Tensor) -> None:
    mlp = Mlp()
    compiled = torch.compile(mlp, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (x, x[:1], torch.cat((x, x))):
        assert torch.equal(compiled(rows), mlp(rows))


def test_the_function_compiles_with_an_output_given(x: torch.Tensor, weight: PackedWeight) -> None:
    def twice(a: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return mxfp4_gemm(a, weight, out=out) * 2

    out = torch.empty(2, 3, 64, dtype=torch.bfloat16)
    result = torch.compile(twice, fullgraph=True, backend="aot_eager")(x, out)
    expected = mxfp4_gemm(x, weight)
    assert torch.equal(out, expected)
    assert torch.equal(result, expected * 2)


def test_a_model_exports_with_one_call_a_layer_and_any_batch(x: torch.Tensor) -> None:
    mlp = Mlp()
    exported = torch.export.export(mlp, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    calls = [node for node in exported.graph.nodes if node.target is torch.ops.mxfp4_tune.gemm.default]
    assert len(calls) == 2
    rows = torch.cat((x, x, x))
    assert torch.equal(exported.module()(rows), mlp(rows))


@pytest.mark.slow
def test_inductor_rounds_less_often_between_layers_unless_told_to_and_leaves_the_layers_alone(x: torch.Tensor) -> None:
    mlp = Mlp()
    told = torch.compile(mlp, fullgraph=True, options={"emulate_precision_casts": True})
    assert torch.equal(told(x), mlp(x))
    assert mlp.up.bias is not None
    gate, value = (mxfp4_gemm(x, mlp.up.weight).float() + mlp.up.bias.float()).chunk(2, dim=-1)
    rounded_once = (nn.functional.silu(gate) * value).to(torch.bfloat16)
    assert not torch.equal(mlp.down(rounded_once), mlp(x))
    assert torch.equal(torch.compile(mlp, fullgraph=True)(x), mlp.down(rounded_once))
