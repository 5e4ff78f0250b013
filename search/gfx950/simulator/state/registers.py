"""One index space for everything an instruction can name: VGPRs, AGPRs, scratch rows, SGPRs, constants.

Source of the operand names, inline constants and special SGPR numbers: AMD Instinct MI300 ISA guide, "Scalar
Operands" (gfx940 encoding, which gfx950 extends); the values of 16-bit inline constants: LLVM ``AMDGPUBaseInfo``.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from functools import lru_cache

from search.gfx950.simulator.state.findings import UnknownInstructionError

VGPR = 0
AGPR = 256
SCRATCH = 512  # rows that no program can name: results of operand modifiers and of masked writes
SOURCE_SCRATCH = 512
RESULT_SCRATCH = 528
SGPR = 576
CONSTANT = 704
NUM_SCRATCH = 64
NUM_SGPRS = 128
SCC = 4096  # pseudo register of the undefined-value tracking
FLAT_SCRATCH = SGPR + 102
XNACK_MASK = SGPR + 104
VCC = SGPR + 106
M0 = SGPR + 124
EXEC = SGPR + 126
_NAMED = {
    "vcc": (VCC, 2), "vcc_lo": (VCC, 1), "vcc_hi": (VCC + 1, 1),
    "exec": (EXEC, 2), "exec_lo": (EXEC, 1), "exec_hi": (EXEC + 1, 1),
    "m0": (M0, 1), "flat_scratch": (FLAT_SCRATCH, 2), "flat_scratch_lo": (FLAT_SCRATCH, 1),
    "flat_scratch_hi": (FLAT_SCRATCH + 1, 1), "xnack_mask": (XNACK_MASK, 2),
}  # fmt: skip
_REGISTER = re.compile(r"^([vas])(?:(\d+)|\[(\d+)(?::(\d+))?\])$")
_BASES = {"v": (VGPR, 256), "a": (AGPR, 256), "s": (SGPR, 102)}
_INTEGER = re.compile(r"^-?(?:0x[0-9a-fA-F]+|\d+)$")
_FLOAT = re.compile(r"^-?\d+\.\d+(?:e[+-]?\d+)?$")
_PACKED = {"f16": ("<H", "<e"), "pkf16": ("<H", "<e"), "f64": ("<Q", "<d"), "b64": ("<Q", "<d")}
_INV_2PI = {"f16": 0x3118, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}


@dataclass(frozen=True)
class Operand:
    """One operand: a register range, or a constant that still waits for its type.

    Args:
        index: First register in the common index space; None for a constant.
        count: Registers in the range.
        neg, abs, sext: Input modifiers.
    """

    text: str
    index: int | None
    count: int = 1
    neg: bool = False
    abs: bool = False
    sext: bool = False

    @property
    def is_vector(self) -> bool:
        """True for VGPRs and AGPRs."""
        return self.index is not None and self.index < SCRATCH


@lru_cache(maxsize=4096)
def parse_operand(text: str) -> Operand:
    """The operand of ``text`` (``v3``, ``-|v[2:3]|``, ``sext(s4)``, ``0x10``, ``1.0``).

    Raises:
        UnknownInstructionError: A register that gfx950 does not have, or an unknown form.
    """
    match = _REGISTER.match(text)
    if match is not None:
        return _register(text, match)
    for prefix, suffix in (("sext(", ")"), ("neg(", ")"), ("abs(", ")"), ("|", "|")):
        if text.startswith(prefix) and text.endswith(suffix) and len(text) > len(prefix):
            inner = parse_operand(text[len(prefix) : -len(suffix)])
            if prefix == "sext(":
                return replace(inner, sext=True)
            return replace(inner, neg=True) if prefix == "neg(" else replace(inner, abs=True)
    if _INTEGER.match(text) or _FLOAT.match(text):
        return Operand(text, None)
    if text.startswith("-"):
        return replace(parse_operand(text[1:]), neg=True)
    if text in _NAMED:
        index, count = _NAMED[text]
        return Operand(text, index, count)
    raise UnknownInstructionError(f"unknown operand {text!r}")


def _register(text: str, match: re.Match[str]) -> Operand:
    base, limit = _BASES[match[1]]
    first = int(match[2] or match[3])
    last = int(match[4]) if match[4] else first
    if last < first or last >= limit:
        raise UnknownInstructionError(f"no such register: {text!r}")
    return Operand(text, base + first, last - first + 1)


def register_name(index: int) -> str:
    """Name of a register index as the assembler prints it."""
    for name, (first, count) in _NAMED.items():
        if count == 1 and first == index:
            return name
    if index == SCC:
        return "scc"
    if index >= SGPR:
        return f"s{index - SGPR}"
    return f"a{index - AGPR}" if index >= AGPR else f"v{index}"


def constant_dwords(text: str, kind: str) -> tuple[int, int]:
    """(low, high) dword of a constant operand of type ``kind`` (``u32``, ``f32``, ``f16``, ``b64``, ``f64``, ``pk16``).

    Integer inline constants are sign-extended 32-bit values for every type up to 32 bits (also in packed 16-bit
    instructions, whose high half is therefore 0 for small positive numbers); floats take the type's own format.
    """
    if _FLOAT.match(text):
        return _float_dwords(text, kind)
    value = int(text, 0)
    if kind == "f64" and text.lower().lstrip("-").startswith("0x"):
        return 0, value & 0xFFFFFFFF  # a 32-bit literal is the high half of a double
    if kind in ("b64", "f64"):
        return value & 0xFFFFFFFF, (value >> 32) & 0xFFFFFFFF
    return value & 0xFFFFFFFF, 0


def _float_dwords(text: str, kind: str) -> tuple[int, int]:
    if text.startswith("0.159"):
        bits = _INV_2PI[kind if kind in _INV_2PI else "f32"]
    else:
        whole, real = _PACKED.get(kind, ("<I", "<f"))
        bits = int(struct.unpack(whole, struct.pack(real, float(text)))[0]) >> (16 if kind == "bf16" else 0)
    return bits & 0xFFFFFFFF, bits >> 32
