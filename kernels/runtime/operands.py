"""Check the tensors of a product and see them as matrices. On the path of every call: each torch call counts."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.mxfp4.layouts import padded_scale_shape
from kernels.problem import BLOCK

BF16 = torch.bfloat16


@dataclass(eq=False, slots=True)
class Operands:
    """The two tensors of a caller as matrices, and what is known of them.

    Args:
        a: [M, K], each row without gaps.
        out: [M, N], contiguous.
        M: Rows.
        stride_am: Elements between the rows of ``a``.
        result: [..., N] to hand to the caller: ``out`` in the caller's shape.
    """

    a: torch.Tensor
    out: torch.Tensor
    M: int
    stride_am: int
    result: torch.Tensor


def operands(a: torch.Tensor, N: int, K: int, out: torch.Tensor | None) -> Operands:
    """See ``a`` [..., K] and ``out`` [..., N] as matrices; ``out`` is allocated if it is None.

    Rows may be strided, the elements of a row not: then ``a`` is copied.

    Raises:
        ValueError: A tensor has another dtype, shape, layout or device, or a gradient is wanted.
    """
    shape = a.shape
    if a.dtype is not BF16 or not shape or shape[-1] != K:
        raise ValueError(f"a must be bfloat16 [..., {K}], got {a.dtype} {list(shape)}")
    if a.requires_grad and torch.is_grad_enabled():
        raise ValueError("a requires a gradient, and the product has none: call it under torch.no_grad()")
    matrix = len(shape) == 2
    rows = a if matrix else a.reshape(-1, K)
    stride_am, inner = rows.stride()
    if inner != 1:
        rows, stride_am = rows.contiguous(), K
    M = shape[0] if matrix else rows.shape[0]
    if out is None:
        product = rows.new_empty((M, N))
        return Operands(rows, product, M, stride_am, product if matrix else product.view(*shape[:-1], N))
    _check_output(out, (*shape[:-1], N), a)
    return Operands(rows, out if matrix else out.view(-1, N), M, stride_am, out)


def _check_output(out: torch.Tensor, shape: tuple[int, ...], a: torch.Tensor) -> None:
    if out.dtype is not BF16 or out.shape != shape or out.device != a.device or not out.is_contiguous():
        found = f"{out.dtype} {list(out.shape)} on {out.device}, strides {out.stride()}"
        raise ValueError(f"out must be contiguous bfloat16 {list(shape)} on {a.device}, got {found}")


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
