"""A listing decoded once: instructions bound to registers, basic blocks, the registers they use."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from search.gfx950.simulator.decode.bind import Binder, Context, base_name, bind_alu
from search.gfx950.simulator.decode.op import Instruction, Op
from search.gfx950.simulator.decode.text import Listing, Statement
from search.gfx950.simulator.hazards import Hazard, matrix_hazards
from search.gfx950.simulator.instructions import (
    atomics,
    compare,
    control,
    convert,
    ds,
    mfma,
    packed,
    salu,
    scratch,
    small_floats,
    smem,
    valu,
    valu_float,
    vmem,
)
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import UnknownInstructionError
from search.gfx950.simulator.state.registers import AGPR, SCC, SCRATCH, SGPR

OPS: Mapping[str, Op] = MappingProxyType(
    {
        **salu.OPS, **valu.OPS, **valu_float.OPS, **compare.OPS, **packed.OPS, **convert.OPS, **small_floats.OPS,
    }
)  # fmt: skip
BINDERS: Mapping[str, Binder] = MappingProxyType(
    {
        **vmem.BINDERS, **ds.BINDERS, **smem.BINDERS, **mfma.BINDERS, **control.BINDERS, **scratch.BINDERS,
        **atomics.BINDERS,
    }
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class DecodedProgram:
    """Decoded instructions of one kernel.

    Args:
        num_vgprs, num_agprs: One more than the highest register named.
        registers: Every register that an instruction reads or writes.
        constants: Constant rows, uint32 [1, 1].
        hazards: Matrix instructions with a neighbour that does not wait for them.
    """

    instructions: Sequence[Instruction]
    num_vgprs: int
    num_agprs: int
    registers: frozenset[int]
    constants: Sequence[Array]
    hazards: Sequence[Hazard]


def decode(statement: Statement, context: Context) -> Instruction:
    """Bind one statement.

    Raises:
        UnknownInstructionError: Mnemonic, operand or modifier is not modelled; names the line.
    """
    try:
        if statement.mnemonic in BINDERS:
            return BINDERS[statement.mnemonic](statement, context)
        name = base_name(statement.mnemonic)[0]
        if "clamp" in statement.modifiers and f"{name}.clamp" in OPS:
            return bind_alu(OPS[f"{name}.clamp"], statement, context)
        if name in OPS:
            op = OPS[name]
            if "clamp" in statement.modifiers and (not op.dst or op.dst[0] not in ("f32",)):
                raise UnknownInstructionError("clamp on this instruction")
            return bind_alu(op, statement, context)
        raise UnknownInstructionError(f"unmodelled instruction {name}")
    except UnknownInstructionError as error:
        raise UnknownInstructionError(f"line {statement.line}: {error}: {statement.text}") from error


@contextmanager
def _collection_paused() -> Iterator[None]:
    """No search for cycles: instructions have none, and walking the thousands that are made takes as long as making."""
    paused = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def decode_program(listing: Listing) -> DecodedProgram:
    """Decode every statement.

    Raises:
        UnknownInstructionError: As ``decode``.
    """
    index_of = {s.address: i for i, s in enumerate(listing.statements) if s.address is not None}
    context = Context(labels=listing.labels, index_of=index_of)
    with _collection_paused():
        instructions = [decode(statement, context) for statement in listing.statements]
    used = frozenset(register for i in instructions for register in i.touches)
    vectors = {register for register in used if register < SCRATCH}
    return DecodedProgram(
        instructions=instructions,
        num_vgprs=max((register + 1 for register in vectors if register < AGPR), default=1),
        num_agprs=max((register + 1 - AGPR for register in vectors if register >= AGPR), default=0),
        registers=frozenset(register for register in used if register < SCRATCH or register >= SGPR or register == SCC),
        constants=context.constants,
        hazards=tuple(matrix_hazards(instructions)),
    )
