"""Check the tensors of a product and see them as matrices. On the path of every call: cheap tests only."""

from __future__ import annotations

import torch

from kernels.layouts import padded_scale_shape
from kernels.problem import BLOCK


def as_rows(a: torch.Tensor, K: int) -> torch.Tensor:
    """Return ``a`` [..., K] as a matrix [M, K] whose rows may be strided, the elements of a row not.

    Raises:
        ValueError: Another dtype or extent, or a gradient is wanted.
    """
    if a.dtype is not torch.bfloat16 or a.ndim == 0 or a.shape[-1] != K:
        raise ValueError(f"a must be bfloat16 [..., {K}], got {a.dtype} {list(a.shape)}")
    if a.requires_grad and torch.is_grad_enabled():
        raise ValueError("a requires a gradient, and the product has none: call it under torch.no_grad()")
    rows = a if a.ndim == 2 else a.reshape(-1, K)
    return rows if rows.stride(1) == 1 else rows.contiguous()


def as_output(out: torch.Tensor | None, a: torch.Tensor, rows: torch.Tensor, N: int) -> torch.Tensor:
    """Return ``out`` as a matrix [M, N], or a new one.

    Args:
        out: [..., N] bfloat16, contiguous, with the leading extents of ``a``.
        a: [..., K].
        rows: ``a`` as a matrix [M, K].
        N: Columns.

    Raises:
        ValueError: ``out`` has another shape, dtype, layout or device.
    """
    if out is None:
        return a.new_empty((rows.shape[0], N))
    shape = (*a.shape[:-1], N)
    if out.dtype is not torch.bfloat16 or out.shape != shape or out.device != a.device or not out.is_contiguous():
        found = f"{out.dtype} {list(out.shape)} on {out.device}, strides {out.stride()}"
        raise ValueError(f"out must be contiguous bfloat16 {list(shape)} on {a.device}, got {found}")
    return out if out.ndim == 2 else out.view(-1, N)


def in_shape_of(product: torch.Tensor, a: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    """The caller's ``out``, or the matrix with the leading extents of ``a``."""
    if out is not None:
        return out
    return product if a.ndim == 2 else product.view(*a.shape[:-1], product.shape[1])


def check_shuffled(data: torch.Tensor, scale: torch.Tensor) -> tuple[int, int]:
    """Return (N, K) of a shuffled weight given as bare tensors.

    Raises:
        ValueError: A tensor is not contiguous uint8, or the extents disagree.
    """
    if data.dtype is not torch.uint8 or scale.dtype is not torch.uint8:
        raise ValueError(f"data and scale must be uint8, got {data.dtype} and {scale.dtype}")
    if data.ndim != 2 or data.shape[0] % 64 or data.shape[1] % 32 or not data.numel():
        raise ValueError(f"data must be [N, K//2] with N and K positive multiples of 64, got {list(data.shape)}")
    N, K = data.shape[0], data.shape[1] * 2
    padded = padded_scale_shape(N, K // BLOCK)
    if scale.shape != padded or scale.device != data.device:
        found = f"{list(scale.shape)} on {scale.device}"
        raise ValueError(f"scale must be {list(padded)} on {data.device} for N = {N}, K = {K}, got {found}")
    if not (data.is_contiguous() and scale.is_contiguous()):
        raise ValueError(f"data and scale must be contiguous, got strides {data.stride()} and {scale.stride()}")
    return N, K
