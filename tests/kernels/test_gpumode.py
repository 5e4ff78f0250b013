"""The competition's entry point, on the problem's inputs."""

from __future__ import annotations

import torch

from kernels.gpumode import custom_kernel
from kernels.layouts import unshuffle_weight
from kernels.reference import mxfp4_gemm_reference, to_bf16
from kernels.weights import PackedWeight


def test_it_multiplies_by_the_shuffled_weight_whatever_its_dtype() -> None:
    generator = torch.Generator().manual_seed(5)
    a, dense = (torch.randn(rows, 192, generator=generator).to(torch.bfloat16) for rows in (3, 64))
    weight = PackedWeight.from_dense(dense)
    natural = unshuffle_weight(weight.data)
    expected = to_bf16(mxfp4_gemm_reference(a, weight))
    assert torch.equal(custom_kernel((a, dense, natural, weight.data, weight.scale)), expected)
    typed = weight.data.view(torch.float4_e2m1fn_x2), weight.scale.view(torch.float8_e8m0fnu)
    assert torch.equal(custom_kernel((a, dense, natural, *typed)), expected)
