"""FP4, FP8, BF8 and their conversions, and f16 sources of f32 arithmetic.

OCP Microscaling Formats v1.0 for E2M1 and E8M0, OCP 8-bit Floating Point Specification 1.0 for E4M3 (no Inf) and
E5M2; MI300 ISA guide for the conversions, and for MODE.FP16_OVFL: it is 0 at the start of a kernel, and then what is
too large becomes Inf, or NaN where there is none. LLVM for gfx950's scaled conversions (``V_CVT_SCALEF32_*``), of whose
scale only the exponent field counts, an E8M0 byte: FP4 saturates; what they make of a value beyond the range of FP8 or
BF8 is not documented, and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from search.gfx950.simulator.decode.modifiers import Modifiers
from search.gfx950.simulator.decode.op import Op, Semantics, table
from search.gfx950.simulator.decode.values import (
    HALVES,
    HIGH,
    LOW,
    WRITERS,
    Operation,
    half_bits,
    half_values,
    value_op,
    vector_op,
)
from search.gfx950.simulator.instructions.valu_float import fma32
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import UnknownInstructionError
from search.gfx950.simulator.state.state import WaveGroup

_Pair = tuple[Array, Array]
_8, _BYTE = np.uint32(8), np.uint32(0xFF)
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float64)
E2M1_SIGNED = np.concatenate([E2M1, -E2M1])
E8M0 = np.where(np.arange(256) == 255, np.nan, 2.0 ** (np.arange(256) - 127.0))  # by code
_E8M0_INVERSE = (2.0 ** (127.0 - np.arange(256))).astype(np.float32)
_SCALED = "v_cvt_scalef32"
_TARGETS = (("f32", "pkf32"), ("f16", "u32"), ("bf16", "u32"))  # of a pair, and the type of its registers


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


def _nearest(middles: Array, magnitude: Array) -> Array:
    """Codes of magnitudes, to nearest even, given the ``middles`` between the values of one code and of the next."""
    below = np.searchsorted(middles, magnitude, "left")
    tie = below != np.searchsorted(middles, magnitude, "right")
    return np.asarray(below + (tie & (below % 2 == 1)))


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
        code = np.where(np.isnan(value), 0x7F, _nearest(middles, np.abs(value)))
        return np.asarray((code | (np.signbit(value) << 7)).astype(np.uint32))

    def pair(self, low: Array, high: Array) -> Array:
        """Codes of both values in the low 16 bits."""
        return np.asarray(self.codes(low.astype(np.float64)) | (self.codes(high.astype(np.float64)) << _8))

    def scaled_pair(self, low: Array, high: Array, scale: Array) -> Array:
        """As ``pair``, of the values divided by ``scale`` (as :func:`_scale`)."""
        return np.asarray(self._scaled_codes(low, scale) | (self._scaled_codes(high, scale) << _8))

    def _scaled_codes(self, value: Array, scale: Array) -> Array:
        scaled = value.astype(np.float64) / scale
        codes = self.codes(scaled)
        if ((codes & np.uint32(0x7F)) >= self.beyond)[~np.isnan(scaled)].any():
            raise UnknownInstructionError("unmodelled: a scaled conversion of a value beyond the format")
        return codes


FP8 = SmallFloat(small_float_values(4, 3, 7, "nan"), beyond=0x7F, step=32.0)
BF8 = SmallFloat(small_float_values(5, 2, 15, "ieee"), beyond=0x7C, step=8192.0)


def _e2m1_codes() -> Array:
    """E2M1 code by (sign, exponent, two mantissa bits, sticky): all that round-to-nearest-even needs."""
    key = np.arange(4096, dtype=np.uint32)
    leading = (key >> np.uint32(1)) << np.uint32(21)
    with np.errstate(invalid="ignore"):
        magnitude = np.abs((leading | (key & np.uint32(1))).view(np.float32).astype(np.float64))
    code = _nearest((E2M1[:-1] + E2M1[1:]) / 2, magnitude)
    code = np.where(np.isnan(magnitude), 7, code)  # E2M1 has no NaN; the sign is kept
    return np.asarray((code + 8 * (key >> np.uint32(11))).astype(np.uint32))


_E2M1_CODES = _e2m1_codes()


def _fp4_codes(value: Array, scale_bits: Array) -> Array:
    """E2M1 codes of float32 ``value`` / 2^(scale exponent - 127): round to nearest even, saturate to 6."""
    bits = (value * _E8M0_INVERSE.take(_exponent(scale_bits))).view(np.uint32)
    sticky = (bits & np.uint32(0x1FFFFF)) != 0
    return np.asarray(_E2M1_CODES.take(((bits >> np.uint32(21)) << np.uint32(1)) | sticky))


def _exponent(scale_bits: Array) -> Array:
    return np.asarray((scale_bits >> np.uint32(23)) & _BYTE)


def _scale(scale_bits: Array) -> Array:
    return np.asarray(E8M0.take(_exponent(scale_bits)))


def _to_fp4(source: str) -> Semantics:
    """Byte op_sel[2] + 2*op_sel[3] of D = E2M1 of both values (low nibble first), divided by the scale; others stay.

    They are S0 and S1 of f32, or both halves of S0.
    """

    def run(g: WaveGroup, d: int, *sources: int, mods: Modifiers) -> None:
        scale_bits = g.u[sources[-1]]
        low, high = (g.f[sources[0]], g.f[sources[1]]) if source == "f32" else HALVES[source](g.u[sources[0]])
        pair = _fp4_codes(low, scale_bits) | (_fp4_codes(high, scale_bits) << np.uint32(4))
        shift = 8 * (mods.op_sel[2] + 2 * mods.op_sel[3])
        np.bitwise_or(g.u[d] & np.uint32(~(0xFF << shift) & 0xFFFFFFFF), pair << np.uint32(shift), out=g.u[d])

    return run


def _selected_byte(word: Array, mods: Modifiers) -> Array:
    return np.asarray((word >> np.uint32(8 * (mods.op_sel[0] + 2 * mods.op_sel[1]))) & _BYTE)


def _fp4_pair(word: Array, mods: Modifiers) -> _Pair:
    """Both E2M1 values of byte op_sel[0] + 2*op_sel[1]."""
    byte = _selected_byte(word, mods)
    return E2M1_SIGNED.take(byte & np.uint32(15)), E2M1_SIGNED.take(byte >> np.uint32(4))


def _byte_pair(format: SmallFloat) -> Callable[[Array, Modifiers], _Pair]:
    """Both values of word op_sel[0]."""

    def pair(word: Array, mods: Modifiers) -> _Pair:
        return _low_bytes(format, word >> np.uint32(16 * mods.op_sel[0]))

    return pair


def _low_bytes(format: SmallFloat, word: Array) -> _Pair:
    return format.values.take(word & _BYTE), format.values.take((word >> _8) & _BYTE)


def _from_scaled(pair: Callable[[Array, Modifiers], _Pair], target: str) -> Semantics:
    """D = both values of S0, times the scale, as ``target``."""
    write = WRITERS[f"pk{target}"]

    def run(g: WaveGroup, d: int, a: int, scale: int, *, mods: Modifiers) -> None:
        factor = _scale(g.u[scale])
        low, high = pair(g.u[a], mods)
        write(g, d, (low * factor, high * factor))

    return run


def _one_from_scaled(format: SmallFloat) -> Semantics:
    """D.f32 = byte op_sel[0] + 2*op_sel[1] of S0, times the scale."""

    def run(g: WaveGroup, d: int, a: int, scale: int, *, mods: Modifiers) -> None:
        g.f[d][...] = format.values.take(_selected_byte(g.u[a], mods)) * _scale(g.u[scale])

    return run


def _mixed(g: WaveGroup, sources: tuple[int, int, int], mods: Modifiers) -> Array:
    """Float32 S0 * S1 + S2, rounded once; op_sel_hi makes a source the f16 half that op_sel chooses."""
    values = []
    for position, source in enumerate(sources):
        if mods.op_sel_hi[position]:
            values.append(half_values(g.u[source] >> np.uint32(16 * mods.op_sel[position])))
        else:
            values.append(g.f[source])
    return fma32(*values)


def v_fma_mix_f32(g: WaveGroup, d: int, a: int, b: int, c: int, *, mods: Modifiers) -> None:
    """D.f32 = S0 * S1 + S2."""
    g.f[d][...] = _mixed(g, (a, b, c), mods)


def v_fma_mixlo_f16(g: WaveGroup, d: int, a: int, b: int, c: int, *, mods: Modifiers) -> None:
    """D[15:0].f16 = S0 * S1 + S2 as f32, rounded again."""
    WRITERS["f16 kept"](g, d, _mixed(g, (a, b, c), mods))


def v_fma_mixhi_f16(g: WaveGroup, d: int, a: int, b: int, c: int, *, mods: Modifiers) -> None:
    """D[31:16].f16 = S0 * S1 + S2 as f32, rounded again."""
    value = half_bits(_mixed(g, (a, b, c), mods)) << np.uint32(16)
    np.bitwise_or(g.u[d] & LOW, value, out=g.u[d])


def _mix(name: str, semantics: Semantics, target: str, preserve: int = 0) -> Op:
    return vector_op(name, semantics, target, "mix mix mix", takes_modifiers=True, preserve=preserve, op_sel_hi=0)


def _scaled_halves(format: SmallFloat, kind: str) -> Operation:
    """Both halves of S0 in ``format``, divided by the scale."""
    return lambda word, scale: format.scaled_pair(*HALVES[kind](word), _scale(scale))


def _of_format(name: str, format: SmallFloat) -> Iterator[Op]:
    """D[15:0] is a pair of codes, D[31:16] stays; or a value or a pair is made of codes."""
    high = int(HIGH)
    yield value_op(f"v_cvt_pk_{name}_f32", format.pair, "u16", "f32 f32", preserve=high)
    yield value_op(f"v_cvt_f32_{name}", lambda word: format.values.take(word & _BYTE), "f32", "u32")
    yield value_op(f"v_cvt_pk_f32_{name}", lambda word: _low_bytes(format, word), "pkf32", "u32")
    yield value_op(
        f"{_SCALED}_pk_{name}_f32", lambda x, y, scale: format.scaled_pair(x, y, _scale(scale)), "u16", "f32 f32 u32",
        preserve=high,
    )  # fmt: skip
    for kind in ("f16", "bf16"):
        yield value_op(f"{_SCALED}_pk_{name}_{kind}", _scaled_halves(format, kind), "u16", "u32 u32", preserve=high)
    yield vector_op(f"{_SCALED}_f32_{name}", _one_from_scaled(format), "f32", "u32 u32", takes_modifiers=True)
    yield from _scaled_pairs(name, _byte_pair(format))


def _scaled_pairs(name: str, pair: Callable[[Array, Modifiers], _Pair]) -> Iterator[Op]:
    for target, kind in _TARGETS:
        semantics = _from_scaled(pair, target)
        yield vector_op(f"{_SCALED}_pk_{target}_{name}", semantics, kind, "u32 u32", takes_modifiers=True)


def _of_fp4() -> Iterator[Op]:
    for source, kinds in (("f32", "f32 f32 u32"), ("f16", "u32 u32"), ("bf16", "u32 u32")):
        yield vector_op(f"{_SCALED}_pk_fp4_{source}", _to_fp4(source), "u32", kinds, byte_destination=True)
    yield from _scaled_pairs("fp4", _fp4_pair)


OPS = table(
    [
        *_of_fp4(),
        *_of_format("fp8", FP8),
        *_of_format("bf8", BF8),
        _mix("v_fma_mix_f32", v_fma_mix_f32, "f32"),
        _mix("v_fma_mixlo_f16", v_fma_mixlo_f16, "u32", int(HIGH)),
        _mix("v_fma_mixhi_f16", v_fma_mixhi_f16, "u32", int(LOW)),
    ]
)
