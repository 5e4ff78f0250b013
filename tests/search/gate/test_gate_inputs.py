"""search.gate.inputs: operands whose errors show, at every M, and their float64 product."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kernels.mxfp4.layouts import unshuffle_scales
from kernels.mxfp4.reference import mxfp4_gemm_reference
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from search.gate.inputs import KEPT, LATER_TURNS, GateInputs

SHAPE = GemmShape(40, 192, 320)
EVERY_M = (1, 2, 5, 40)


def filled(shape: GemmShape = SHAPE, turn: int = 0, **more: bool) -> GateInputs:
    inputs = GateInputs(shape, 3, turn=turn, **more)
    inputs.fill(range(shape.M), range(256))
    return inputs


def blocks_of(inputs: GateInputs) -> NDArray[np.uint16]:
    """A as bits [M, groups, 32]."""
    return inputs.rows.reshape(inputs.shape.M, -1, 32)


def largest_of(inputs: GateInputs) -> NDArray[np.uint16]:
    """Bits of the largest magnitude of each block [M, groups]; NaN is larger than Inf."""
    return (blocks_of(inputs) & 0x7FFF).max(axis=2)


def scales_of(inputs: GateInputs) -> NDArray[np.uint8]:
    """Scale bytes [N, groups] of B."""
    N, K = inputs.shape.N, inputs.shape.K
    padded = (-(-N // 256) * 256, -(-K // 256) * 8)
    return unshuffle_scales(torch.from_numpy(inputs.b_scale), *padded).numpy()[:N, : K // 32]


def test_what_is_expected_of_a_region_is_that_part_of_the_whole_product() -> None:
    inputs = filled()
    weight = PackedWeight(torch.from_numpy(inputs.b), torch.from_numpy(inputs.b_scale), SHAPE.N, SHAPE.K)
    whole = mxfp4_gemm_reference(torch.from_numpy(inputs.rows.copy()).view(torch.bfloat16), weight)
    part = inputs.expected(range(7, 33), range(70, 190)).reference
    assert torch.equal(part.nan_to_num(1e9), whole[7:33, 70:190].nan_to_num(1e9))


def test_a_reference_is_kept_for_a_while_and_comes_out_the_same_afterwards() -> None:
    inputs = filled()
    region = range(7, 33), range(70, 190)
    first = inputs.expected(*region)
    assert inputs.expected(*region) is first
    for column in range(KEPT):
        inputs.expected(range(1), range(column, column + 1))
    again = inputs.expected(*region)
    assert again is not first
    assert torch.equal(again.reference.nan_to_num(1e9), first.reference.nan_to_num(1e9))


def test_every_scale_pad_is_poisoned() -> None:
    scales = unshuffle_scales(torch.from_numpy(filled().b_scale), 256, 16).numpy()  # the padded extents
    assert (scales[192:] == 0xFF).all() and (scales[:, 10:] == 0xFF).all()


def test_a_region_has_the_same_values_whatever_else_was_filled() -> None:
    alone = GateInputs(SHAPE, 3)
    alone.fill(range(33, 40), range(64, 128))
    whole = filled()
    assert np.array_equal(alone.rows[32:], whole.rows[32:])
    assert np.array_equal(alone.b[64:128], whole.b[64:128])
    assert not alone.rows[:32].any() and not alone.b[:64].any()


@pytest.mark.parametrize("M", EVERY_M)
def test_every_hurtful_significand_is_there_at_every_m(M: int) -> None:
    largest = largest_of(filled(GemmShape(M, 64, 512)))
    significands = {int(bits) & 0x7F for bits in largest.flat if 0 < bits < 0x7F80}
    assert {0x40, 0x60, 0x7F} <= significands  # 1.5, 1.75, 1.9921875


@pytest.mark.parametrize("M", EVERY_M)
def test_blocks_of_zeros_of_either_sign_are_there_at_every_m(M: int) -> None:
    blocks = blocks_of(filled(GemmShape(M, 64, 512)))
    assert (blocks == 0).all(axis=2).any()
    assert (blocks == 0x8000).all(axis=2).any()


@pytest.mark.parametrize("K", [64, 128, 512])
@pytest.mark.parametrize("M", EVERY_M)
def test_tiny_and_huge_blocks_and_an_inf_are_there_at_every_m_and_k(M: int, K: int) -> None:
    largest = largest_of(filled(GemmShape(M, 64, K)))
    exponents = (largest >> 7).astype(int) - 127
    assert (exponents[largest > 0] <= -124).any()
    assert (exponents >= 125).any()
    assert (largest[0] == 0x7F80).any()


@pytest.mark.parametrize("M", [4, 40])
def test_some_blocks_are_denormal(M: int) -> None:
    largest = largest_of(filled(GemmShape(M, 64, 512)))
    assert ((largest > 0) & (largest < 0x80)).any()


def test_the_scales_of_b_reach_both_ends_and_nan() -> None:
    scales = scales_of(filled(GemmShape(1, 256, 1024)))
    assert {0, 254, 255} <= set(scales.flat)
    assert ((scales == 255).sum(axis=1) <= 1).all() and (scales == 255).sum() == 8  # one row of each 32


def test_large_blocks_of_a_meet_small_scales_of_b_so_that_every_product_weighs_the_same() -> None:
    inputs = filled(GemmShape(40, 64, 1024))
    exponent = (largest_of(inputs) >> 7).astype(int)
    scales = scales_of(inputs).astype(int)
    for group in range(32):
        usual = scales[:, group][scales[:, group] < 255]
        seen = exponent[:, group][(exponent[:, group] > 0) & (exponent[:, group] < 255)]
        assert abs(int(np.median(seen)) + int(np.median(usual)) - 254) <= 5


def test_where_the_sum_is_exact_in_any_order_nothing_is_tolerated() -> None:
    expected = filled(GemmShape(16, 64, 7168)).expected(range(2, 9), range(64))
    assert float(expected.bound.nan_to_num(0.0).max()) == 0.0
    finite = expected.reference[:, ~expected.reference.isnan().all(dim=0)]
    sums = torch.cat([finite[:5], finite[6:]])  # without row 7, whose one product may be beyond fp32
    assert torch.equal(sums, sums.float().double())


def test_a_nan_at_the_start_the_middle_and_the_end_of_k_makes_its_row_of_the_product_nan() -> None:
    inputs = filled()
    product = inputs.expected(range(40), range(192)).reference
    assert product.isnan().all(dim=1).nonzero().flatten().tolist() == [1, 9, 29, 33]
    assert product.isnan().all(dim=0).sum() == 6  # a row of B in each 32 has a NaN scale
    where = torch.from_numpy(inputs.rows.copy()).view(torch.bfloat16).isnan().nonzero()[:, 1] // 32
    assert where.tolist() == [5, 0, 9, 5]


def test_the_second_set_of_operands_has_nan_in_the_first_row() -> None:
    inputs = filled(GemmShape(1, 64, 64), nan_first=True)
    assert inputs.expected(range(1), range(64)).reference.isnan().all()


def test_infs_lie_where_the_scales_are_small_and_make_nothing_infinite() -> None:
    inputs = filled()
    rows, columns = np.nonzero((inputs.rows & 0x7FFF) == 0x7F80)
    assert np.unique(rows).tolist() == [0, 5, 14, 26, 32, 37]
    scales = scales_of(inputs)[:, columns // 32]
    assert (scales[scales < 255] <= 4).all()
    product = inputs.expected(range(40), range(192)).reference.nan_to_num(0.0)
    product[[7, 39]] = 0.0  # whose one element alone is huge
    assert bool((product.abs() < 2.0**20).all())


def test_every_block_that_may_hold_an_inf_holds_one_in_some_row() -> None:
    inputs = filled(GemmShape(40, 64, 7168))
    rows, columns = np.nonzero((inputs.rows[:32] & 0x7FFF) == 0x7F80)
    small = np.flatnonzero(np.median(scales_of(inputs), axis=0) <= 4)
    assert len(small) > 8 and np.unique(columns // 32).tolist() == small.tolist()
    assert all((rows == row).sum() < len(small) / 2 for row in (0, 5, 14, 26))  # the others stay as they are


@pytest.mark.parametrize("K", [128, 4096, 7168])
def test_later_turns_bring_an_inf_into_every_step_of_a_single_row(K: int) -> None:
    turns = [filled(GemmShape(1, 64, K), turn=turn).rows[0] for turn in LATER_TURNS]
    groups = {column // 32 for row in turns for column in np.flatnonzero((row & 0x7FFF) == 0x7F80)}
    assert {group // 4 for group in groups} == set(range(K // 128))


def test_two_groups_of_a_single_row_show_the_rules_of_rounding_in_later_turns() -> None:
    peaks = [largest_of(filled(GemmShape(1, 64, 64), turn=turn))[0, 0] for turn in LATER_TURNS]
    assert [peak & 0x7F for peak in peaks] == [0x60, 0x40]  # 1.75 and 1.5, where the exponent is a usual one
    assert all(126 <= peak >> 7 <= 130 for peak in peaks)


def test_nans_are_placed_where_they_are_wanted() -> None:
    inputs = filled(GemmShape(40, 64, 1024), nan_first=True)
    inputs.place_nans({3: 7, 33: 31})
    rows, columns = torch.from_numpy(inputs.rows.copy()).view(torch.bfloat16).isnan().nonzero().T.tolist()
    assert rows == list(range(40))  # each row one
    assert [columns[row] // 32 for row in (2, 3, 4, 33)] == [0, 7, 0, 31]


def test_the_nan_of_a_row_moves_along_k_and_stays_one() -> None:
    inputs = filled(GemmShape(40, 64, 1024))
    expected = inputs.expected(range(40), range(64)).reference
    places = set()
    for draw in range(40):
        inputs.move_nans(draw)
        rows, columns = torch.from_numpy(inputs.rows.copy()).view(torch.bfloat16).isnan().nonzero().T.tolist()
        assert rows == [1, 9, 29, 33]
        places |= {column // 32 for column in columns}
    assert len(places) > 24 and {0, 31} <= places
    again = filled(GemmShape(40, 64, 1024)).expected(range(40), range(64)).reference
    assert torch.equal(again.nan_to_num(7.0), expected.nan_to_num(7.0))


def test_where_the_nan_goes_depends_on_the_draw_alone() -> None:
    first, second = filled(GemmShape(40, 64, 1024)), filled(GemmShape(40, 64, 1024))
    first.move_nans(1)
    for inputs in (first, second):
        inputs.move_nans(2)
    assert np.array_equal((first.rows & 0x7FFF) > 0x7F80, (second.rows & 0x7FFF) > 0x7F80)


def test_milder_operands_hold_no_inf_and_no_scale_at_the_ends() -> None:
    inputs = filled(SHAPE, extreme=False)
    values = torch.from_numpy(inputs.rows.copy()).view(torch.bfloat16)
    assert not values.isinf().any() and values.isnan().sum() == 4
    assert 2.0**91 <= float(values.nan_to_num(0.0).abs().max()) <= 2.0**93
    assert scales_of(inputs).min() > 30 and scales_of(inputs).max() < 225


def test_in_half_of_the_blocks_one_element_alone_decides_the_scale() -> None:
    magnitudes = np.sort(blocks_of(filled(GemmShape(8, 64, 4096))) & 0x7FFF, axis=2)
    values = torch.from_numpy(magnitudes.astype(np.int16)).view(torch.bfloat16).double().reshape(-1, 32)
    values = values[values[:, -1].isfinite()]
    alone = float((values[:, -1] > 2 * values[:, -2]).double().mean())
    assert 0.25 < alone < 0.75


def test_rows_of_a_strided_operand_are_the_same_and_nan_lies_between_them() -> None:
    strided, dense = GateInputs(SHAPE, 3, stride=384), filled()
    strided.fill(range(40), range(192))
    assert np.array_equal(strided.rows, dense.rows)
    assert len(strided.a) == 39 * 384 + 320  # nothing behind the last element
    between = np.concatenate([strided.a, np.full(64, 0xFFFF, np.uint16)]).reshape(40, 384)[:, 320:]
    assert (between == 0xFFFF).all()


def test_sums_of_one_product_reach_beyond_fp32_and_among_the_denormal_numbers_and_nothing_is_tolerated() -> None:
    expected = filled().expected(range(40), range(192))
    huge, tiny = expected.reference[7].nan_to_num(0.0).abs(), expected.reference[11].nan_to_num(0.0).abs()
    assert float(huge.max()) > 2.0**128 and (huge[huge > 0] % 2.0**123 == 0).all()
    assert 0 < float(tiny[tiny > 0].min()) < 2.0**-126 and (tiny % 2.0**-133 == 0).all()  # on bf16's grid
    assert (expected.bound[[7, 11]] == 0).all()
