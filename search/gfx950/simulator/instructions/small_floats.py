"""FP8, BF8 and their conversions, and f16 sources of f32 arithmetic.

OCP 8-bit Floating Point Specification 1.0 for E4M3 (no Inf) and E5M2; MI300 ISA guide for the conversions, and for
MODE.FP16_OVFL: it is 0 at the start of a kernel, and then what is too large becomes Inf, or NaN where there is none.
LLVM for gfx950's scaled conversions, of whose scale only the exponent field counts: what they make of a value beyond
the format is not documented, and refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from search.gfx950.simulator.decode.modifiers import Modifiers
from search.gfx950.simulator.decode.op import Op, Semantics, table
from search.gfx950.simulator.instructions.convert import bf16_bits, bf16_value
from search.gfx950.simulator.instructions.valu_float import fma32, half_bits
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import UnknownInstructionError
from search.gfx950.simulator.state.state import WaveGroup

_8, _16 = np.uint32(8), np.uint32(16)
_BYTE, _WORD, _HIGH = np.uint32(0xFF), np.uint32(0xFFFF), np.uint32(0xFFFF0000)
_E8M0 = np.where(np.arange(256) == 255, np.nan, 2.0 ** (np.arange(256) - 127.0))


def small_float_values(exponent_bits: int, mantissa_bits: int, bias: int, special: str) -> Array:
    """All values of a small float format by code; ``special`` is the meaning of the top codes (ieee, nan, none)."""
    bits = 1 + exponent_bits + mantissa_bits
    code = np.arange(1 << bits)
    exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1)
    fraction = (code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits)
    magnitude = np.where(exponent == 0, fraction * 2.0 ** (1 - bias), (1 + fraction) * 2.0 ** (exponent - bias))
    top = exponent == (1 << exponent_bits) - 1
    if special == "ieee":
        magnitude = np.where(top, np.where(fraction == 0, np.inf, np.nan), magnitude)
    elif special == "nan":
        magnitude = np.where((code & ((1 << (bits - 1)) - 1)) == (1 << (bits - 1)) - 1, np.nan, magnitude)
    return np.asarray(np.where(code >> (bits - 1), -magnitude, magnitude))


@dataclass(frozen=True, eq=False)
class SmallFloat:
    """A format of a byte.

    Args:
        values: By code [256], float64.
        beyond: Code of a magnitude that is too large: Inf or NaN.
        step: From the largest finite value to what would come next.
    """

    values: Array
    beyond: int
    step: float

    def codes(self, value: Array) -> Array:
        """Codes (uint32) of float64 ``value``, round to nearest even; NaN is 0x7F with the sign."""
        finite = self.values[: self.beyond]
        middles = np.append((finite[:-1] + finite[1:]) / 2, finite[-1] + self.step / 2)
        magnitude = np.abs(value)
        below = np.searchsorted(middles, magnitude, "left")
        tie = below != np.searchsorted(middles, magnitude, "right")
        code = np.where(np.isnan(value), 0x7F, below + (tie & (below % 2 == 1)))
        return np.asarray((code | (np.signbit(value) << 7)).astype(np.uint32))


FP8 = SmallFloat(small_float_values(4, 3, 7, "nan"), beyond=0x7F, step=32.0)
BF8 = SmallFloat(small_float_values(5, 2, 15, "ieee"), beyond=0x7C, step=8192.0)
_FORMATS = {"fp8": FP8, "bf8": BF8}
_Pair = Callable[[Array], tuple[Array, Array]]


def _halves(word: Array) -> tuple[Array, Array]:
    low, high = ((word >> shift).astype(np.uint16).view(np.float16).astype(np.float64) for shift in (np.uint32(0), _16))
    return low, high


def _bfloats(word: Array) -> tuple[Array, Array]:
    return bf16_value(word).astype(np.float64), (word & _HIGH).view(np.float32).astype(np.float64)


def _put_low(g: WaveGroup, d: int, value: Array) -> None:
    """The low half of D; the high one stays. With op_sel the result goes to the high half, by a step of its own."""
    np.bitwise_or(g.u[d] & _HIGH, value, out=g.u[d])


def _to_pair(format: SmallFloat) -> Semantics:
    """D[15:0] = {S1, S0} in ``format``."""

    def run(g: WaveGroup, d: int, a: int, b: int) -> None:
        low, high = (format.codes(g.f[source].astype(np.float64)) for source in (a, b))
        _put_low(g, d, low | (high << _8))

    return run


def _scale(g: WaveGroup, index: int) -> Array:
    return np.asarray(_E8M0.take((g.u[index] >> np.uint32(23)) & _BYTE))


def _scaled_codes(format: SmallFloat, value: Array, scale: Array) -> Array:
    scaled = value / scale
    codes = format.codes(scaled)
    if ((codes & np.uint32(0x7F)) >= format.beyond)[~np.isnan(scaled)].any():
        raise UnknownInstructionError("unmodelled: a scaled conversion of a value beyond the format")
    return codes


def _scaled_from_singles(format: SmallFloat) -> Semantics:
    """D[15:0] = {S1, S0} in ``format``, divided by the scale."""

    def run(g: WaveGroup, d: int, a: int, b: int, scale: int) -> None:
        factor = _scale(g, scale)
        low, high = (_scaled_codes(format, g.f[source].astype(np.float64), factor) for source in (a, b))
        _put_low(g, d, low | (high << _8))

    return run


def _scaled_from_word(format: SmallFloat, pair: _Pair) -> Semantics:
    """D[15:0] = both 16-bit values of S0 in ``format``, divided by the scale."""

    def run(g: WaveGroup, d: int, a: int, scale: int) -> None:
        factor = _scale(g, scale)
        low, high = (_scaled_codes(format, value, factor) for value in pair(g.u[a]))
        _put_low(g, d, low | (high << _8))

    return run


def _single(format: SmallFloat) -> Semantics:
    """D.f32 = the low byte of S0, or that which SDWA chooses."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        g.f[d][...] = format.values.take(g.u[a] & _BYTE)

    return run


def _pair_of_singles(format: SmallFloat) -> Semantics:
    """D.f32[2] = the low two bytes of S0, or those that SDWA chooses."""

    def run(g: WaveGroup, d: int, a: int) -> None:
        low, high = (format.values.take((g.u[a] >> shift) & _BYTE).astype(np.float32) for shift in (np.uint32(0), _8))
        g.f[d][...] = low
        g.f[d + 1][...] = high

    return run


def _scaled_single(format: SmallFloat) -> Semantics:
    """D.f32 = byte op_sel[0] + 2*op_sel[1] of S0, times the scale."""

    def run(g: WaveGroup, d: int, a: int, scale: int, *, mods: Modifiers) -> None:
        byte = (g.u[a] >> np.uint32(8 * (mods.op_sel[0] + 2 * mods.op_sel[1]))) & _BYTE
        g.f[d][...] = format.values.take(byte) * _scale(g, scale)

    return run


def _scaled_pair(format: SmallFloat, target: str) -> Semantics:
    """D = both bytes of word op_sel[0] of S0, times the scale."""

    def run(g: WaveGroup, d: int, a: int, scale: int, *, mods: Modifiers) -> None:
        word, factor = g.u[a] >> np.uint32(16 * mods.op_sel[0]), _scale(g, scale)
        low, high = (format.values.take((word >> shift) & _BYTE) * factor for shift in (np.uint32(0), _8))
        if target == "f32":
            g.f[d][...] = low
            g.f[d + 1][...] = high
        else:
            bits = half_bits if target == "f16" else lambda value: bf16_bits(value.astype(np.float32))
            np.bitwise_or(bits(low), bits(high) << _16, out=g.u[d])

    return run


def _mixed(g: WaveGroup, sources: tuple[int, int, int], mods: Modifiers) -> Array:
    """Float32 S0 * S1 + S2, rounded once; op_sel_hi makes a source the f16 half that op_sel chooses."""
    values = []
    for position, source in enumerate(sources):
        if mods.op_sel_hi[position]:
            half = (g.u[source] >> np.uint32(16 * mods.op_sel[position])).astype(np.uint16)
            values.append(half.view(np.float16).astype(np.float32))
        else:
            values.append(g.f[source])
    return fma32(*values)


def v_fma_mix_f32(g: WaveGroup, d: int, a: int, b: int, c: int, *, mods: Modifiers) -> None:
    """D.f32 = S0 * S1 + S2."""
    g.f[d][...] = _mixed(g, (a, b, c), mods)


def v_fma_mixlo_f16(g: WaveGroup, d: int, a: int, b: int, c: int, *, mods: Modifiers) -> None:
    """D[15:0].f16 = S0 * S1 + S2 as f32, rounded again."""
    _put_low(g, d, half_bits(_mixed(g, (a, b, c), mods)))


def v_fma_mixhi_f16(g: WaveGroup, d: int, a: int, b: int, c: int, *, mods: Modifiers) -> None:
    """D[31:16].f16 = S0 * S1 + S2 as f32, rounded again."""
    value = half_bits(_mixed(g, (a, b, c), mods)) << _16
    np.bitwise_or(g.u[d] & _WORD, value, out=g.u[d])


def _of_format(name: str, format: SmallFloat) -> list[Op]:
    high, scaled = 0xFFFF0000, "v_cvt_scalef32"
    return [
        Op(f"v_cvt_pk_{name}_f32", _to_pair(format), ("u16",), ("f32", "f32"), preserve=high),
        Op(f"v_cvt_f32_{name}", _single(format), ("f32",), ("u32",)),
        Op(f"v_cvt_pk_f32_{name}", _pair_of_singles(format), ("pkf32",), ("u32",)),
        Op(f"{scaled}_pk_{name}_f32", _scaled_from_singles(format), ("u16",), ("f32", "f32", "u32"), preserve=high),
        Op(f"{scaled}_pk_{name}_f16", _scaled_from_word(format, _halves), ("u16",), ("u32", "u32"), preserve=high),
        Op(f"{scaled}_pk_{name}_bf16", _scaled_from_word(format, _bfloats), ("u16",), ("u32", "u32"), preserve=high),
        Op(f"{scaled}_f32_{name}", _scaled_single(format), ("f32",), ("u32", "u32"), takes_modifiers=True),
        *(
            Op(
                f"{scaled}_pk_{target}_{name}",
                _scaled_pair(format, target),
                (kind,),
                ("u32", "u32"),
                takes_modifiers=True,
            )
            for target, kind in (("f32", "pkf32"), ("f16", "u32"), ("bf16", "u32"))
        ),
    ]


def _mix(name: str, semantics: Semantics, target: str, preserve: int = 0) -> Op:
    return Op(name, semantics, (target,), ("mix",) * 3, takes_modifiers=True, preserve=preserve, op_sel_hi=0)


OPS = table(
    [
        *(op for name, format in _FORMATS.items() for op in _of_format(name, format)),
        _mix("v_fma_mix_f32", v_fma_mix_f32, "f32"),
        _mix("v_fma_mixlo_f16", v_fma_mixlo_f16, "u32", 0xFFFF0000),
        _mix("v_fma_mixhi_f16", v_fma_mixhi_f16, "u32", 0xFFFF),
    ]
)
