"""Operands of a call: seen as matrices without a copy where their strides allow it."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad

from kernels.mxfp4.weights import PackedWeight
from kernels.runtime.operands import check_apart, operands

A = torch.arange(2 * 3 * 128).to(torch.bfloat16).view(2, 3, 128)


def test_rows_that_the_kernels_can_read_are_not_copied() -> None:
    for a, M, stride in ((A, 6, 128), (A[0], 3, 128), (A[0, :2, :64], 2, 128), (A[:, 0], 2, 384), (A[0, 0], 1, 128)):
        seen = operands(a, 64, a.shape[-1], None)
        assert seen.a.data_ptr() == a.data_ptr()
        assert (seen.M, seen.a.shape, seen.a.stride(1)) == (M, (M, a.shape[-1]), 1)
        assert (seen.stride_am, seen.a.stride(0)) == (stride, stride)


def test_elements_that_are_not_neighbours_are_copied() -> None:
    seen = operands(A[0, :, ::2], 64, 64, None)
    assert torch.equal(seen.a, A[0, :, ::2])
    assert (seen.stride_am, seen.a.stride()) == (64, (64, 1))


def test_a_batch_whose_rows_have_no_common_stride_is_copied() -> None:
    a = A[:, :2]  # rows 0, 1, 3, 4 of six
    seen = operands(a, 64, 128, None)
    assert torch.equal(seen.a, a.reshape(4, 128))
    assert seen.a.data_ptr() != a.data_ptr()


def test_a_new_output_has_the_rows_and_the_result_the_leading_extents() -> None:
    seen = operands(A, 64, 128, None)
    assert (seen.out.shape, seen.out.dtype) == ((6, 64), torch.bfloat16)
    assert (seen.result.shape, seen.result.data_ptr()) == ((2, 3, 64), seen.out.data_ptr())


def test_a_given_output_is_written_in_place_and_handed_back() -> None:
    for a in (A, A[0], A[0, 0]):
        out = torch.empty(*a.shape[:-1], 64, dtype=torch.bfloat16)
        seen = operands(a, 64, 128, out)
        assert seen.result is out
        assert (seen.out.shape, seen.out.data_ptr()) == ((seen.M, 64), out.data_ptr())


def test_a_derivative_that_a_call_would_lose_is_refused() -> None:
    a, out = torch.zeros(2, 128, dtype=torch.bfloat16), torch.zeros(2, 64, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="a requires a gradient, which this call would lose"):
        operands(a.clone().requires_grad_(), 64, 128, None)
    with pytest.raises(ValueError, match="out has no gradient"):
        operands(a, 64, 128, out.clone().requires_grad_())
    with forward_ad.dual_level(), pytest.raises(ValueError, match="a carries a tangent"):
        operands(forward_ad.make_dual(a, a), 64, 128, None)
    with torch.no_grad():
        assert operands(a.clone().requires_grad_(), 64, 128, out.clone().requires_grad_()).M == 2


BUFFER = torch.zeros(4096, dtype=torch.bfloat16)
APART = PackedWeight.from_dense(torch.zeros(128, 128))


def rows_at(start: int, rows: int, stride: int = 128) -> torch.Tensor:
    return BUFFER.as_strided((rows, 128), (stride, 1), start)


@pytest.mark.parametrize(
    ("a", "out", "shared"),
    [
        (rows_at(0, 4), rows_at(0, 4), True),
        (rows_at(0, 4), rows_at(384, 4), True),  # the last row of one is the first of the other
        (rows_at(384, 4), rows_at(0, 4), True),
        (rows_at(0, 4), rows_at(512, 4), False),
        (rows_at(512, 4), rows_at(0, 4), False),
        (rows_at(0, 3, stride=600), rows_at(150, 3), False),  # between two rows of a
        (rows_at(0, 3, stride=600), rows_at(217, 3), True),  # 217 + 3 * 128 = 601 > 600: one element of the second row
        (rows_at(0, 3, stride=600), rows_at(216, 3), False),
        (rows_at(0, 3, stride=600), rows_at(1327, 3), True),  # 2 * 600 + 128 = 1328: the last element of all
        (rows_at(0, 3, stride=600), rows_at(1328, 3), False),
        (rows_at(0, 3, stride=0), rows_at(127, 3), True),
        (rows_at(0, 3, stride=0), rows_at(128, 3), False),
    ],
)
def test_an_output_that_shares_a_byte_with_a_is_refused_and_one_beside_it_is_not(
    a: torch.Tensor, out: torch.Tensor, shared: bool
) -> None:
    seen = operands(a, 128, 128, out)
    if not shared:
        return check_apart(seen, APART.data, APART.scale)
    with pytest.raises(ValueError, match="out shares memory with a, which is read while out is written"):
        check_apart(seen, APART.data, APART.scale)


@pytest.mark.parametrize("name", ["data", "scale"])
def test_an_output_within_the_weight_is_refused(name: str) -> None:
    weight = PackedWeight.from_dense(torch.zeros(128, 128))
    out = getattr(weight, name).view(-1)[-256:].view(torch.bfloat16).view(1, 128)
    with pytest.raises(ValueError, match="out shares memory with the weight"):
        check_apart(operands(torch.zeros(1, 128, dtype=torch.bfloat16), 128, 128, out), weight.data, weight.scale)
