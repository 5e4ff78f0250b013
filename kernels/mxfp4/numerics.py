"""MXFP4 in plain torch: E2M1 codes in blocks of 32 along K that share one E8M0 scale byte.

Everything that decides a bit is integer arithmetic on fp32 bit patterns: the same on every device.
Source: OCP Microscaling Formats (MX) specification v1.0: FP4 E2M1, E8M0, MXFP4 and the conversion to MX.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, get_args

import torch

from kernels.problem import BLOCK

ExponentRule = Literal["even", "floor", "rceil"]
RULES: Final[tuple[ExponentRule, ...]] = get_args(ExponentRule)
E2M1_MAGNITUDES: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # by code & 7; bit 3 is the sign
E8M0_BIAS: Final = 127  # byte b is the scale 2**(b - 127)
E8M0_MAX: Final = 254  # largest scale, 2**127
E8M0_NAN: Final = 255
INPUT_DTYPES: Final = (torch.bfloat16, torch.float16, torch.float32)  # each converts to fp32 exactly
_FP32_INF: Final = 0x7F800000
_E2M1_EMAX: Final = 2  # exponent of 6.0, the largest magnitude
# |x| / scale in eighths, rounded down to quarters, plus one if that dropped a bit. A code starts on its tie
# with the code below if it is even itself (.75 1.75 3.5), else above that tie (.25 1.25 2.5 5).
_CODE_STARTS: Final = (3, 6, 11, 14, 21, 28, 41)
_ELEMENTS_PER_SLICE: Final = 1 << 22


@dataclass(frozen=True)
class _Rounding:
    """How an fp32 block maximum becomes an exponent: its pattern plus ``carry``, then the exponent field."""

    carry: int
    overflow: int  # patterns from here on have an infinite exponent and clamp to E8M0_MAX


_EXPONENT_RULES: Final[Mapping[str, _Rounding]] = MappingProxyType(
    {
        "even": _Rounding(carry=0x200000, overflow=_FP32_INF - 0x200000),  # up from mantissa 1.75
        "floor": _Rounding(carry=0, overflow=_FP32_INF),
        "rceil": _Rounding(carry=0x3FFFFF, overflow=_FP32_INF),  # up above mantissa 1.5, that of 6.0
    }
)


@dataclass(frozen=True, eq=False)
class Mxfp4Tensor:
    """A quantised tensor of logical shape [..., K] in natural (unshuffled) order.

    Args:
        codes: [..., K // 2] uint8, two E2M1 codes a byte, the even k in the low nibble.
        scales: [..., K // 32] uint8, E8M0.

    Raises:
        TypeError: A tensor is not uint8.
        ValueError: The shapes do not describe one [..., K].
    """

    codes: torch.Tensor
    scales: torch.Tensor

    def __post_init__(self) -> None:
        """Check dtypes and shapes."""
        for name, tensor in (("codes", self.codes), ("scales", self.scales)):
            if tensor.dtype != torch.uint8:
                raise TypeError(f"{name} must be uint8, got {tensor.dtype}")
            if tensor.ndim == 0:
                raise ValueError(f"{name} must have at least one dimension")
        expected = (*self.codes.shape[:-1], self.K // BLOCK)
        if self.K % BLOCK or self.scales.shape != expected:
            raise ValueError(
                f"codes [..., K//2] and scales [..., K//{BLOCK}] disagree: "
                f"{tuple(self.codes.shape)} and {tuple(self.scales.shape)}"
            )

    @property
    def K(self) -> int:
        """Logical elements of the last dimension."""
        return 2 * self.codes.shape[-1]

    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return the values, [..., K].

        Args:
            dtype: float64 is exact for every code and scale. float32 and bfloat16 are exact below 2**128; from there
                on (scale bytes 253 and 254) they are Inf. A block whose scale byte is 255 is NaN.

        Raises:
            ValueError: ``dtype`` is neither bfloat16, float32 nor float64.
        """
        if dtype not in (torch.bfloat16, torch.float32, torch.float64):
            raise ValueError(f"dtype must be bfloat16, float32 or float64, got {dtype}")
        computed = torch.float32 if dtype is torch.bfloat16 else dtype
        codes = self.codes.reshape(-1, self.K // 2)
        scales = self.scales.reshape(-1, self.K // BLOCK)
        out = torch.empty(codes.shape[0], self.K, dtype=dtype, device=codes.device)
        for rows in row_slices(out.shape[0], self.K):
            values = _e2m1_values(codes[rows], computed).view(-1, scales.shape[1], BLOCK)
            out[rows] = values.mul_(e8m0_values(scales[rows], computed)[..., None]).flatten(1)
        return out.reshape(*self.codes.shape[:-1], self.K)


def quantize(x: torch.Tensor, rule: ExponentRule = "even") -> Mxfp4Tensor:
    """Return ``x`` [..., K] as MXFP4: a scale from each block's largest magnitude, values to nearest even.

    With a the largest magnitude of a block and u the exponent of its scale, clamped to [-127, 127]:
    ``even``: u = floor(log2 p) - 2, where p is the fp32 pattern of a plus 0x200000 with its mantissa cleared
    (AITER's Triton quantiser); ``floor``: u = floor(log2 a) - 2 (MX v1.0);
    ``rceil``: u = ceil(log2(a / 6)) (AITER's HIP quantiser, triton_kernels).

    Magnitudes above 6 saturate to 6. A block of zeros has scale byte 0. A block with Inf has 254, and its
    Infs become 6. A block with NaN has 255, so that it dequantises to NaN; its codes mean nothing.

    Args:
        x: [..., K], bfloat16, float16 or float32, any strides, any device.

    Raises:
        TypeError: ``x`` has another dtype.
        ValueError: K is not a positive multiple of 32, or ``rule`` is unknown.
    """
    if x.dtype not in INPUT_DTYPES:
        raise TypeError(f"cannot quantise {x.dtype}: use bfloat16, float16 or float32")
    if rule not in _EXPONENT_RULES:
        raise ValueError(f"unknown rule {rule!r}: use one of {', '.join(RULES)}")
    K = x.shape[-1] if x.ndim else 0
    if K < BLOCK or K % BLOCK:
        raise ValueError(f"K={K} is not a positive multiple of {BLOCK}")
    flat = x.detach().reshape(-1, K)
    codes = torch.empty(flat.shape[0], K // 2, dtype=torch.uint8, device=x.device)
    scales = torch.empty(flat.shape[0], K // BLOCK, dtype=torch.uint8, device=x.device)
    for rows in row_slices(flat.shape[0], K):
        bits = flat[rows].to(torch.float32).contiguous().view(torch.int32).view(-1, K // BLOCK, BLOCK)
        magnitudes = bits & 0x7FFFFFFF
        scale_bytes = _scale_bytes(magnitudes.amax(-1), _EXPONENT_RULES[rule])  # [rows, K // 32] int32
        signs = (bits < 0).to(torch.uint8) << 3
        codes[rows] = pack_codes((_round_to_e2m1(magnitudes, scale_bytes[..., None]) | signs).flatten(1))
        scales[rows] = scale_bytes.to(torch.uint8)
    return Mxfp4Tensor(codes.reshape(*x.shape[:-1], K // 2), scales.reshape(*x.shape[:-1], K // BLOCK))


def pack_codes(codes: torch.Tensor) -> torch.Tensor:
    """Return codes [..., K] (uint8, 0 to 15) as bytes [..., K // 2], the even k in the low nibble."""
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack_codes(packed: torch.Tensor) -> torch.Tensor:
    """Return bytes [..., K // 2] as codes [..., K] (uint8, 0 to 15), the low nibble first."""
    return torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2)


def e8m0_values(scales: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return 2**(byte - 127) for each scale byte (uint8), exactly; byte 255 is NaN (MX v1.0, E8M0)."""
    exponents = torch.arange(256, dtype=torch.int64) - E8M0_BIAS
    table = ((exponents + 1023) << 52).view(torch.float64)  # a float64 with only its exponent field set
    table[E8M0_NAN] = torch.nan
    return table.to(dtype=dtype, device=scales.device)[scales.to(torch.int32)]


def row_slices(rows: int, elements_per_row: int) -> Iterator[slice]:
    """Yield slices that cover ``rows``, each of at most 2**22 elements or one row: bounds temporaries."""
    step = max(1, _ELEMENTS_PER_SLICE // max(1, elements_per_row))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _scale_bytes(maxima: torch.Tensor, rule: _Rounding) -> torch.Tensor:
    """Return the E8M0 bytes (int32) of blocks whose maxima have these fp32 patterns (int32)."""
    fields = (maxima.clamp(max=_FP32_INF) + rule.carry) >> 23
    scale_bytes = (fields - _E2M1_EMAX).clamp(min=0)  # fp32 and E8M0 have the same bias
    scale_bytes = scale_bytes.masked_fill(maxima >= rule.overflow, E8M0_MAX)
    return scale_bytes.masked_fill(maxima > _FP32_INF, E8M0_NAN)  # NaN patterns lie above that of Inf


def _round_to_e2m1(magnitudes: torch.Tensor, scale_bytes: torch.Tensor) -> torch.Tensor:
    """Return codes 0 to 7 (uint8) nearest to |x| / scale, given the fp32 patterns of |x| (int32)."""
    fields = magnitudes >> 23
    # |x| = significand * 2**(field - 150), where subnormals have field 1 and no leading one.
    significands = (magnitudes & 0x7FFFFF) | ((fields > 0).to(torch.int32) << 23)
    shifts = (21 + scale_bytes - fields.clamp(min=1)).clamp(max=31)  # >= 19: |x| < 8 scales
    quarters = significands >> shifts  # of |x| / scale
    inexact = (quarters << shifts) != significands
    keys = 2 * quarters + inexact
    keys.masked_fill_(magnitudes >= _FP32_INF, _CODE_STARTS[-1])  # Inf saturates
    starts = torch.tensor(_CODE_STARTS, dtype=torch.int32, device=keys.device)
    return torch.bucketize(keys, starts, out_int32=True, right=True).to(torch.uint8)


def _e2m1_values(packed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the values [..., K] of packed E2M1 codes [..., K // 2], -0.0 for code 8; a byte is one look-up."""
    signed = torch.tensor((*E2M1_MAGNITUDES, *(-m for m in E2M1_MAGNITUDES)), dtype=dtype, device=packed.device)
    pairs = torch.stack((signed.repeat(16), signed.repeat_interleave(16)), dim=-1)  # [256, 2], the low nibble first
    chosen = torch.view_as_complex(pairs).index_select(0, packed.flatten().to(torch.int32))
    return torch.view_as_real(chosen).view(*packed.shape[:-1], -1)
