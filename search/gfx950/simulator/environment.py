"""Everything that the groups of one simulation share: memory, LDS, scratch, findings and byte counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.gfx950.simulator.findings import Finding, FindingKind
from search.gfx950.simulator.lds import LocalMemory
from search.gfx950.simulator.memory import GlobalMemory
from search.gfx950.simulator.state import WaveGroup

Array = NDArray[Any]
LANES = 64
MAX_FINDINGS = 200


@dataclass(eq=False)
class Environment:
    """Shared state of one simulation.

    Args:
        memory: Global memory.
        lds: LDS of all workgroups.
        workgroups: (x, y, z) of each simulated workgroup.
        wave_workgroup: Position in ``workgroups`` of each wave.
        wave_in_group: Number of each wave in its workgroup.
        num_vgprs, num_agprs: Vector registers that the program names.
        constants: uint32 [1, 1] arrays in the order of their register indices.
        scratch: Private memory, uint32 [dwords, waves, 64], and which dwords were written.
        findings: First finding of each kind at each line.
    """

    memory: GlobalMemory
    lds: LocalMemory
    workgroups: Sequence[tuple[int, int, int]]
    wave_workgroup: Array
    wave_in_group: Array
    num_vgprs: int
    num_agprs: int
    constants: Sequence[Array]
    scratch: Array
    scratch_undefined: Array
    findings: dict[tuple[FindingKind, int], Finding] = field(default_factory=dict)
    global_read_bytes: int = 0
    global_written_bytes: int = 0
    lds_read_bytes: int = 0
    lds_written_bytes: int = 0

    def report(self, kind: FindingKind, group: WaveGroup, where: Array | None, detail: str) -> None:
        """Keep one finding for the instruction that ``group`` executes.

        Args:
            kind: Class of the finding.
            group: The waves that execute.
            where: Offending waves or lanes, bool [waves] or [waves, …]; None: the first wave.
            detail: Values that explain it.
        """
        instruction = group.now
        line = instruction.statement.line if instruction is not None else 0
        if (kind, line) in self.findings or len(self.findings) >= MAX_FINDINGS:
            return
        position = 0
        if where is not None and where.any():
            position = int(np.argmax(where.reshape(where.shape[0], -1).any(axis=1)))
        wave = int(group.waves[position])
        self.findings[(kind, line)] = Finding(
            kind=kind,
            workgroup=self.workgroups[int(self.wave_workgroup[wave])],
            wave=int(self.wave_in_group[wave]),
            line=line,
            text=instruction.statement.text if instruction is not None else "",
            detail=detail,
        )
