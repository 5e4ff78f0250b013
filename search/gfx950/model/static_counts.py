"""What compiled code of a GEMM executes, judged by its text alone: the counts beside which the estimates are put.

A pipelined loop leaves some steps to the code around it: as many as that code has MFMA, in units of the loop's. Triton
guards only the MFMA of such a step by a branch, so where there are fewer steps than that code holds, the rest of it
runs all the same. Other branches count as not taken.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

import numpy as np

from search.gfx950.code.assembly import METADATA_START, Resources
from search.gfx950.code.instruction_mix import VALU_CLKS, mix_of
from search.gfx950.machine import Machine
from search.gfx950.model.formula import CallWork

# A label at the start of a line, or an indented instruction up to its comment.
LINE = re.compile(r"^(?:([.\w$]+):|[ \t]+([a-z]\w*)[ \t]*([^;\n]*))", re.MULTILINE)
BRANCH = re.compile(r"s_(?:c?branch)")

Counts = Mapping[str, float]  # by field of InstructionMix
Instruction = tuple[str, str]  # mnemonic, operands
Span = tuple[int, int]  # first instruction, one past the last


@dataclass(frozen=True)
class StaticCounts:
    """Instructions of one kernel, split at its innermost loop that holds MFMA.

    Args:
        around: What stands before and behind the loop; everything if there is none.
        loop: The loop's body, once; empty if there is none.
    """

    around: Counts
    loop: Counts

    def executed(self, k_steps: float, steps_per_trip: int = 1) -> Counts:
        """What one wave executes over ``k_steps`` steps of the source's K loop, of which a trip does some."""
        if not _mfma(self.loop):
            return self.around
        outside = _mfma(self.around) / _mfma(self.loop)
        trips = k_steps / steps_per_trip - outside
        if trips >= 0:
            return {name: count + trips * self.loop[name] for name, count in self.around.items()}
        share = (trips + outside) / outside
        return {name: count * (share if name.startswith("mfma_") else 1) for name, count in self.around.items()}


def _mfma(counts: Counts) -> float:
    return counts["mfma_scaled"] + counts["mfma_other"]


def static_counts(assembly: str) -> StaticCounts:
    """Counts of the one kernel in ``assembly``."""
    instructions, loops = _parse(assembly.partition(METADATA_START)[0])
    start, end = _hot_loop(instructions, loops)
    around = mix_of([*instructions[:start], *instructions[end:]])
    return StaticCounts(asdict(around), asdict(mix_of(instructions[start:end])))


def with_code(work: CallWork, counts: Counts, resources: Resources, lds_bytes: int, machine: Machine) -> CallWork:
    """``work`` with the residency and the counts of its compiled code in place of estimates.

    Args:
        work: Estimate of the launch; its steps, grid and bytes stay.
        lds_bytes: LDS that the launch allocates.
    """
    fitting = machine.resident_workgroups(resources.vgprs, lds_bytes, work.waves)
    return replace(
        work,
        resident=np.maximum(1, fitting),
        mfma=_mfma(counts),
        mfma_clks=counts["mfma_clks"],
        valu_clks=counts["valu_clks"],
        packed_clks=VALU_CLKS * counts["packed_f32"],
        lds_clks=counts["lds_clks"],
        vmem_clks=counts["vmem_clks"],
        barriers=counts["barriers"],
    )


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
