"""Check the tensors of a product and see them as matrices. On the path of every call: each torch call counts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.autograd import forward_ad

from kernels.mxfp4.layouts import padded_scale_shape
from kernels.problem import BLOCK

BF16 = torch.bfloat16


@dataclass(eq=False, slots=True)
class Operands:
    """The two tensors of a caller as matrices, and what is known of them.

    Args:
        a: [M, K], each row without gaps.
        out: [M, N], contiguous.
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
        cure = "; cast it, or use torch.autocast" if a.is_floating_point() and a.dtype is not BF16 else ""
        raise ValueError(f"a must be bfloat16 [..., {K}], got {a.dtype} {list(shape)}{cure}")
    if a.requires_grad and torch.is_grad_enabled():
        cure = "call mxfp4_gemm without out, or under torch.no_grad()"
        raise ValueError(f"a requires a gradient, which this call would lose: {cure}")
    # The level is private, but to ask each call's tensor costs a tenth of what this function takes.
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(a).tangent is not None:  # type: ignore[no-untyped-call]
        raise ValueError("a carries a tangent, and the product has no forward-mode derivative: use backward")
    matrix = len(shape) == 2
    rows = a if matrix else a.reshape(-1, K)
    stride_am, inner = rows.stride()
    if inner != 1:
        rows, stride_am = rows.contiguous(), K
    M = shape[0] if matrix else rows.shape[0]
    if out is None:
        product = rows.new_empty((M, N))
        return Operands(rows, product, M, stride_am, product if matrix else product.view(*shape[:-1], N))
    check_output(out, (*shape[:-1], N), a)
    return Operands(rows, out if matrix else out.view(-1, N), M, stride_am, out)


def check_output(out: torch.Tensor, shape: tuple[int, ...], a: torch.Tensor) -> None:
    """Check that the product of ``a`` can be written to ``out``.

    Raises:
        ValueError: ``out`` has another dtype, shape, layout or device, or a gradient would be lost.
    """
    if (out.requires_grad or a.requires_grad) and torch.is_grad_enabled():
        raise ValueError("out has no gradient: leave it out, or call under torch.no_grad()")
    if out.dtype is not BF16 or out.shape != shape or out.device != a.device or not out.is_contiguous():
        found = f"{out.dtype} {list(out.shape)} on {out.device}, strides {out.stride()}"
        raise ValueError(f"out must be contiguous bfloat16 {list(shape)} on {a.device}, got {found}")


def check_apart(seen: Operands, data: torch.Tensor, scale: torch.Tensor) -> None:
    """Check that a caller's output shares no memory with what is read while it is written.

    Raises:
        ValueError: It does, wholly or in part.
    """
    start = seen.out.data_ptr()
    end = start + seen.out.nbytes
    row_bytes, step = seen.a.shape[1] * seen.a.element_size(), seen.stride_am * seen.a.element_size()
    inputs = (
        ("a", seen.a, row_bytes, step),
        ("the weight", data, data.nbytes, 0),
        ("the weight", scale, scale.nbytes, 0),
    )
    for name, tensor, size, distance in inputs:
        first = tensor.data_ptr()
        if distance:  # the last row that does not begin behind the output
            first += min(max(end - 1 - first, 0) // distance, seen.M - 1) * distance
        if first < end and start < first + size:
            raise ValueError(f"out shares memory with {name}, which is read while out is written: give another tensor")


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
