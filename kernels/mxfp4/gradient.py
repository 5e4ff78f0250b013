"""The gradient of the product with respect to its input; the packed weight has none."""

from __future__ import annotations

import torch

from kernels.mxfp4.weights import PackedWeight


def input_gradient(grad: torch.Tensor, weight: PackedWeight) -> torch.Tensor:
    """Return ``grad @ weight`` with the dequantised weight, rounded to bfloat16.

    Quantisation counts as the identity, as usual for a function that is constant almost everywhere.
    Source: the straight-through estimator, Bengio et al., arXiv:1308.3432.

    Args:
        grad: [..., N] bfloat16, of the product.
        weight: [N, K] on the same device; dequantised for the time of the call, 2 bytes an element.

    Returns:
        [..., K] bfloat16.
    """
    return grad @ weight.dequantize(torch.bfloat16)
