"""Runs groups of waves until all have ended: splits them where they branch apart, joins them where they meet.

The group with the lowest program counter runs first, which brings diverged waves together again at the first common
instruction. A group waits at a barrier until every live wave of its workgroups has reached one. Workgroups may be given
turns: then each waits at its first atomic on global memory until those of earlier turns have ended.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from search.gfx950.simulator.checks import run_checked
from search.gfx950.simulator.decode.op import Control, Instruction
from search.gfx950.simulator.program import DecodedProgram
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import FindingKind
from search.gfx950.simulator.state.state import Environment, WaveGroup

ATOMIC = re.compile(r"(global|buffer|flat)_atomic_")


@dataclass(eq=False)
class Waves:
    """Scheduler of wave groups.

    Args:
        budget: Instructions a wave may execute.
        turns: Turn of each wave.
        counts: Executions of each instruction, summed over waves.
    """

    program: DecodedProgram
    env: Environment
    budget: int
    turns: Array
    counts: Array = field(init=False)
    executed: Array = field(init=False)
    _ended: Array = field(init=False)
    _turn: int = 0
    _gates: list[int] = field(init=False)  # instructions at which waves wait for their turn, in order

    def __post_init__(self) -> None:
        """Start with zero counts."""
        self.env.recording.instructions = self.program.instructions
        self.counts = np.zeros(len(self.program.instructions), np.int64)
        numbered = enumerate(self.program.instructions) if self.turns.any() else ()
        self._gates = [number for number, one in numbered if ATOMIC.match(one.statement.mnemonic)]
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
            groups = [part for group in groups for part in _parted(group, self._waits(group))]
            ready = [group for group in groups if not group.at_barrier and not self._waits(group).any()]
            if not ready:
                groups = _joined(self._let_on(groups))
                continue
            group = min(ready, key=lambda g: g.pc)
            others = [g.pc for g in ready if g is not group]
            stop = min(
                (pc for pc in [*others, *self._gates] if pc > group.pc), default=len(self.program.instructions) + 1
            )
            groups.remove(group)
            groups = _joined(groups + self._advance(group, stop))

    def _waits(self, group: WaveGroup) -> Array:
        """Which waves of ``group`` wait for their turn."""
        if group.at_barrier or group.pc not in self._gates:
            return np.zeros(group.count, np.bool_)
        return np.asarray(self.turns[group.waves] > self._turn)

    def _let_on(self, groups: Sequence[WaveGroup]) -> list[WaveGroup]:
        """All wait: let those on that have met at a barrier, or else those whose turn is next."""
        workgroup = self.env.wave_workgroup
        held = np.zeros(len(self.env.workgroups), np.bool_)
        for group in groups:
            held[workgroup[group.waves]] |= not group.at_barrier
        parts = [part for group in groups for part in _parted(group, held[workgroup[group.waves]])]
        met = [part for part in parts if not held[workgroup[part.waves[0]]]]
        if met:
            self._release(met)
        else:
            self._turn += 1
        return parts

    def _advance(self, group: WaveGroup, stop: int) -> list[WaveGroup]:
        """Run ``group`` to a branch that splits it, a barrier, its end, or the place ``stop`` where others wait."""
        instructions = self.program.instructions
        while group.pc != stop:
            if group.pc >= len(instructions):
                return self._end(group, FindingKind.RAN_OFF_END, "the program counter left the kernel")
            last = self._run_block(group, stop)
            if last.control is Control.END:
                in_flight = any(operation.into_lds for operation in group.tracking.queues["vm"])
                detail = "a load into LDS, which another workgroup may own by then, has not been waited for"
                return self._end(group, FindingKind.LDS_LOAD_AT_END if in_flight else None, detail)
            if last.control is Control.BARRIER:
                group.at_barrier = True
                return [group]
            if last.control is Control.BRANCH:
                parts = self._branch(group, last)
                if len(parts) > 1 or group.pc > stop or group.pc in self._gates:
                    return parts
            if int(self.executed[group.waves[0]]) > self.budget:
                detail = f"more than {self.budget} instructions in one wave"
                return self._end(group, FindingKind.INSTRUCTION_BUDGET, detail)
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

    def _end(self, group: WaveGroup, kind: FindingKind | None = None, detail: str = "") -> list[WaveGroup]:
        """The waves of ``group`` go no further, with a finding where they should have."""
        if kind is not None:
            self.env.report(kind, group, None, detail)
        self._ended[group.waves] = True
        return []

    def _release(self, groups: Sequence[WaveGroup]) -> None:
        """All live waves of their workgroups wait at barriers: let them go on."""
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


def _parted(group: WaveGroup, chosen: Array) -> list[WaveGroup]:
    """``group``, with the ``chosen`` waves apart from the others."""
    if chosen.all() or not chosen.any():
        return [group]
    parts = [group.take(np.flatnonzero(some)) for some in (chosen, ~chosen)]
    for part in parts:
        part.at_barrier = group.at_barrier
    return parts


def _joined(groups: list[WaveGroup]) -> list[WaveGroup]:
    """``groups`` with those at the same place merged; barriers keep waiting groups apart from running ones."""
    places: dict[tuple[int, bool], list[WaveGroup]] = {}
    for group in groups:
        places.setdefault((group.pc, group.at_barrier), []).append(group)
    joined = [parts[0] if len(parts) == 1 else WaveGroup.merge(parts) for parts in places.values()]
    for group, (_, at_barrier) in zip(joined, places, strict=True):
        group.at_barrier = at_barrier
    return joined
