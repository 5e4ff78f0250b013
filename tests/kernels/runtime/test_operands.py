"""Operands of a call: seen as matrices without a copy where their strides allow it."""

from __future__ import annotations

import torch

from kernels.runtime.operands import operands

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
