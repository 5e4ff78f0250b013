"""AITER's own quantise kernel and FP4 GEMM, called through its Python package, which is imported by the first call.

Source of the interface: AITER 0.1.7 (``aiter.ops.quant``, ``aiter.ops.gemm_op_a4w4``) and its later form, in which
``gemm_a4w4`` allocates the output.
"""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING, Any

from kernels.errors import UnavailableError
from kernels.layouts import padded_scale_shape
from kernels.library import LibraryKernel
from kernels.problem import BLOCK

if TYPE_CHECKING:
    import torch

OUTPUT_ROWS = 32  # gemm_a4w4 writes whole groups of rows


def gemm(
    a: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, out: torch.Tensor, M: int, N: int, K: int, stride_am: int
) -> None:
    """Out [M, N] of bf16 = Q(a) @ b.T, with the rule ``even``.

    Args:
        a: [M, K] bfloat16 with rows ``stride_am`` elements apart, flat.
        b: [N, K // 2] uint8, shuffled, flat.
        b_scale: Its shuffled scales, flat.
        out: [M, N] bfloat16, flat.
        M: Rows.
        N: Columns.
        K: Depth.
        stride_am: Elements between rows of ``a``.

    Raises:
        UnavailableError: AITER cannot be imported, or lacks these functions.
    """
    import torch

    aiter = library()
    rows = a.as_strided((M, K), (stride_am, 1))
    codes, scales = aiter.get_triton_quant(aiter.QuantType.per_1x32)(rows, shuffle=True)
    weight = b.view(N, K // 2).view(torch.float4_e2m1fn_x2)
    weight_scale = b_scale.view(padded_scale_shape(N, K // BLOCK)).view(torch.float8_e8m0fnu)
    operands = codes.view(torch.float4_e2m1fn_x2), weight, scales.view(torch.float8_e8m0fnu), weight_scale
    product = out.view(M, N)
    if "out" not in inspect.signature(aiter.gemm_a4w4).parameters:
        product.copy_(aiter.gemm_a4w4(*operands, bpreshuffle=True)[:M])
    elif M % OUTPUT_ROWS == 0:
        aiter.gemm_a4w4(*operands, product, bpreshuffle=True)
    else:
        whole = product.new_empty((-(-M // OUTPUT_ROWS) * OUTPUT_ROWS, N))
        aiter.gemm_a4w4(*operands, whole, bpreshuffle=True)
        product.copy_(whole[:M])


def library() -> Any:
    """The package ``aiter``.

    Raises:
        UnavailableError: It cannot be imported, or lacks what is called here.
    """
    try:
        found = importlib.import_module("aiter")
    except (ImportError, OSError, RuntimeError) as error:  # its import builds and loads libraries of ROCm
        raise UnavailableError(f"import aiter fails ({str(error).strip().partition(chr(10))[0]})") from error
    missing = [name for name in ("get_triton_quant", "QuantType", "gemm_a4w4") if not hasattr(found, name)]
    if missing:
        raise UnavailableError(f"this aiter has no {', '.join(missing)}: install AITER 0.1.7 or newer")
    return found


KERNEL = LibraryKernel("aiter.gemm_a4w4", ("a", "b", "b_scale", "out", "M", "N", "K", "stride_am"), library, gemm)
