"""Instruction modifiers as steps around the plain instruction: neg/abs, SDWA, DPP, op_sel, clamp, omod.

A step that changes a source writes a scratch row; one that changes the result works on a scratch row before it is
written. MI300 ISA guide, sections "VOP3 input and output modifiers", "SDWA" and "DPP".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import UnknownInstructionError
from search.gfx950.simulator.state.registers import M0, SCRATCH
from search.gfx950.simulator.state.shadow import any_bit
from search.gfx950.simulator.state.state import LANES, WaveGroup

Lookup = Callable[[int], Array]
_SELECTS: Mapping[str, tuple[int, int]] = {
    "BYTE_0": (0, 0xFF), "BYTE_1": (8, 0xFF), "BYTE_2": (16, 0xFF), "BYTE_3": (24, 0xFF),
    "WORD_0": (0, 0xFFFF), "WORD_1": (16, 0xFFFF), "DWORD": (0, 0xFFFFFFFF),
}  # fmt: skip
_SIGN = {"f16": 0x8000, "pkf16": 0x8000, "bf16": 0x8000}
SDWA_KEYS = frozenset({"src0_sel", "src1_sel", "dst_sel", "dst_unused"})
_DPP: Mapping[str, Callable[[Array, int], Array]] = {  # lane that each lane reads, by control and its number
    "row_shl": lambda lane, count: np.where(lane % 16 + count < 16, lane + count, -1),
    "row_shr": lambda lane, count: np.where(lane % 16 >= count, lane - count, -1),
    "row_ror": lambda lane, count: (lane & ~15) + ((lane - count) & 15),
    "row_mirror": lambda lane, _: lane ^ 15,
    "row_half_mirror": lambda lane, _: lane ^ 7,
    "row_newbcast": lambda lane, count: (lane & ~15) + count,
    "row_bcast": lambda lane, count: np.where(lane > count, (lane & ~15) - 1 if count == 15 else count, -1),
    "wave_shl": lambda lane, _: np.where(lane < 63, lane + 1, -1),
    "wave_rol": lambda lane, _: (lane + 1) % LANES,
    "wave_shr": lambda lane, _: np.where(lane > 0, lane - 1, -1),
    "wave_ror": lambda lane, _: (lane - 1) % LANES,
}
DPP_CONTROLS = frozenset({"quad_perm", *_DPP})
DPP_KEYS = DPP_CONTROLS | {"row_mask", "bank_mask", "bound_ctrl"}


@dataclass(frozen=True, eq=False)
class Step:
    """A change to one source before the instruction, or to its result after it.

    Args:
        run: Writes scratch row ``target``.
        target: Scratch row.
        shadow: Undefined bits of ``target``, given those of any register.
    """

    run: Callable[[WaveGroup], None]
    target: int
    shadow: Callable[[WaveGroup, Lookup], Array]


@dataclass(frozen=True)
class Modifiers:
    """Selection modifiers of one instruction, padded to four entries.

    Args:
        op_sel, op_sel_hi: Half or register choice per source for the low and the high result.
        neg_lo, neg_hi: Negation per source for the low and the high result.
        bitop3: Truth table.
    """

    op_sel: tuple[int, ...]
    op_sel_hi: tuple[int, ...]
    neg_lo: tuple[int, ...]
    neg_hi: tuple[int, ...]
    bitop3: int


def int_list(text: str) -> tuple[int, ...]:
    """``[1,0]`` as (1, 0)."""
    return tuple(int(word, 0) for word in text.strip("[]").split(",") if word.strip())


_DEFAULT = Modifiers((0,) * 4, (1,) * 4, (0,) * 4, (0,) * 4, 0)


def parse_modifiers(found: Mapping[str, str], op_sel_hi: int = 1) -> Modifiers:
    """The selection modifiers among ``found``; what the text does not have is 0, or ``op_sel_hi``."""
    if not found and op_sel_hi == 1:
        return _DEFAULT

    def padded(key: str, default: int) -> tuple[int, ...]:
        values = int_list(found[key]) if key in found else ()
        return (values + (default,) * 4)[:4]

    return Modifiers(
        op_sel=padded("op_sel", 0),
        op_sel_hi=padded("op_sel_hi", op_sel_hi),
        neg_lo=padded("neg_lo", 0),
        neg_hi=padded("neg_hi", 0),
        bitop3=int(found.get("bitop3", "0"), 0),
    )


def sign_step(source: int, target: int, kind: str, negate: bool, absolute: bool) -> Step:
    """Copy row ``source`` to ``target`` with its sign bit changed (of the high register for f64)."""
    sign = np.uint32(_SIGN.get(kind, 0x80000000))
    last = 1 if kind == "f64" else 0

    def run(g: WaveGroup) -> None:
        value = g.u[source + last]
        if absolute:
            value = value & ~sign
        if negate:
            value = value ^ sign
        g.u[target + last][...] = value
        if last:
            g.u[target][...] = g.u[source]

    return Step(run, target, lambda g, undefined: undefined(source))


def high_half_step(source: int, target: int) -> Step:
    """Copy the high half of a row to the low half of ``target`` (op_sel of 16-bit VOP3)."""

    def run(g: WaveGroup) -> None:
        np.right_shift(g.u[source], np.uint32(16), out=g.u[target])

    return Step(run, target, lambda g, undefined: np.asarray(undefined(source) >> np.uint32(16)))


def indexed_source_step(source: int, target: int) -> Step:
    """Copy row ``source`` + M0[7:0], chosen wave by wave (VGPR indexing)."""

    def run(g: WaveGroup) -> None:
        rows = (g.u[M0][:, 0] & np.uint32(0xFF)).astype(np.int64) + source
        g.u[target][...] = g.vectors[np.minimum(rows, SCRATCH - 1), np.arange(g.count)]

    return Step(run, target, lambda g, undefined: np.zeros((1, 1), np.uint32))


def sdwa_source_step(source: int, target: int, select: str, signed: bool) -> Step:
    """Copy the selected byte or word, zero- or sign-extended.

    Raises:
        UnknownInstructionError: Not an SDWA selection.
    """
    if select not in _SELECTS:
        raise UnknownInstructionError(f"unknown SDWA selection {select!r}")
    shift, mask = _SELECTS[select]

    def run(g: WaveGroup) -> None:
        g.u[target][...] = _selected(g.u[source], shift, mask, signed)

    def shadow(g: WaveGroup, undefined: Lookup) -> Array:
        return _selected(undefined(source), shift, mask, signed)

    return Step(run, target, shadow)


def _selected(word: Array, shift: int, mask: int, signed: bool) -> Array:
    value = (word >> np.uint32(shift)) & np.uint32(mask)
    spare = np.int32(32 - mask.bit_length())
    if signed and spare:
        value = ((value.view(np.int32) << spare) >> spare).view(np.uint32)
    return np.asarray(value)


def sdwa_result_step(result: int, destination: int, select: str, unused: str) -> Step:
    """Place the low bits of row ``result`` in the selected byte or word, and treat the rest as ``unused`` says."""
    shift, mask = _SELECTS[select]
    keep = np.uint32(~(mask << shift) & 0xFFFFFFFF)
    spare = np.int32(32 - mask.bit_length() - shift)

    def run(g: WaveGroup) -> None:
        value = (g.u[result] & np.uint32(mask)) << np.uint32(shift)
        if unused == "UNUSED_PRESERVE":
            value = value | (g.u[destination] & keep)
        elif unused == "UNUSED_SEXT":
            value = ((value.view(np.int32) << spare) >> spare).view(np.uint32)
        g.u[result][...] = value

    def shadow(g: WaveGroup, undefined: Lookup) -> Array:
        moved = (undefined(result) & np.uint32(mask)) << np.uint32(shift)
        if unused == "UNUSED_SEXT":
            moved = ((moved.view(np.int32) << spare) >> spare).view(np.uint32)
        return np.asarray(moved)

    return Step(run, result, shadow)


def float_result_step(result: int, kind: str, omod: str, clamp: bool) -> Step:
    """Output modifiers of a float result: multiply by 2, 4 or 0.5, then clamp to [0, 1] (NaN gives 0).

    Raises:
        UnknownInstructionError: A type other than f32, or an unknown factor.
    """
    factors = {"": 1.0, "mul:2": 2.0, "mul:4": 4.0, "div:2": 0.5}
    if kind != "f32" or omod not in factors:
        raise UnknownInstructionError(f"output modifier {omod or 'clamp'} on a {kind} result")
    factor = np.float32(factors[omod])

    def run(g: WaveGroup) -> None:
        value = g.f[result] * factor
        if clamp:
            value = np.clip(np.where(np.isnan(value), np.float32(0), value), np.float32(0), np.float32(1))
        g.f[result][...] = value

    return Step(run, result, lambda g, undefined: any_bit([undefined(result)]))


@dataclass(frozen=True, eq=False)
class LanePattern:
    """A DPP control: where each lane reads from, and which lanes may be written.

    Args:
        source: Lane that each lane reads [64]; -1 if there is none.
        enabled: Lanes that row_mask and bank_mask leave on [64].
        zero_invalid: bound_ctrl: lanes without a source read 0 instead of being switched off.
    """

    source: Array
    enabled: Array
    zero_invalid: bool


def lane_pattern(found: Mapping[str, str]) -> LanePattern:
    """The DPP pattern that the modifiers describe.

    Raises:
        UnknownInstructionError: No known DPP control.
    """
    lane = np.arange(LANES)
    controls = [key for key in found if key in DPP_CONTROLS]
    if len(controls) != 1:
        raise UnknownInstructionError(f"DPP control expected, found {sorted(found)}")
    source = _dpp_source(controls[0], found[controls[0]], lane)
    rows, banks = int(found.get("row_mask", "0xf"), 0), int(found.get("bank_mask", "0xf"), 0)
    enabled = ((rows >> (lane // 16)) & 1).astype(bool) & ((banks >> (lane % 16 // 4)) & 1).astype(bool)
    return LanePattern(source, enabled, "bound_ctrl" in found)


def _dpp_source(control: str, argument: str, lane: Array) -> Array:
    if control == "quad_perm":
        return np.asarray((lane & ~3) + np.array(int_list(argument))[lane & 3])
    return np.asarray(_DPP[control](lane, int(argument or "0", 0)))


def dpp_lanes(pattern: LanePattern, g: WaveGroup) -> tuple[Array, Array]:
    """(lanes that read a source, lanes that are written), both bool broadcastable to [waves, 64]."""
    valid = pattern.source >= 0
    if not g.full:
        valid = valid & g.mask[:, np.maximum(pattern.source, 0)]
    written = pattern.enabled if pattern.zero_invalid else pattern.enabled & valid
    return valid, written


def dpp_source_step(source: int, target: int, pattern: LanePattern) -> Step:
    """Copy row ``source`` permuted by ``pattern``; lanes without a source get 0."""
    index = np.maximum(pattern.source, 0)
    everywhere = bool((pattern.source >= 0).all())

    def run(g: WaveGroup) -> None:
        moved = g.u[source].take(index, axis=1)
        if not everywhere or not g.full:
            moved = np.where(dpp_lanes(pattern, g)[0], moved, np.uint32(0))
        g.u[target][...] = moved

    def shadow(g: WaveGroup, undefined: Lookup) -> Array:
        moved = np.broadcast_to(undefined(source), (g.count, LANES))[:, index]
        return np.where(dpp_lanes(pattern, g)[0], moved, np.uint32(0))

    return Step(run, target, shadow)


_SPELLING = re.compile(r"^(?:mul|div):\d$")


def omod_text(found: Mapping[str, str]) -> str:
    """The output multiplier among the modifiers (``mul:2``), or an empty string."""
    for key in ("mul", "div"):
        if key in found and _SPELLING.match(f"{key}:{found[key]}"):
            return f"{key}:{found[key]}"
    return ""
