"""Runs groups of waves until all have ended: splits them where they branch apart, joins them where they meet.

The group with the lowest program counter runs first, which brings diverged waves together again at the first common
instruction. A group waits at a barrier until every live wave of its workgroups has reached one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from search.gfx950.simulator.checks import run_checked
from search.gfx950.simulator.decode.op import Control, Instruction
from search.gfx950.simulator.program import DecodedProgram
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import FindingKind
from search.gfx950.simulator.state.state import Environment, WaveGroup


@dataclass(eq=False)
class Waves:
    """Scheduler of wave groups.

    Args:
        budget: Instructions a wave may execute.
        counts: Executions of each instruction, summed over waves.
    """

    program: DecodedProgram
    env: Environment
    budget: int
    counts: Array = field(init=False)
    executed: Array = field(init=False)
    _ended: Array = field(init=False)

    def __post_init__(self) -> None:
        """Start with zero counts."""
        self.env.recording.instructions = self.program.instructions
        self.counts = np.zeros(len(self.program.instructions), np.int64)
        self._ended = np.zeros(len(self.env.wave_workgroup), np.bool_)
        self.executed = np.zeros(len(self.env.wave_workgroup), np.int64)

    def run(self, start: WaveGroup) -> None:
        """Execute until every wave has ended, or none can go on."""
        self._run(start)
        for hazard in self.program.hazards:
            if self.counts[hazard.first] and self.counts[hazard.second]:
                start.now = self.program.instructions[hazard.second].statement
                self.env.report(FindingKind.MATRIX_HAZARD, start, None, hazard.detail)

    def _run(self, start: WaveGroup) -> None:
        groups = [start]
        while groups:
            ready = [group for group in groups if not group.at_barrier]
            if not ready:
                self._release(groups)
                groups = _joined(groups)
                continue
            group = min(ready, key=lambda g: g.pc)
            others = [g.pc for g in ready if g is not group]
            stop = min((pc for pc in others if pc > group.pc), default=len(self.program.instructions) + 1)
            groups.remove(group)
            groups = _joined(groups + self._advance(group, stop))

    def _advance(self, group: WaveGroup, stop: int) -> list[WaveGroup]:
        """Run ``group`` to a branch that splits it, a barrier, its end, or the place ``stop`` where others wait."""
        instructions = self.program.instructions
        while group.pc != stop:
            if group.pc >= len(instructions):
                return self._fell_off(group)
            last = self._run_block(group, stop)
            if last.control is Control.END:
                return self._end(group)
            if last.control is Control.BARRIER:
                group.at_barrier = True
                return [group]
            if last.control is Control.BRANCH:
                parts = self._branch(group, last)
                if len(parts) > 1 or group.pc > stop:
                    return parts
            if int(self.executed[group.waves[0]]) > self.budget:
                self._over_budget(group)
                return []
        return [group]

    def _run_block(self, group: WaveGroup, stop: int) -> Instruction:
        """Execute to the end of the basic block (or ``stop``) and set the program counter to what follows."""
        instructions, suspect = self.program.instructions, group.tracking.suspect
        first = position = group.pc
        while True:
            instruction = instructions[position]
            group.now = instruction.statement
            if instruction.touches.isdisjoint(suspect):
                instruction.run(group)
            else:
                run_checked(group, instruction)
            position += 1
            if instruction.control is not Control.NEXT or position == stop or position == len(instructions):
                break
        self.env.recording.blocks.append((first, position, group.waves))
        self.counts[first:position] += group.count
        self.executed[group.waves] += position - first
        group.pc = position
        return instruction

    def _branch(self, group: WaveGroup, instruction: Instruction) -> list[WaveGroup]:
        taken = group.taken[:, 0]
        if taken.all():
            group.pc = instruction.target
            return [group]
        if not taken.any():
            return [group]
        away, on = group.take(np.flatnonzero(taken)), group.take(np.flatnonzero(~taken))
        away.pc = instruction.target
        return [away, on]

    def _end(self, group: WaveGroup) -> list[WaveGroup]:
        if any(operation.into_lds for operation in group.tracking.queues["vm"]):
            detail = "a load into LDS, which another workgroup may own by then, has not been waited for"
            self.env.report(FindingKind.LDS_LOAD_AT_END, group, None, detail)
        self._ended[group.waves] = True
        return []

    def _fell_off(self, group: WaveGroup) -> list[WaveGroup]:
        self.env.report(FindingKind.RAN_OFF_END, group, None, "the program counter left the kernel")
        self._ended[group.waves] = True
        return []

    def _over_budget(self, group: WaveGroup) -> None:
        detail = f"more than {self.budget} instructions in one wave"
        self.env.report(FindingKind.INSTRUCTION_BUDGET, group, None, detail)
        self._ended[group.waves] = True

    def _release(self, groups: Sequence[WaveGroup]) -> None:
        """All live waves wait at barriers: let them go on."""
        env = self.env
        waiting = np.zeros(len(self._ended), np.bool_)
        for group in groups:
            waiting[group.waves] = True
        count = len(env.workgroups)
        here = np.bincount(env.wave_workgroup[waiting], minlength=count)
        gone = np.bincount(env.wave_workgroup[self._ended], minlength=count)
        for group in groups:
            missed = (here > 0) & (gone > 0)
            wrong = missed[env.wave_workgroup[group.waves]]
            if wrong.any():
                env.report(FindingKind.BARRIER_MISMATCH, group, wrong, "other waves of the workgroup ended before it")
            group.at_barrier = False
        env.lds.barrier(here > 0)
        env.handover.barrier(here > 0, env.memory.clock)


def _joined(groups: list[WaveGroup]) -> list[WaveGroup]:
    """``groups`` with those at the same place merged; barriers keep waiting groups apart from running ones."""
    places: dict[tuple[int, bool], list[WaveGroup]] = {}
    for group in groups:
        places.setdefault((group.pc, group.at_barrier), []).append(group)
    return [parts[0] if len(parts) == 1 else WaveGroup.merge(parts) for parts in places.values()]
