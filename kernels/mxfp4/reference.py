"""The float64 oracle of the MXFP4 GEMM, and how far a result is from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from kernels.mxfp4.numerics import ExponentRule, Mxfp4Tensor, quantize, row_slices
from kernels.mxfp4.weights import PackedWeight

UNMATCHED_ULP: Final = 0xFFFF  # more than any distance between two finite bfloat16 (0xFEFE)


@dataclass(frozen=True)
class ErrorReport:
    """Distance of a result from its float64 reference.

    An element whose result or rounded reference is NaN or Inf is exact if the other is the same, else it is
    infinitely wrong: its error is inf and its distance :data:`UNMATCHED_ULP`.

    Args:
        max_abs: Largest |actual - reference|.
        max_rel: Largest |actual - reference| / |reference|, 0 where both are 0.
        max_bf16_ulp: Largest distance, in bfloat16 steps, to the reference rounded to bfloat16.
        mismatches: Elements further than ``ulp`` steps.
        first_mismatch: Index of the first of them in row-major order, None if there is none.
        nan_count: NaNs in the result, whether the reference expects them or not.
    """

    elements: int
    max_abs: float
    max_rel: float
    max_bf16_ulp: int
    mismatches: int
    first_mismatch: tuple[int, ...] | None
    nan_count: int
    ulp: int

    @property
    def ok(self) -> bool:
        """Whether every element is within ``ulp`` steps."""
        return self.mismatches == 0


def mxfp4_gemm_reference(a: torch.Tensor, weight: PackedWeight, rule: ExponentRule = "even") -> torch.Tensor:
    """Return ``Q(a) @ weight.T`` in float64, [..., M, N]; :func:`to_bf16` gives the expected kernel output.

    A block of ``a`` with NaN makes its output row NaN, a weight scale byte 255 its output column. Inf counts
    as 6 * 2**127, which is what the quantiser makes of it.

    Args:
        a: [..., M, K], bfloat16, float16 or float32, any strides, on any device.
        weight: [N, K].

    Raises:
        TypeError: ``a`` has another dtype.
        ValueError: ``a`` has no K columns, or ``rule`` is unknown.
    """
    if a.ndim < 2 or a.shape[-1] != weight.K:
        raise ValueError(f"a must be [..., M, K={weight.K}], got {tuple(a.shape)}")
    values = quantize(a, rule).dequantize(torch.float64).reshape(-1, weight.K)
    packed = weight.unshuffled()
    out = values.new_empty(values.shape[0], weight.N)
    for rows in row_slices(weight.N, weight.K):  # a few rows of B at a time: 8 bytes an element
        b = Mxfp4Tensor(packed.codes[rows], packed.scales[rows]).dequantize(torch.float64)
        out[:, rows] = values @ b.to(values.device).T
    return out.reshape(*a.shape[:-1], weight.N)


def to_bf16(x: torch.Tensor) -> torch.Tensor:
    """Return float64 ``x`` rounded once to bfloat16, to nearest even.

    ``Tensor.to`` rounds twice, through float32. Here float32 is reached by rounding to odd, after which the
    second rounding is right because float32 keeps at least two bits more (Boldo and Melquiond, 2008).

    Raises:
        TypeError: ``x`` is not float64.
    """
    if x.dtype != torch.float64:
        raise TypeError(f"x must be float64, got {x.dtype}")
    nearest = x.to(torch.float32)
    bits = nearest.view(torch.int32)
    wide = nearest.to(torch.float64)
    toward_x = torch.where(wide.abs() > x.abs(), -1, 1).to(torch.int32)
    adjust = (wide != x) & (bits & 1 == 0) & ~x.isnan()
    return torch.where(adjust, bits + toward_x, bits).view(torch.float32).to(torch.bfloat16)


def bf16_ordinal(x: torch.Tensor) -> torch.Tensor:
    """Return the rank of bfloat16 ``x`` (int32): neighbours differ by 1, both zeros are 0, Inf is last."""
    bits = x.view(torch.int16).to(torch.int32)
    return torch.where(bits < 0, -(bits & 0x7FFF), bits)


def compare(actual: torch.Tensor, reference: torch.Tensor, ulp: int = 1) -> ErrorReport:
    """Measure ``actual`` against ``reference``.

    Args:
        actual: A kernel's output, any floating dtype and strides; rounded to bfloat16 to count steps.
        reference: float64, same shape.
        ulp: bfloat16 steps that an element may be off.

    Raises:
        TypeError: ``reference`` is not float64.
        ValueError: The shapes differ, or ``ulp`` is negative.
    """
    if reference.dtype != torch.float64:
        raise TypeError(f"reference must be float64, got {reference.dtype}")
    if actual.shape != reference.shape:
        raise ValueError(f"actual is {tuple(actual.shape)}, reference {tuple(reference.shape)}")
    if ulp < 0:
        raise ValueError(f"ulp must not be negative, got {ulp}")
    flat_actual, flat_reference = actual.reshape(-1), reference.reshape(-1)
    slices = [
        _slice_report(flat_actual[part].to(reference.device), flat_reference[part], ulp, part.start)
        for part in row_slices(flat_actual.numel(), 1)
    ]
    first = next((one.first_mismatch for one in slices if one.first_mismatch is not None), None)
    return ErrorReport(
        elements=flat_actual.numel(),
        max_abs=max((one.max_abs for one in slices), default=0.0),
        max_rel=max((one.max_rel for one in slices), default=0.0),
        max_bf16_ulp=max((one.max_bf16_ulp for one in slices), default=0),
        mismatches=sum(one.mismatches for one in slices),
        first_mismatch=None if first is None else tuple(map(int, np.unravel_index(first[0], actual.shape))),
        nan_count=sum(one.nan_count for one in slices),
        ulp=ulp,
    )


def _slice_report(actual: torch.Tensor, reference: torch.Tensor, ulp: int, start: int) -> ErrorReport:
    """Return the report of two flat, non-empty tensors whose first element has flat index ``start``."""
    wide = actual.to(torch.float64)
    got, want = to_bf16(wide), to_bf16(reference)
    steps = (bf16_ordinal(got) - bf16_ordinal(want)).abs()
    unusual = ~(got.isfinite() & want.isfinite())
    same = (got == want) | (got.isnan() & want.isnan())
    steps = torch.where(unusual, torch.where(same, 0, UNMATCHED_ULP), steps)
    error = (wide - reference).abs()
    error = torch.where(unusual, torch.where(same, 0.0, torch.inf), error)
    relative = torch.where(unusual | (error == 0), error, error / reference.abs())
    beyond = steps > ulp
    mismatches = int(beyond.sum())
    return ErrorReport(
        elements=actual.numel(),
        max_abs=float(error.max()),
        max_rel=float(relative.max()),
        max_bf16_ulp=int(steps.max()),
        mismatches=mismatches,
        first_mismatch=(start + int(beyond.to(torch.int8).argmax()),) if mismatches else None,
        nan_count=int(wide.isnan().sum()),
        ulp=ulp,
    )
