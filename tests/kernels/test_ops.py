"""The operator under torch.compile and torch.export, on the CPU."""

from __future__ import annotations

import pytest
import torch
import torch.utils.checkpoint
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
    wanted = x.clone().requires_grad_()
    torch.library.opcheck(torch.ops.mxfp4_tune.gemm.default, (wanted, weight.data, weight.scale))
    grad = torch.ones(2, 3, 64, dtype=torch.bfloat16)
    torch.library.opcheck(torch.ops.mxfp4_tune.gemm_input_gradient.default, (grad, weight.data, weight.scale))


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


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_the_gradient_is_that_of_the_dequantised_weight_beside_another_path_too(
    x: torch.Tensor, weight: PackedWeight, backend: str
) -> None:
    adapter = nn.Linear(128, 64, bias=False, dtype=torch.bfloat16)
    given = torch.randn(2, 3, 64, generator=torch.Generator().manual_seed(4)).to(torch.bfloat16)

    def both(a: torch.Tensor) -> torch.Tensor:
        return mxfp4_gemm(a, weight) + adapter(a)

    function = both if backend == "eager" else torch.compile(both, backend=backend, fullgraph=True)
    wanted = x.clone().requires_grad_()
    function(wanted).backward(given)
    assert wanted.grad is not None
    expected = given.double() @ (weight.dequantize(torch.float64) + adapter.weight.double())
    error = (wanted.grad.double() - expected).norm() / expected.norm()
    assert error < 2**-8  # bfloat16 has 8 bits of significand; the two paths are rounded apart, then their sum


def test_a_gradient_reaches_the_input_through_a_layer_and_checkpointing_changes_nothing(x: torch.Tensor) -> None:
    mlp = Mlp()
    plain, again = x.clone().requires_grad_(), x.clone().requires_grad_()
    mlp(plain).sum().backward()
    torch.utils.checkpoint.checkpoint(mlp, again, use_reentrant=False).sum().backward()
    assert plain.grad is not None and again.grad is not None
    assert bool((plain.grad != 0).any())
    assert torch.equal(plain.grad, again.grad)


def test_derivatives_that_there_are_not_are_refused(x: torch.Tensor, weight: PackedWeight) -> None:
    wanted = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(mxfp4_gemm(wanted, weight).square().sum(), wanted, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        grad.sum().backward()
    with pytest.raises(ValueError, match="no forward-mode derivative"):
        torch.func.jvp(lambda a: mxfp4_gemm(a, weight), (x,), (x,))


def test_an_output_that_is_an_input_is_refused_in_eager_and_right_when_compiled(x: torch.Tensor) -> None:
    square = PackedWeight.from_dense(torch.randn(128, 128, generator=torch.Generator().manual_seed(5)))
    rows = torch.cat((x, x), dim=1).reshape(-1, 128)
    expected = mxfp4_gemm(rows[:4], square)
    with pytest.raises(ValueError, match="out shares memory with a"):
        mxfp4_gemm(rows[:4], square, out=rows[2:6])
    compiled = torch.compile(lambda a, out: mxfp4_gemm(a, square, out=out), backend="aot_eager")
    assert torch.equal(compiled(rows[:4], rows[2:6]), expected)


def test_a_compiled_call_refuses_the_outputs_that_eager_refuses(x: torch.Tensor, weight: PackedWeight) -> None:
    compiled = torch.compile(lambda a, out: mxfp4_gemm(a, weight, out=out), backend="aot_eager")
    for out in (torch.empty(2, 3, 64), torch.empty(4, 2, 3, 64, dtype=torch.bfloat16)):
        with pytest.raises(ValueError, match="out must be contiguous bfloat16"):
            compiled(x, out)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_the_input(x: torch.Tensor, weight: PackedWeight, compiled: bool, dtype: torch.dtype) -> None:
    layer = MXFP4Linear.from_weight(weight)
    function = torch.compile(layer, backend="aot_eager", fullgraph=True) if compiled else layer
    with torch.no_grad(), torch.autocast("cpu", dtype):
        assert torch.equal(function(x.float()), mxfp4_gemm(x, weight))
        assert torch.equal(mxfp4_gemm(x.float(), weight), mxfp4_gemm(x, weight))
    with pytest.raises(ValueError, match=r"a must be bfloat16.*cast it, or use torch\.autocast"):
        layer(x.float())
