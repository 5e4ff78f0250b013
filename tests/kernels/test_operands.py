"""Operands of a call: seen as matrices without a copy where their strides allow it."""

from __future__ import annotations

import torch

from kernels.operands import as_output, as_rows, in_shape_of

A = torch.arange(2 * 3 * 128).to(torch.bfloat16).view(2, 3, 128)


def test_rows_that_the_kernels_can_read_are_not_copied() -> None:
    for a in (A, A[0], A[0, :2, :64], A[:, 0], A[0, 0]):
        rows = as_rows(a, a.shape[-1])
        assert rows.data_ptr() == a.data_ptr()
        assert rows.ndim == 2 and rows.stride(1) == 1


def test_elements_that_are_not_neighbours_are_copied() -> None:
    rows = as_rows(A[0, :, ::2], 64)
    assert torch.equal(rows, A[0, :, ::2])
    assert rows.stride(1) == 1


def test_a_batch_whose_rows_have_no_common_stride_is_copied() -> None:
    a = A[:, :2]  # rows 0, 1, 3, 4 of six
    rows = as_rows(a, 128)
    assert torch.equal(rows, a.reshape(4, 128))
    assert rows.data_ptr() != a.data_ptr()


def test_a_new_output_has_the_rows_and_gets_the_leading_extents_back() -> None:
    rows = as_rows(A, 128)
    product = as_output(None, A, rows, 64)
    assert (product.shape, product.dtype) == ((6, 64), torch.bfloat16)
    assert in_shape_of(product, A, None).shape == (2, 3, 64)
    assert in_shape_of(product[:1], A[0, 0], None).shape == (64,)


def test_a_given_output_is_written_in_place() -> None:
    out = torch.zeros(2, 3, 64, dtype=torch.bfloat16)
    product = as_output(out, A, as_rows(A, 128), 64)
    product.fill_(1)
    assert bool((out == 1).all())
    assert in_shape_of(product, A, out) is out
