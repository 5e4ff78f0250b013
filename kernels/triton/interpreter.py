"""What Triton's CPU interpreter (``TRITON_INTERPRET=1``) needs to run these kernels and does not bring itself.

Four operations of its builder are its own here: the FP4 conversion of CDNA 4, given as inline assembly; the product of
bf16; that of scaled FP4, of which Triton has none (3.6) or one that overflows; and the rounding to bf16.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import numpy.typing as npt
import triton
import triton.language as tl

from kernels.triton.quantize import CVT_PK_FP4

MAGNITUDES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])  # of the E2M1 codes (OCP MX v1.0, table 5)
MIDPOINTS = (MAGNITUDES[1:] + MAGNITUDES[:-1]) / 2
Floats = npt.NDArray[np.float32]


def e2m1_code(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int32]:
    """E2M1 codes (0 to 15) of the values: nearest, ties to the even code, saturating at 6."""
    magnitude = np.abs(values)
    below = np.searchsorted(MIDPOINTS, magnitude, side="left")  # a tie counts as below its midpoint
    tie = np.isin(magnitude, MIDPOINTS) & (below % 2 == 1)  # the lower code is odd: take the upper one
    return np.asarray(below + tie + np.signbit(values) * 8, dtype=np.int32)


def cvt_scalef32_pk_fp4_bf16(pair: npt.NDArray[np.int32], scale: Floats) -> npt.NDArray[np.int32]:
    """What the instruction writes to the low byte of a cleared register; only the scale's exponent field counts.

    Args:
        pair: Two bf16 in each register, that of the even k in the low half.
        scale: Factors that the values are divided by.
    """
    exponent = ((scale.view(np.int32) >> 23) & 0xFF).astype(np.float64) - 127
    halves = (np.asarray(half, np.int32).view(np.float32) for half in (pair << 16, pair & -0x10000))
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = (e2m1_code(half.astype(np.float64) / np.exp2(exponent)) for half in halves)
    packed: npt.NDArray[np.int32] = low | (high << 4)
    return packed


class _AsmResult:
    """Stands for the operation that the builder returns."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def get_result(self, index: int) -> Any:
        return self._handle


def _create_inline_asm(
    builder: Any, asm: str, constraints: str, operands: Any, types: Any, is_pure: bool, pack: int
) -> _AsmResult:
    if asm != CVT_PK_FP4.value:
        raise NotImplementedError(f"the interpreter does not know the inline assembly {asm!r}")
    from triton.runtime.interpreter import TensorHandle

    return _AsmResult(TensorHandle(cvt_scalef32_pk_fp4_bf16(*(operand.data for operand in operands)), tl.int32))


def _unscale(packed: npt.NDArray[np.uint8], scale: npt.NDArray[np.uint8]) -> npt.NDArray[np.float64]:
    """Values [R, K] of packed codes [R, K//2] and E8M0 bytes [R, K//32]; byte 255 is NaN."""
    codes = np.stack((packed & 15, packed >> 4), axis=-1).reshape(packed.shape[0], -1)
    values = MAGNITUDES[codes & 7] * np.where(codes & 8, -1.0, 1.0)
    factor = np.where(scale == 255, np.nan, np.exp2(scale.astype(np.float64) - 127))
    return np.asarray(values * np.repeat(factor, 32, axis=1), dtype=np.float64)


def _values(operand: Any, scale: Any) -> npt.NDArray[np.float64]:
    """Values [R, K] of a scaled operand, or of plain bf16, which the interpreter keeps as its bits."""
    if scale is not None:
        return _unscale(operand.data, scale.data)
    bits: npt.NDArray[np.uint32] = operand.data.astype(np.uint32) << 16
    return np.asarray(bits.view(np.float32), dtype=np.float64)


def _dot_of_fp4(plain: Callable[..., Any] | None) -> Callable[..., Any]:
    """``plain``, and the product of scaled FP4 in float64: Triton's own makes Inf of 6 * 2**127 first."""

    def create_dot_scaled(
        builder: Any, a: Any, a_scale: Any, a_format: Any, b: Any, b_scale: Any, b_format: Any, *rest: Any
    ) -> Any:
        from triton._C.libtriton import ir
        from triton.runtime.interpreter import TensorHandle

        if plain is not None and not a_format == b_format == ir.ScaleDotElemTypeTY.E2M1:
            return plain(builder, a, a_scale, a_format, b, b_scale, b_format, *rest)
        product = _values(a, a_scale) @ _unscale(b.data.T, b_scale.data).T
        with np.errstate(over="ignore"):
            return TensorHandle((product + rest[-1].data).astype(np.float32), tl.float32)

    create_dot_scaled.__wrapped__ = plain  # type: ignore[attr-defined]
    return create_dot_scaled


def _dot_of_bf16(plain: Callable[..., Any]) -> Callable[..., Any]:
    """``plain`` and the product of bf16, whose bits Triton's own interpreter multiplies as integers (3.6 to 3.9)."""

    @wraps(plain)
    def create_dot(builder: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        from triton.runtime.interpreter import TensorHandle

        if a.dtype.scalar != tl.bfloat16:
            return plain(builder, a, b, d, *rest)
        return TensorHandle((_values(a, None) @ _values(b, None) + d.data).astype(np.float32), tl.float32)

    return create_dot


def bf16_bits(values: Floats) -> npt.NDArray[np.uint16]:
    """The nearest bf16 of each value, ties to even, NaN kept, as bits."""
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), bits >> 16 | 0x40, rounded).astype(np.uint16)


def _cast_to_bf16(plain: Callable[..., Any]) -> Callable[..., Any]:
    """``plain`` and fp32 rounded to bf16 as GPUs do, where Triton's own interpreter cuts off the last bits."""

    @wraps(plain)
    def cast_impl(builder: Any, source: Any, target: Any) -> Any:
        from triton.runtime.interpreter import TensorHandle

        if source.dtype.scalar != tl.float32 or target.scalar != tl.bfloat16:
            return plain(builder, source, target)
        return TensorHandle(bf16_bits(source.data), tl.bfloat16)

    return cast_impl


def interpreting() -> bool:
    """Whether kernels run through the interpreter: it was switched on before ``kernels`` was imported."""
    from kernels.triton.gemm import fused_gemm_kernel

    return not isinstance(fused_gemm_kernel, triton.runtime.JITFunction)


def install() -> None:
    """Add the operations to the interpreter; doing it again changes nothing."""
    from triton.runtime.interpreter import InterpreterBuilder

    InterpreterBuilder.create_inline_asm = _create_inline_asm
    scaled = getattr(InterpreterBuilder, "create_dot_scaled", None)
    if not hasattr(scaled, "__wrapped__"):
        InterpreterBuilder.create_dot_scaled = _dot_of_fp4(scaled)
    for name, better in (("create_dot", _dot_of_bf16), ("cast_impl", _cast_to_bf16)):
        plain = getattr(InterpreterBuilder, name)
        if not hasattr(plain, "__wrapped__"):
            setattr(InterpreterBuilder, name, better(plain))
