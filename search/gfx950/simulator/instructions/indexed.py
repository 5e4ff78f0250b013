"""Relative VGPR indexing: S_SET_GPR_IDX_ON … S_SET_GPR_IDX_OFF around instructions whose first source is indexed by M0.

MI300 ISA guide, "VGPR indexing". Only the SRC0 mode is modelled, as straight-line code (the mode is taken from the
text between ON and OFF). Uses of undefined registers through an index are not tracked.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from search.gfx950.simulator.decode.bind import Binder, Context, coherent, make_instruction
from search.gfx950.simulator.decode.op import Instruction, InstructionClass
from search.gfx950.simulator.decode.text import Statement
from search.gfx950.simulator.state.findings import UnknownInstructionError
from search.gfx950.simulator.state.registers import M0, parse_operand
from search.gfx950.simulator.state.state import WaveGroup


def _bind_on(statement: Statement, context: Context) -> Instruction:
    """M0[7:0] = S0[7:0], M0[15:12] = mode; the mode holds until S_SET_GPR_IDX_OFF."""
    source = parse_operand(statement.operands[0])
    if source.index is None or statement.operands[1] != "gpr_idx(SRC0)":
        raise UnknownInstructionError(f"index mode {statement.operands[1]!r} is not modelled")
    index = source.index
    context.index_first_source = True

    def run(g: WaveGroup) -> None:
        g.u[M0][...] = (g.u[M0] & np.uint32(0xFFFF0F00)) | (g.u[index] & np.uint32(0xFF)) | np.uint32(0x1000)

    return make_instruction(statement, coherent(run, {M0}), InstructionClass.SCALAR, (index,), (M0,))


def _bind_off(statement: Statement, context: Context) -> Instruction:
    """Ends the mode."""
    context.index_first_source = False
    return make_instruction(statement, lambda g: None, InstructionClass.SCALAR)


BINDERS: Mapping[str, Binder] = MappingProxyType({"s_set_gpr_idx_on": _bind_on, "s_set_gpr_idx_off": _bind_off})
