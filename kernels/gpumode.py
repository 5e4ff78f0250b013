"""The entry point of the GPU MODE problem ``amd-mxfp4-mm``, served by the dispatcher."""

from __future__ import annotations

import torch

from kernels.dispatch import gemm_shuffled

ProblemInputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def custom_kernel(data: ProblemInputs) -> torch.Tensor:
    """Return C [M, N] bfloat16 for the problem's inputs. Keeps nothing between calls.

    Args:
        data: A [M, K] bfloat16; B [N, K] bfloat16 and B_q [N, K // 2] packed, both unused; B_shuffle [N, K // 2],
            the (16, 16)-shuffled B_q; B_scale_sh [pad256(N), pad8(K // 32)] shuffled E8M0 bytes.

    Raises:
        ValueError: A tensor has another shape, layout or device.
    """
    a, _, _, shuffled, scale = data
    return gemm_shuffled(a, shuffled.view(torch.uint8), scale.view(torch.uint8))
