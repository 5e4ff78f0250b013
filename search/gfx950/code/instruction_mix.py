"""What one wave issues: instructions by kind, the bytes they move, and the clocks they hold each unit.

Source of the clocks, unless a line says otherwise: measurements and vendor documents of gfx950 as listed in
``search.gfx950.machine``. They are issue rates with no stall of any kind.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

VALU_CLKS = 4  # a wave of 64 on a 16-lane SIMD
SLOW_VALU_CLKS = 16  # quarter rate
WIDE_VALU_CLKS = 8  # 64-bit operands; assumed half rate
MIN_LDS_CLKS = 4  # 64 lanes at 16 addresses a clock; assumed, the measured widths are 8 and 16 bytes
MIN_VMEM_CLKS = 4  # the same of the vector memory path; measured for a dword
# Multiply-adds x 2 a clock and SIMD by operand type: dense peaks over 256 CUs x 4 SIMDs x 2.4 GHz.
MFMA_FLOPS_PER_CLK = {"f4": 4096, "f8": 2048, "i8": 2048, "f16": 1024, "bf16": 1024, "f32": 64, "f64": 32}
MFMA_MIN_CLKS = {4: 8, 16: 16, 32: 32}  # by rows; older shapes such as 16x16x16 run at half the rate
NARROW_FORMATS = frozenset("234")  # cbsz and blgp codes of FP6 (2, 3) and FP4 (4); 0 and 1 are 8-bit
TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos|exp_legacy|log_legacy)_(f16|f32|f64)")
SLOW_INTEGER = re.compile(r"v_(mul_lo_u32|mul_hi_[iu]32|mad_[iu]64_[iu]32)")  # assumed quarter rate
WIDE_VALU = re.compile(r"v_\w*(_f64|_[bui]64)")
MFMA = re.compile(r"v_s?mfma[c]?(?P<scale>_scale)?_[a-z]+\d+_(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_?(?P<type>\w*)")
LDS = re.compile(r"ds_(?P<kind>read|write|load|store)(?P<two>2|2st64)?_[a-z](?P<bits>\d+)")
PERMUTE = re.compile(r"ds_(b?permute|swizzle)")
VMEM = re.compile(r"(?P<space>buffer|global|flat|scratch)_(?P<kind>load|store|atomic)_(?P<type>\w+)")
DWORDS = re.compile(r"dword(?:x(\d))?")


@dataclass(frozen=True)
class InstructionMix:
    """Instructions one wave issues. Whole numbers, unless scaled by an average trip count.

    Args:
        mfma_other: All other MFMA; the sign of a fallback to bf16.
        mfma_clks: Clocks of the matrix core.
        cvt_scalef32: Scaled conversions, counted in ``valu`` as well.
        valu: Vector instructions other than MFMA.
        transcendental: Of these, exp, log, rcp, rsq, sqrt, sin, cos.
        packed_f32: Of these, ``v_pk_*_f32``, which never run beside an MFMA.
        valu_clks: Issue clocks of the SIMD.
        lds_read: LDS reads and cross-lane permutes.
        lds_write: LDS writes and atomics.
        lds_direct: Global loads straight to LDS, counted in ``global_load`` as well.
        lds_clks: Clocks of the SIMD's quarter of the LDS bandwidth.
        scratch: Accesses to scratch: spilled registers.
        vmem_clks: Clocks of the CU's one vector memory path.
        scalar: Scalar instructions, scalar loads and branches included.
        waits: ``s_waitcnt`` and the like.
    """

    mfma_scaled: float = 0
    mfma_other: float = 0
    mfma_clks: float = 0
    cvt_scalef32: float = 0
    valu: float = 0
    transcendental: float = 0
    packed_f32: float = 0
    valu_clks: float = 0
    lds_read: float = 0
    lds_write: float = 0
    lds_direct: float = 0
    lds_clks: float = 0
    global_load: float = 0
    global_store: float = 0
    global_atomic: float = 0
    scratch: float = 0
    vmem_clks: float = 0
    scalar: float = 0
    waits: float = 0
    barriers: float = 0


def mix_of(instructions: Iterable[tuple[str, str]]) -> InstructionMix:
    """Mix of (mnemonic, operands) pairs, each counted once.

    Operands matter only for MFMA formats and for loads to LDS.
    """
    totals: dict[str, float] = defaultdict(float)
    for (mnemonic, operands), count in Counter(instructions).items():
        for name, value in unit_of(mnemonic, _modifiers(mnemonic, operands)).items():
            totals[name] += value * count
    return InstructionMix(**totals)


@cache
def unit_of(mnemonic: str, modifiers: str) -> Mapping[str, float]:
    """Amount of each field of :class:`InstructionMix` that one instruction adds.

    Args:
        mnemonic: With or without encoding suffix.
        modifiers: Formats of a scaled MFMA (digits of cbsz and blgp), ``lds`` of a load to the LDS, else empty.
    """
    kind = mnemonic.partition("_")[0]
    matrix, memory = MFMA.match(mnemonic), VMEM.match(mnemonic)
    if matrix:
        return _mfma_unit(matrix, modifiers)
    if kind == "v":
        return _valu_unit(mnemonic)
    if kind == "ds":
        return _lds_unit(mnemonic)
    if memory:
        return _vmem_unit(memory, modifiers)
    if mnemonic.startswith("s_wait") or kind in ("buffer", "global", "flat"):  # the latter: cache maintenance
        return {"waits": 1}
    return {"barriers": 1} if mnemonic.startswith("s_barrier") else {"scalar": 1}


def _modifiers(mnemonic: str, operands: str) -> str:
    if mnemonic.startswith("v_mfma_scale"):
        return "".join(re.findall(r"(?:cbsz|blgp):(\d)", operands))
    return "lds" if operands.endswith(" lds") else ""


def _mfma_unit(found: re.Match[str], formats: str) -> Mapping[str, float]:
    m, n, k = (int(found[axis]) for axis in "mnk")
    if "f8f6f4" in found["type"]:
        rate = "f4" if len(formats) == 2 and set(formats) <= NARROW_FORMATS else "f8"
    elif "fp8" in found["type"] or "bf8" in found["type"]:
        rate = "f8"
    else:
        rate = found["type"]
    clks = max(2 * m * n * k / MFMA_FLOPS_PER_CLK.get(rate, 1024), MFMA_MIN_CLKS.get(m, 16))
    return {"mfma_scaled" if found["scale"] else "mfma_other": 1, "mfma_clks": clks}


def _valu_unit(mnemonic: str) -> Mapping[str, float]:
    if TRANSCENDENTAL.match(mnemonic):
        return {"valu": 1, "transcendental": 1, "valu_clks": SLOW_VALU_CLKS}
    if SLOW_INTEGER.match(mnemonic):
        return {"valu": 1, "valu_clks": SLOW_VALU_CLKS}
    if mnemonic.startswith("v_cvt_scalef32"):
        return {"valu": 1, "cvt_scalef32": 1, "valu_clks": VALU_CLKS}
    if mnemonic.startswith("v_pk_") and mnemonic.endswith("_f32"):
        return {"valu": 1, "packed_f32": 1, "valu_clks": VALU_CLKS}
    return {"valu": 1, "valu_clks": WIDE_VALU_CLKS if WIDE_VALU.match(mnemonic) else VALU_CLKS}


def _lds_unit(mnemonic: str) -> Mapping[str, float]:
    """64 lanes share 64 B a clock: as many clocks as a lane moves bytes."""
    found = LDS.match(mnemonic)
    if found is None:  # permutes pass through the LDS crossbar; the rest are atomics
        return {"lds_read" if PERMUTE.match(mnemonic) else "lds_write": 1, "lds_clks": MIN_LDS_CLKS}
    lane_bytes = int(found["bits"]) // 8 * (2 if found["two"] else 1)
    name = "lds_read" if found["kind"] in ("read", "load") else "lds_write"
    return {name: 1, "lds_clks": max(MIN_LDS_CLKS, lane_bytes)}


def _vmem_unit(found: re.Match[str], modifiers: str) -> Mapping[str, float]:
    lane_bytes = _lane_bytes(found["type"].removeprefix("lds_"))
    clks = max(MIN_VMEM_CLKS, lane_bytes)
    if found["space"] == "scratch":
        return {"scratch": 1, "vmem_clks": clks}
    moved = {f"global_{found['kind']}": 1, "vmem_clks": clks}
    if found["type"].startswith("lds_") or modifiers == "lds":
        return {**moved, "lds_direct": 1, "lds_clks": max(MIN_LDS_CLKS, lane_bytes)}
    return moved


def _lane_bytes(kind: str) -> int:
    """Bytes a lane moves, from the end of a mnemonic: ``dwordx4``, ``ubyte_d16``, ``add_f64``, ``cmpswap_x2``."""
    dwords = DWORDS.match(kind)
    if dwords:
        return 4 * int(dwords[1] or 1)
    if "byte" in kind:
        return 1
    if "short" in kind:
        return 2
    return 8 if kind.endswith(("_x2", "_f64")) else 4
