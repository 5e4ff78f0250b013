"""search.gate.inputs: operands whose errors show, and their float64 product."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernels.mxfp4.layouts import unshuffle_scales
from kernels.mxfp4.reference import mxfp4_gemm_reference
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from search.gate.inputs import KEPT, GateInputs

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
    assert torch.equal(part.nan_to_num(1e9), whole[7:33, 70:190].nan_to_num(1e9))


def test_a_reference_is_kept_for_a_while_and_comes_out_the_same_afterwards() -> None:
    inputs = filled()
    region = range(7, 33), range(70, 190)
    first = inputs.reference(*region)
    assert inputs.reference(*region) is first
    for column in range(KEPT):
        inputs.reference(range(1), range(column, column + 1))
    again = inputs.reference(*region)
    assert again is not first
    assert torch.equal(again.nan_to_num(1e9), first.nan_to_num(1e9))


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
    blocks = torch.from_numpy(inputs.a).view(torch.bfloat16).float().nan_to_num().abs().reshape(64, 64, 32).amax(dim=2)
    assert 0 < int((blocks == 0).sum()) < 512
    assert len(blocks[blocks > 0].log2().round().unique()) >= 4
    assert len(np.unique(inputs.b_scale)) >= 4


@pytest.mark.parametrize("k", [512, 7168])
def test_sums_are_exact_in_fp32_in_any_order(k: int) -> None:
    # Every product is a multiple of one quantum; if the sum of magnitudes stays below 2**24 quanta, no order rounds.
    inputs = GateInputs(GemmShape(16, 64, k), 3)
    inputs.fill(range(16), range(64))
    product = inputs.reference(range(5), range(64))
    assert torch.equal(product, product.float().double())


def test_a_nan_at_the_start_the_middle_and_the_end_of_k_makes_its_row_of_the_product_nan() -> None:
    inputs = filled()
    product = inputs.reference(range(40), range(192))
    assert product.isnan().all(dim=1).nonzero().flatten().tolist() == [9, 19, 29]
    assert int(product.isnan().sum()) == 3 * 192
    where = torch.from_numpy(inputs.a).view(torch.bfloat16).isnan().nonzero()[:, 1] // 32
    assert where.tolist() == [0, 5, 9]


def test_an_inf_at_the_start_the_middle_and_the_end_of_k_dominates_its_row() -> None:
    inputs = filled()
    infinite = torch.from_numpy(inputs.a).view(torch.bfloat16).isinf().nonzero()
    assert [(row, column // 32) for row, column in infinite.tolist()] == [(5, 0), (14, 5), (26, 9), (37, 0)]
    product = inputs.reference(range(40), range(192)).abs()
    assert bool((product[5] > 2.0**120).any()) and bool((product[6] < 2.0**20).all())


def test_large_numbers_stand_for_inf_where_asked() -> None:
    inputs = GateInputs(SHAPE, 3, infinite=False)
    inputs.fill(range(40), range(64))
    values = torch.from_numpy(inputs.a).view(torch.bfloat16)
    assert not values.isinf().any() and values.isnan().sum() == 3
    assert (values.double().abs() == 1.5 * 2.0**120).nonzero()[:, 0].tolist() == [5, 14, 26, 37]
    assert (values < -1e30).nonzero()[:, 0].tolist() == [14]


def test_in_half_of_the_blocks_one_element_alone_decides_the_scale() -> None:
    inputs = GateInputs(GemmShape(8, 64, 4096), 3)
    inputs.fill(range(8), range(64))
    largest = torch.from_numpy(inputs.a).view(torch.bfloat16).float().abs().reshape(-1, 32).sort(dim=1).values
    alone = (largest[:, -1] > 2 * largest[:, -2]).float().mean()
    assert 0.25 < alone < 0.75
