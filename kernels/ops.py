"""The product as an operator of torch, so that ``torch.compile`` and ``torch.export`` see one opaque call."""

from __future__ import annotations

import torch

NAME = "mxfp4_tune::gemm"


@torch.library.custom_op(NAME, mutates_args=())
def gemm(a: torch.Tensor, data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Compute ``bf16(Q(a) @ weight.T)`` in a new tensor [..., N].

    Args:
        a: [..., K] bfloat16.
        data: [N, K // 2] uint8, shuffled, as in ``PackedWeight``.
        scale: [pad256(N), pad8(K // 32)] uint8, shuffled.

    Raises:
        ValueError: A tensor has another shape, dtype, layout or device.
    """
    from kernels.dispatch import gemm_shuffled  # which imports this module: a compiled mxfp4_gemm calls the operator

    return gemm_shuffled(a, data, scale)


@gemm.register_fake
def _(a: torch.Tensor, data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    N, row_bytes = data.shape
    if a.shape[-1] != 2 * row_bytes:
        raise ValueError(f"a has {a.shape[-1]} columns, the weight {2 * row_bytes}")
    return a.new_empty((*a.shape[:-1], N), dtype=torch.bfloat16)
