"""Resources and instruction counts of compiled gfx950 code, read from its assembly text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from search.gfx950.code.instruction_mix import InstructionMix, mix_of

LINE = re.compile(r"^[ \t]+([a-z]\w*)[ \t]*([^;\n]*)", re.MULTILINE)  # an instruction up to its comment
METADATA = re.compile(r"^[ \t-]+\.(\w+):[ \t]+(\d+)", re.MULTILINE)
METADATA_START = ".amdgpu_metadata"
METADATA_KEYS = {  # of the code object's metadata note (LLVM, "User Guide for AMDGPU Backend")
    "vgprs": "vgpr_count",
    "agprs": "agpr_count",
    "sgprs": "sgpr_count",
    "vgpr_spills": "vgpr_spill_count",
    "sgpr_spills": "sgpr_spill_count",
    "scratch_bytes": "private_segment_fixed_size",
    "lds_bytes": "group_segment_fixed_size",
    "kernarg_bytes": "kernarg_segment_size",
}


@dataclass(frozen=True)
class Resources:
    """What one kernel occupies.

    Args:
        vgprs: Vector registers of a lane, accumulation registers included.
        agprs: Of these, accumulation registers.
        sgprs: Scalar registers of a wave.
        vgpr_spills: Vector registers kept in memory.
        sgpr_spills: Scalar registers kept elsewhere.
        scratch_bytes: Private memory of a lane.
        lds_bytes: LDS fixed at compile time; Triton allocates its own at launch instead.
        kernarg_bytes: Size of the argument block.
    """

    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    scratch_bytes: int
    lds_bytes: int
    kernarg_bytes: int


@dataclass(frozen=True)
class Analysis:
    """What one kernel occupies, and its instructions, each counted once."""

    resources: Resources
    mix: InstructionMix


def analyze(assembly: str) -> Analysis:
    """Resources and instruction counts of the one kernel in ``assembly``.

    Raises:
        ValueError: The text lacks the metadata of a kernel.
    """
    code, marker, metadata = assembly.partition(METADATA_START)
    if not marker:
        raise ValueError("the assembly has no .amdgpu_metadata")
    return Analysis(_resources(metadata), mix_of((name, operands.rstrip()) for name, operands in LINE.findall(code)))


def _resources(metadata: str) -> Resources:
    found: dict[str, int] = {}
    for key, value in METADATA.findall(metadata):
        found.setdefault(key, int(value))
    missing = sorted(set(METADATA_KEYS.values()) - set(found))
    if missing:
        raise ValueError(f"the kernel's metadata lacks {', '.join(missing)}")
    return Resources(**{name: found[key] for name, key in METADATA_KEYS.items()})
