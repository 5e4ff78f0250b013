"""search.gate_inputs: operands whose errors show, and their float64 product."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.layouts import unshuffle_scales
from kernels.problem import GemmShape
from kernels.reference import mxfp4_gemm_reference
from kernels.weights import PackedWeight
from search.gate_inputs import GateInputs

SHAPE = GemmShape(40, 192, 320)


def filled() -> GateInputs:
    inputs = GateInputs(SHAPE, 3)
    inputs.fill(range(40), range(256))
    return inputs


def test_reference_of_a_region_is_that_part_of_the_whole_product() -> None:
    inputs = filled()
    weight = PackedWeight(torch.from_numpy(inputs.b), torch.from_numpy(inputs.b_scale), SHAPE.N, SHAPE.K)
    whole = mxfp4_gemm_reference(torch.from_numpy(inputs.a).view(torch.bfloat16), weight)
    part = inputs.reference(range(7, 33), range(70, 190))
    assert torch.equal(part, whole[7:33, 70:190])


def test_every_scale_pad_is_poisoned_and_no_scale_is() -> None:
    scales = unshuffle_scales(torch.from_numpy(filled().b_scale), 256, 16).numpy()  # the padded extents
    assert (scales[:192, :10] != 0xFF).all()
    assert (scales[192:] == 0xFF).all() and (scales[:, 10:] == 0xFF).all()


def test_a_region_has_the_same_values_whatever_else_was_filled() -> None:
    alone = GateInputs(SHAPE, 3)
    alone.fill(range(33, 40), range(64, 128))
    whole = filled()
    assert np.array_equal(alone.a[32:], whole.a[32:])
    assert np.array_equal(alone.b[64:128], whole.b[64:128])
    assert not alone.a[:32].any() and not alone.b[:64].any()


def test_blocks_differ_in_scale_and_some_are_zero() -> None:
    inputs = GateInputs(GemmShape(64, 64, 2048), 3)
    inputs.fill(range(64), range(64))
    blocks = torch.from_numpy(inputs.a).view(torch.bfloat16).float().abs().reshape(64, 64, 32).amax(dim=2)
    assert 0 < int((blocks == 0).sum()) < 512
    assert len(blocks[blocks > 0].log2().round().unique()) >= 4
    assert len(np.unique(inputs.b_scale)) >= 4


@pytest.mark.parametrize("k", [512, 7168])
def test_sums_are_exact_in_fp32_in_any_order(k: int) -> None:
    # Every product is a multiple of one quantum; if the sum of magnitudes stays below 2**24 quanta, no order rounds.
    inputs = GateInputs(GemmShape(16, 64, k), 3)
    inputs.fill(range(16), range(64))
    product = inputs.reference(range(16), range(64))
    assert torch.equal(product, product.float().double())
