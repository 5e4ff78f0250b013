"""Resources and instruction counts of compiled gfx950 code, read from its assembly text."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from search.gfx950.code.instruction_mix import NAMES, InstructionMix, mix_of

# A label at the start of a line, or an indented instruction up to its comment.
LINE = re.compile(r"^(?:([.\w$]+):|[ \t]+([a-z]\w*)[ \t]*([^;\n]*))", re.MULTILINE)
BRANCH = re.compile(r"s_(?:c?branch)")
METADATA = re.compile(r"^[ \t-]+\.(\w+):[ \t]+(\d+)", re.MULTILINE)
MFMA_FIELDS = tuple(name for name in NAMES if name.startswith("mfma_"))
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
Instruction = tuple[str, str]  # mnemonic, operands
Span = tuple[int, int]  # first instruction, one past the last


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
    """Static instruction counts of one kernel, split at its innermost loop that holds MFMA.

    Args:
        resources: Registers, spills, memory.
        whole: All of the code, each instruction once.
        prologue: What stands before the loop; everything if there is none.
        loop: The loop's body, once; empty if there is none.
        epilogue: What stands after the loop.
    """

    resources: Resources
    whole: InstructionMix
    prologue: InstructionMix
    loop: InstructionMix
    epilogue: InstructionMix

    def executed(self, k_steps: float, steps_per_trip: int = 1) -> InstructionMix:
        """Estimated mix that one wave executes over ``k_steps`` steps along K.

        A pipelined loop leaves some steps to the code around it: as many as that code has MFMA, in units of the
        loop's. Triton guards only the MFMA of such a step by a branch, so where there are fewer steps than that
        code holds, the rest of it runs all the same. Other branches count as not taken.

        Args:
            k_steps: Steps of the source's K loop.
            steps_per_trip: Of these, the steps that one trip of the compiled loop does.
        """
        if not self.loop.mfma:
            return self.whole
        around = self.prologue + self.epilogue
        outside = around.mfma / self.loop.mfma
        trips = k_steps / steps_per_trip - outside
        if trips >= 0:
            return around + self.loop.scaled(trips)
        share = (trips + outside) / outside
        return replace(around, **{name: getattr(around, name) * share for name in MFMA_FIELDS})


def analyze(assembly: str) -> Analysis:
    """Resources and instruction counts of the one kernel in ``assembly``.

    Raises:
        ValueError: The text lacks the metadata of a kernel.
    """
    code, marker, metadata = assembly.partition(METADATA_START)
    if not marker:
        raise ValueError("the assembly has no .amdgpu_metadata")
    instructions, loops = _parse(code)
    start, end = _hot_loop(instructions, loops)
    return Analysis(
        resources=_resources(metadata),
        whole=mix_of(instructions),
        prologue=mix_of(instructions[:start]),
        loop=mix_of(instructions[start:end]),
        epilogue=mix_of(instructions[end:]),
    )


def _resources(metadata: str) -> Resources:
    found: dict[str, int] = {}
    for key, value in METADATA.findall(metadata):
        found.setdefault(key, int(value))
    missing = sorted(set(METADATA_KEYS.values()) - set(found))
    if missing:
        raise ValueError(f"the kernel's metadata lacks {', '.join(missing)}")
    return Resources(**{name: found[key] for name, key in METADATA_KEYS.items()})


def _parse(code: str) -> tuple[list[Instruction], list[Span]]:
    """Instructions in order, and the span of each loop: from a label to the last backward branch to it."""
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    ends: dict[int, int] = {}
    for label, mnemonic, operands in LINE.findall(code):
        if label:
            labels[label] = len(instructions)
            continue
        operands = operands.rstrip()
        instructions.append((mnemonic, operands))
        if operands in labels and BRANCH.match(mnemonic):
            ends[labels[operands]] = len(instructions)
    return instructions, list(ends.items())


def _hot_loop(instructions: list[Instruction], loops: list[Span]) -> Span:
    """The innermost loop with MFMA, the one with most of them if there are several; an empty span if none."""
    matrix = [index for index, (mnemonic, _) in enumerate(instructions) if mnemonic.startswith(("v_mfma", "v_smfma"))]
    held = {loop: sum(loop[0] <= index < loop[1] for index in matrix) for loop in loops}
    with_mfma = [loop for loop, count in held.items() if count]
    innermost = [
        (start, end)
        for start, end in with_mfma
        if not any((a, b) != (start, end) and start <= a and b <= end for a, b in with_mfma)
    ]
    return max(innermost, key=lambda loop: held[loop], default=(len(instructions), len(instructions)))
