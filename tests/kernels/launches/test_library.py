"""kernels and kernels.families.aiter: a library is called on tensors, imported by the first call, and named."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch

from kernels.errors import UnavailableError
from kernels.families import FAMILIES
from kernels.families.aiter import AiterConfig
from kernels.mxfp4.layouts import shuffle_scales, unshuffle_scales
from kernels.mxfp4.numerics import Mxfp4Tensor, quantize
from kernels.mxfp4.reference import mxfp4_gemm_reference, to_bf16
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from kernels.runtime.plan import Inputs, build_plan, load_program
from kernels.runtime.runner import allocate, make_runner
from kernels.triton import interpreter

M, N, K = 33, 192, 320


def fake_aiter(with_out: bool) -> types.ModuleType:
    """AITER's functions as its 0.1.7 (``with_out``) or a later version has them, on the reference."""
    module: Any = types.ModuleType("aiter")
    module.QuantType = types.SimpleNamespace(per_1x32="per_1x32")

    def quant(x: torch.Tensor, shuffle: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        packed = quantize(x)
        assert shuffle
        scales = shuffle_scales(packed.scales).view(torch.float8_e8m0fnu)
        return packed.codes.view(torch.float4_e2m1fn_x2), scales

    def product(A: torch.Tensor, B: torch.Tensor, A_scale: torch.Tensor, B_scale: torch.Tensor) -> torch.Tensor:
        rows, columns, depth = A.shape[0], B.shape[0], 2 * A.shape[1]
        assert A.dtype == B.dtype == torch.float4_e2m1fn_x2
        scales = unshuffle_scales(A_scale.view(torch.uint8), rows, depth // 32)
        values = Mxfp4Tensor(A.view(torch.uint8), scales).dequantize(torch.float32).to(torch.bfloat16)
        weight = PackedWeight.from_shuffled(B, B_scale, N=columns, K=depth)
        return to_bf16(mxfp4_gemm_reference(values, weight))

    def into(A: Any, B: Any, A_scale: Any, B_scale: Any, out: torch.Tensor, bpreshuffle: bool = True) -> torch.Tensor:
        assert out.shape[0] % 32 == 0
        out[: A.shape[0]] = product(A, B, A_scale, B_scale)
        return out

    def fresh(A: Any, B: Any, A_scale: Any, B_scale: Any, bpreshuffle: bool = True) -> torch.Tensor:
        return product(A, B, A_scale, B_scale)

    module.get_triton_quant = {"per_1x32": quant}.__getitem__
    module.gemm_a4w4 = into if with_out else fresh
    return module


@pytest.fixture(params=[True, False], ids=["writes into out", "allocates"])
def aiter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiter", fake_aiter(request.param))
    monkeypatch.setattr(interpreter, "interpreting", lambda: True)  # a library is then called on the CPU


def operands(rows: int) -> tuple[torch.Tensor, PackedWeight, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(rows, K + 64, generator=generator).to(torch.bfloat16)[:, :K]
    weight = PackedWeight.from_dense(torch.randn(N, K, generator=generator).to(torch.bfloat16))
    return a, weight, to_bf16(mxfp4_gemm_reference(a, weight))


@pytest.mark.usefixtures("aiter")
@pytest.mark.parametrize("rows", [M, 64])
def test_the_program_of_aiter_computes_the_product(rows: int) -> None:
    a, weight, expected = operands(rows)
    program = FAMILIES["aiter"].program(GemmShape(rows, N, K), AiterConfig(), a.stride(0))
    tensors = {"a": a, "b": weight.data, "b_scale": weight.scale, "out": allocate(program.buffer("out"), "cpu")}
    load_program(program, tensors).run(tensors)
    assert torch.equal(tensors["out"], expected)


@pytest.mark.usefixtures("aiter")
def test_a_plan_gives_the_library_tensors_over_the_callers_memory() -> None:
    a, weight, expected = operands(M)
    out = torch.full((M, N), torch.nan, dtype=torch.bfloat16)
    plan = build_plan("aiter", AiterConfig(), Inputs(GemmShape(M, N, K), a.stride(0)), make_runner)
    plan.run((a.data_ptr(), weight.data.data_ptr(), weight.scale.data_ptr(), out.data_ptr(), 0))
    assert torch.equal(out, expected)
    assert plan.workspace_bytes == 0


@pytest.mark.parametrize(
    ("module", "problem"),
    [(None, "import aiter fails"), (types.ModuleType("aiter"), "no get_triton_quant, QuantType, gemm_a4w4")],
    ids=["absent", "other"],
)
def test_a_missing_or_foreign_aiter_is_named_when_the_plan_is_made(
    module: types.ModuleType | None, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "aiter", module)
    with pytest.raises(UnavailableError, match=problem):
        build_plan("aiter", AiterConfig(), Inputs(GemmShape(M, N, K), K), make_runner)
