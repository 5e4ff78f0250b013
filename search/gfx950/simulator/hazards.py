"""Matrix instructions whose operands or results are touched too early: the hardware does not wait for them by itself.

Source of the rules and of their numbers: LLVM's ``GCNHazardRecognizer`` (checkMAIHazards90A, checkMAIVALUHazards: the
gfx940 cases of XDL instructions, one wait state more on gfx950 from 4 passes on, and of f32); of the passes:
``SISchedule.td``. What ``llc -mcpu=gfx950`` of LLVM 22 puts between such instructions agrees. Compilers insert the
waits, but not around inline assembly: that and other hand-written code can lack one. Every instruction takes one wait
state, S_NOP n takes n + 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from search.gfx950.simulator.decode.op import Control, Instruction, InstructionClass
from search.gfx950.simulator.state.registers import parse_operand, register_name

SHORT = 2  # passes of the 4x4 instructions: a use lacks gfx950's further wait state, no result is handed on at once
LONGEST_F32 = 13  # wait states until the addend of an f32 instruction is read
VALU_TO_MATRIX = 2  # wait states from a VALU result to its use by a matrix instruction
_SHAPE = re.compile(r"_(\d+)x\d+x(\d+)_")
_VALU = (InstructionClass.VALU, InstructionClass.TRANSCENDENTAL)
_READERS = (*_VALU, InstructionClass.LDS, InstructionClass.GLOBAL)


@dataclass(frozen=True)
class Hazard:
    """One instruction too close behind another.

    Args:
        first, second: Their indices in the program.
        detail: What is wrong, for a finding.
    """

    first: int
    second: int
    detail: str


@dataclass(frozen=True)
class _Matrix:
    """What a matrix instruction asks of those behind it.

    Args:
        results: That no later matrix instruction has overwritten: whoever comes then waits for that one.
        written: All of its results.
        addend: That no later matrix instruction adds to as well.
    """

    results: frozenset[int]
    written: frozenset[int]
    addend: frozenset[int]
    passes: int
    is_f32: bool

    @property
    def to_use(self) -> int:
        """Wait states to whoever reads a result, or overwrites it by a VALU instruction."""
        if self.is_f32:
            return self.passes + 2
        return self.passes + (4 if self.passes > SHORT else 3)

    @property
    def to_addend(self) -> int:
        """Wait states to a matrix instruction that adds to a part of the results, or to more than them."""
        return self.passes if self.is_f32 else self.passes + 2

    @property
    def to_same(self) -> int:
        """Wait states to a matrix instruction that adds to all of the results and nothing else."""
        return SHORT if self.passes == SHORT else 0

    @property
    def to_overwrite(self) -> int:
        """Wait states until a VALU instruction may overwrite the addend."""
        return min(self.passes - 1, LONGEST_F32) if self.is_f32 else self.passes - 1


def passes(instruction: Instruction) -> int:
    """Passes of four clocks that a matrix instruction takes: FP8 operands double those of FP4 and FP6, as f32 does."""
    match = _SHAPE.search(instruction.statement.mnemonic)
    assert match is not None
    base = {"4": SHORT, "16": 4, "32": 8}[match[1]]
    formats = [int(instruction.statement.modifiers.get(key) or "0", 0) for key in ("cbsz", "blgp")]
    slow = "f8f6f4" in instruction.statement.mnemonic and min(formats) < 2
    return 2 * base if slow or _is_f32(instruction) else base


def _is_f32(instruction: Instruction) -> bool:
    """Whether the operands are of f32: such instructions have rules of their own."""
    return instruction.statement.mnemonic.endswith("_f32")


def matrix_hazards(instructions: Sequence[Instruction]) -> Iterator[Hazard]:
    """Every hazard on a path of the program, whether it is taken or not."""
    states = [_states(instruction) for instruction in instructions]
    sources = _sources(instructions)
    for index, instruction in enumerate(instructions):
        if instruction.kind is InstructionClass.MFMA:
            yield from _before(instructions, states, sources, index)
            yield from _behind(instructions, states, index)


def _states(instruction: Instruction) -> int:
    if instruction.statement.mnemonic != "s_nop":
        return 1
    return int(instruction.statement.operands[0], 0) + 1


def _sources(instructions: Sequence[Instruction]) -> list[list[int]]:
    """From where each instruction is reached."""
    sources: list[list[int]] = [[] for _ in range(len(instructions) + 1)]
    for index, instruction in enumerate(instructions):
        if instruction.control is not Control.END and instruction.statement.mnemonic != "s_branch":
            sources[index + 1].append(index)
        if instruction.control is Control.BRANCH:
            sources[instruction.target].append(index)
    return sources


def _before(
    instructions: Sequence[Instruction], states: Sequence[int], sources: Sequence[Sequence[int]], index: int
) -> Iterator[Hazard]:
    """VALU results that the matrix instruction at ``index`` reads too early, on every path."""
    paths = [(source, 0) for source in sources[index]]
    while paths:
        position, waited = paths.pop()
        earlier = instructions[position]
        common = instructions[index].reads.intersection(earlier.writes) if earlier.kind in _VALU else ()
        if common:
            name = register_name(min(common))
            detail = f"reads {name} {waited} wait states after a VALU instruction wrote it, {VALU_TO_MATRIX} are needed"
            yield Hazard(position, index, detail)
        waited += states[position]
        if waited < VALU_TO_MATRIX:
            paths += [(source, waited) for source in sources[position]]


def _behind(instructions: Sequence[Instruction], states: Sequence[int], index: int) -> Iterator[Hazard]:
    """What touches the registers of the matrix instruction at ``index`` too early, on every path."""
    whole = _matrix(instructions[index])
    watched = whole.results | whole.addend
    paths, reached = [(index + 1, 0, whole)], dict[tuple[int, _Matrix], int]()
    while paths:
        position, waited, matrix = paths.pop()
        while (matrix.results or matrix.addend) and waited < matrix.to_use and position < len(instructions):
            if reached.get((position, matrix), waited + 1) <= waited:
                break
            reached[position, matrix] = waited
            later = instructions[position]
            if not later.touches.isdisjoint(watched):
                detail = _fault(matrix, later, waited)
                if detail is not None:
                    yield Hazard(index, position, detail)
                if later.kind is InstructionClass.MFMA:
                    results, addend = matrix.results.difference(later.writes), matrix.addend - _addend(later)
                    matrix = replace(matrix, results=results, addend=addend)
            waited += states[position]
            if later.control is Control.END:
                break
            if later.control is Control.BRANCH:
                paths.append((later.target, waited, matrix))
                if later.statement.mnemonic == "s_branch":
                    break
            position += 1


def _matrix(instruction: Instruction) -> _Matrix:
    results = frozenset(instruction.writes)
    return _Matrix(results, results, _addend(instruction), passes(instruction), _is_f32(instruction))


def _addend(instruction: Instruction) -> frozenset[int]:
    return _registers(instruction.statement.operands[3])


def _factors(instruction: Instruction) -> frozenset[int]:
    """What is multiplied, and its scales: an addend may be of the same registers."""
    _, left, right, _, *scales = instruction.statement.operands
    return frozenset().union(*map(_registers, (left, right, *scales)))


def _registers(text: str) -> frozenset[int]:
    operand = parse_operand(text)
    return frozenset(range(operand.index, operand.index + operand.count) if operand.index is not None else ())


def _fault(matrix: _Matrix, later: Instruction, waited: int) -> str | None:
    if later.kind is InstructionClass.MFMA:
        return _matrix_fault(matrix, later, waited)
    if later.kind in _READERS and waited < matrix.to_use and not matrix.results.isdisjoint(later.reads):
        return _text("reads", matrix.results & later.reads, waited, matrix.to_use)
    if later.kind not in _VALU:
        return None
    results, addend = (registers.intersection(later.writes) for registers in (matrix.results, matrix.addend))
    if results and waited < matrix.to_use:
        return _text("overwrites", results, waited, matrix.to_use)
    if addend and waited < matrix.to_overwrite:
        return _text("overwrites the addend", addend, waited, matrix.to_overwrite)
    return None


def _matrix_fault(matrix: _Matrix, later: Instruction, waited: int) -> str | None:
    addend = _addend(later)
    factors = matrix.results & _factors(later)
    if factors and waited < matrix.to_use:
        return _text("multiplies", factors, waited, matrix.to_use)
    added = matrix.results & addend
    needed = matrix.to_same if addend == matrix.written else matrix.to_addend
    if added and waited < needed:
        return _text("adds to", added, waited, needed)
    return None


def _text(verb: str, registers: frozenset[int], waited: int, needed: int) -> str:
    name = register_name(min(registers))
    return f"{verb} {name} {waited} wait states behind the matrix instruction, {needed} are needed"
