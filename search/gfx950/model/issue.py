"""A basic block issued in order by one wave alone: stretches of arithmetic, and the operations between them.

Within a block nothing but its own instructions decides when arithmetic issues: registers that a load fills are guarded
by ``s_waitcnt``. So a block is issued once, and its arithmetic becomes the clocks between its memory operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from search.gfx950.code.instruction_mix import unit_of
from search.gfx950.model.constants import Constants
from search.gfx950.simulator.decode.op import Control, Instruction, InstructionClass
from search.gfx950.simulator.state.recording import Block


class Kind(IntEnum):
    """What ends a stretch of arithmetic."""

    NOTHING = 0
    LOAD = 1
    STORE = 2
    LDS = 3
    WAIT = 4
    BARRIER = 5
    SCALAR_LOAD = 6
    END = 7


class IssueTiming(NamedTuple):
    """How an instruction is issued.

    Args:
        kind: Of the operation that it is; NOTHING: it belongs to a stretch of arithmetic.
        valu: Clocks of the vector unit.
        mfma: Clocks of the matrix core.
        path: Clocks that full lanes take on the LDS or on the vector memory path.
        alone: It never runs beside an MFMA.
        scratch: It reads or writes a spilled register.
    """

    kind: Kind = Kind.NOTHING
    valu: int = 0
    mfma: int = 0
    path: int = 0
    alone: bool = False
    scratch: bool = False


class Stretch(NamedTuple):
    """A stretch of arithmetic and the operation that ends it.

    Args:
        clks: From its first instruction to the operation.
        valu: Clocks that it holds the vector unit.
        mfma: Clocks that it holds the matrix core.
        tail: Of these, the clocks of its last MFMA, which go on beside what follows.
        at: Index of the operation's instruction.
    """

    kind: Kind
    clks: int
    valu: int
    mfma: int
    tail: int
    at: int


WRITE_BACK = "buffer_wbl2"  # of the L2, waited for as stores are
_KINDS = (
    ("global_load", Kind.LOAD), ("global_store", Kind.STORE), ("global_atomic", Kind.STORE), ("lds_read", Kind.LDS),
    ("lds_write", Kind.LDS), ("waits", Kind.WAIT), ("barriers", Kind.BARRIER),
)  # fmt: skip


def timing_of(instruction: Instruction) -> IssueTiming:
    """Timing class of a decoded instruction."""
    if instruction.kind is InstructionClass.SCALAR:
        if instruction.control is Control.END:
            return IssueTiming(Kind.END)
        if instruction.statement.mnemonic == WRITE_BACK:
            return IssueTiming(Kind.STORE)
        return IssueTiming(Kind.SCALAR_LOAD) if instruction.counter else IssueTiming()
    statement = instruction.statement
    modifiers = ""
    if instruction.kind is InstructionClass.MFMA:
        modifiers = "".join(statement.modifiers.get(key, "") for key in ("cbsz", "blgp"))
    return _timing(statement.mnemonic, modifiers)


@cache
def _timing(mnemonic: str, modifiers: str) -> IssueTiming:
    unit = unit_of(mnemonic, modifiers if mnemonic.startswith("v_mfma_scale") else "")
    path = int(unit.get("vmem_clks", unit.get("lds_clks", 0)))
    if "scratch" in unit:
        return IssueTiming(Kind.LOAD if "_load_" in mnemonic else Kind.STORE, path=path, scratch=True)
    for name, kind in _KINDS:
        if name in unit:
            return IssueTiming(kind, path=path)
    return IssueTiming(
        valu=int(unit.get("valu_clks", 0)), mfma=int(unit.get("mfma_clks", 0)), alone="packed_f32" in unit
    )


def issue_block(instructions: Sequence[Instruction], block: Block, constants: Constants) -> tuple[Stretch, ...]:
    """The stretches of ``block``; the last one ends with NOTHING, unless the block ends with an operation."""
    wave = _Wave(constants)
    stretches = []
    for index in range(*block):
        instruction = instructions[index]
        timing = timing_of(instruction)
        if timing.kind is not Kind.NOTHING:
            stretches.append(wave.operation(timing.kind, instruction.reads, index))
        elif timing.mfma:
            wave.mfma(instruction, timing.mfma)
        elif timing.valu:
            wave.valu(instruction, timing)
        else:
            wave.scalar(instruction)
    rest = wave.operation(Kind.NOTHING, (), block[1])
    return (*stretches, rest) if rest.clks else tuple(stretches)


class _Wave:
    """One wave that has its SIMD for itself. ``ready`` and ``chained`` are clocks by register."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.now = self.started = self.free_valu = self.free_mfma = 0
        self.busy_valu = self.busy_mfma = self.tail = 0
        self.ready: dict[int, int] = {}  # from when anything may read it
        self.chained: dict[int, int] = {}  # from when an MFMA may read it that an MFMA wrote

    def operation(self, kind: Kind, reads: Iterable[int], index: int) -> Stretch:
        """End the stretch before the operation ``index``."""
        self.now = self._ready(reads, self.now)
        ended = Stretch(kind, self.now - self.started, self.busy_valu, self.busy_mfma, self.tail, index)
        self.started = self.now
        self.busy_valu = self.busy_mfma = self.tail = 0
        return ended

    def _ready(self, registers: Iterable[int], start: int) -> int:
        get = self.ready.get
        for register in registers:
            at = get(register, 0)
            if at > start:
                start = at
        return start

    def valu(self, instruction: Instruction, timing: IssueTiming) -> None:
        """Issue a vector instruction."""
        start = self.now if self.now > self.free_valu else self.free_valu
        if timing.alone and self.free_mfma > start:
            start = self.free_mfma
        start = self._ready(instruction.touches, start)
        self.free_valu = start + timing.valu
        self.busy_valu += timing.valu
        self._written(instruction, start + max(timing.valu, self.constants.valu_latency_clks))
        self.now = start + self.constants.issue_clks

    def mfma(self, instruction: Instruction, clks: int) -> None:
        """Issue a matrix instruction: those that add to one accumulator go back to back."""
        start = max(self.now, self.free_valu, self.free_mfma)
        for register in instruction.reads:
            at = self.chained.get(register) or self.ready.get(register, 0)
            if at > start:
                start = at
        self.free_mfma = start + clks
        self.free_valu = start + self.constants.mfma_blocks_valu_clks
        self.busy_mfma += clks
        self.busy_valu += self.constants.mfma_blocks_valu_clks
        self.tail = clks
        self._written(instruction, self.free_mfma + self.constants.mfma_result_clks)
        self.chained.update(dict.fromkeys(instruction.writes, self.free_mfma))
        self.now = start + self.constants.issue_clks

    def scalar(self, instruction: Instruction) -> None:
        """Issue a scalar instruction, a branch or an ``s_nop``."""
        start = self._ready(instruction.touches, self.now)
        self._written(instruction, start + self.constants.scalar_latency_clks)
        if instruction.control is Control.BRANCH:
            self.now = start + self.constants.branch_clks
        else:
            self.now = start + self.constants.issue_clks * (1 + _idle_slots(instruction))

    def _written(self, instruction: Instruction, done: int) -> None:
        for register in instruction.writes:
            self.ready[register] = done
            if self.chained:
                self.chained.pop(register, None)


def _idle_slots(instruction: Instruction) -> int:
    """Issue slots that an ``s_nop`` lets pass beyond its own."""
    statement = instruction.statement
    return int(statement.operands[0], 0) if statement.mnemonic == "s_nop" else 0
