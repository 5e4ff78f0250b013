"""The product as an operator of torch, so that ``torch.compile`` and ``torch.export`` see one opaque call.

It is registered through ``torch.library.Library``: a call of an operator made by ``torch.library.custom_op`` costs the
host several times as much, for checks of aliases that this function does not need.
"""

from __future__ import annotations

import torch

NAMESPACE = "mxfp4_tune"
NAME = f"{NAMESPACE}::gemm"


def gemm_now(a: torch.Tensor, data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
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


def gemm_shape(a: torch.Tensor, data: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return a tensor like the result, for tracing.

    Raises:
        ValueError: The operands do not fit.
    """
    N, row_bytes = data.shape
    if a.shape[-1] != 2 * row_bytes:
        raise ValueError(f"a has {a.shape[-1]} columns, the weight {2 * row_bytes}")
    return a.new_empty((*a.shape[:-1], N), dtype=torch.bfloat16)


LIBRARY = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
LIBRARY.define("gemm(Tensor a, Tensor data, Tensor scale) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
LIBRARY.impl("gemm", gemm_now, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
torch.library.register_fake(NAME, gemm_shape, lib=LIBRARY)
gemm = torch.ops.mxfp4_tune.gemm.default
