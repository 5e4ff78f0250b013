"""``aiter``: AITER's own quantise kernel and FP4 GEMM, through its Python package, which the first call imports.

Source of the interface: AITER 0.1.7 (``aiter.ops.quant``, ``aiter.ops.gemm_op_a4w4``) and its later form, in which
``gemm_a4w4`` allocates the output.
"""

from __future__ import annotations

import importlib.util
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kernels.config import GFX950_ONLY, KernelConfig, Rule
from kernels.device import GFX950
from kernels.errors import UnavailableError
from kernels.families.family import Family
from kernels.families.stages import Stage
from kernels.launches.coverage import WholeCoverage
from kernels.launches.library import LibraryKernel
from kernels.launches.program import KernelCall
from kernels.mxfp4.layouts import padded_scale_shape
from kernels.problem import BLOCK, GemmShape

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class AiterConfig(KernelConfig):
    """``aiter`` has no knobs: the library chooses its kernel by the shape."""

    RULES: ClassVar[tuple[Rule, ...]] = (GFX950_ONLY,)


OUTPUT_ROWS = 32  # gemm_a4w4 writes whole groups of rows


def library_gemm(
    a: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, out: torch.Tensor, M: int, N: int, K: int, stride_am: int
) -> None:
    """Out [M, N] of bf16 = Q(a) @ b.T, with the rule ``even``.

    Args:
        a: [M, K] bfloat16 with rows ``stride_am`` elements apart, flat.
        b: [N, K // 2] uint8, shuffled, flat.
        b_scale: Its shuffled scales, flat.
        out: [M, N] bfloat16, flat.

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


def installed() -> bool:
    """Whether ``import aiter`` finds a package; a mere folder of that name, as of an unpacked wheel, is none."""
    spec = importlib.util.find_spec("aiter")
    return spec is not None and spec.origin is not None


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


LIBRARY_KERNEL = LibraryKernel(
    "aiter.gemm_a4w4", ("a", "b", "b_scale", "out", "M", "N", "K", "stride_am"), library, library_gemm
)


@dataclass(frozen=True, eq=False)
class AiterGemm(Stage):
    """The library's own quantise kernel and GEMM, as one call of it."""

    ARCH: ClassVar[str | None] = GFX950.arch

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """The whole product."""
        return KernelCall(
            LIBRARY_KERNEL,
            (1, 1, 1),
            {"a": "a", "b": "b", "b_scale": "b_scale", "out": "out",
             "M": shape.M, "N": shape.N, "K": shape.K, "stride_am": stride_am},
            {},
            WholeCoverage(shape.M, shape.N),
        )  # fmt: skip

    def lacking(self, *, offline: bool) -> str | None:
        """AITER's Python package, which is not imported here."""
        if offline:
            return "AITER chooses its kernel when it is called, so it is measured on a GPU only"
        return None if installed() else "aiter is not installed; pip install amd-aiter on ROCm"


def aiter(c: Any) -> tuple[Stage, ...]:
    """One call."""
    return (AiterGemm(),)


AITER = Family("aiter", AiterConfig, aiter, False, "AITER's own quantise kernel and GEMM, as a baseline", ())
