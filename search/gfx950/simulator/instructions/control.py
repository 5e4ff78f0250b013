"""Branches, barriers, waits and the other SOPP instructions, and the relative indexing of VGPRs.

MI300 ISA guide, sections "Program flow control" and "VGPR indexing". A branch goes to its own address + 4 + 4 * SIMM16
where the text gives no label. Priorities, sleeps and scheduling hints change no result and do nothing here. Of the
modes of S_SET_GPR_IDX_ON only that of the first source is modelled, as straight-line code (it is taken from the text up
to S_SET_GPR_IDX_OFF); uses of undefined registers through an index are not tracked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from search.gfx950.simulator.decode.bind import Binder, Context, coherent, make_instruction
from search.gfx950.simulator.decode.op import Control, Instruction, InstructionClass
from search.gfx950.simulator.decode.text import Statement
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import UnknownInstructionError
from search.gfx950.simulator.state.registers import EXEC, M0, SCC, VCC, parse_operand
from search.gfx950.simulator.state.state import WaveGroup
from search.gfx950.simulator.state.tracking import Entry, Pending

SCOPES = frozenset({"sc0", "sc1"})
Condition = Callable[[WaveGroup], Array]
_WAIT = re.compile(r"(vmcnt|lgkmcnt|expcnt)\((\d+)\)")
_COUNTERS = {"vmcnt": "vm", "lgkmcnt": "lgkm"}


def branch_target(statement: Statement, context: Context) -> int:
    """Statement index that a branch goes to.

    Raises:
        UnknownInstructionError: No such label or address.
    """
    text = statement.operands[0]
    if text in context.labels:
        return context.labels[text]
    if statement.address is not None and re.match(r"^-?(0x[0-9a-fA-F]+|\d+)$", text):
        displacement = int(text, 0) & 0xFFFF
        displacement -= 0x10000 if displacement & 0x8000 else 0
        address = statement.address + 4 + 4 * displacement
        if address in context.index_of:
            return context.index_of[address]
    raise UnknownInstructionError(f"unknown branch target {text!r}")


def _always(g: WaveGroup) -> Array:
    return np.ones((g.count, 1), np.bool_)


def _scc(g: WaveGroup) -> Array:
    return g.scc


def _not_scc(g: WaveGroup) -> Array:
    return np.asarray(~g.scc)


def _mask_test(index: int, zero: bool) -> Condition:
    return lambda g: np.asarray((g.read64(index) == 0) == zero)


_CONDITIONS: Mapping[str, tuple[Condition, frozenset[int]]] = {
    "s_branch": (_always, frozenset()),
    "s_cbranch_scc0": (_not_scc, frozenset({SCC})),
    "s_cbranch_scc1": (_scc, frozenset({SCC})),
    "s_cbranch_vccz": (_mask_test(VCC, True), frozenset({VCC, VCC + 1})),
    "s_cbranch_vccnz": (_mask_test(VCC, False), frozenset({VCC, VCC + 1})),
    "s_cbranch_execz": (_mask_test(EXEC, True), frozenset({EXEC, EXEC + 1})),
    "s_cbranch_execnz": (_mask_test(EXEC, False), frozenset({EXEC, EXEC + 1})),
}


def _bind_branch(condition: Condition, reads: frozenset[int]) -> Binder:
    def bind(statement: Statement, context: Context) -> Instruction:
        def run(g: WaveGroup) -> None:
            g.taken = condition(g)

        return make_instruction(
            statement, run, InstructionClass.SCALAR, tuple(reads), (), control=Control.BRANCH,
            target=branch_target(statement, context), sinks=(("branch", reads),),
        )  # fmt: skip

    return bind


def _bind_wait(statement: Statement, context: Context) -> Instruction:
    text = statement.operands[0]
    waits = [(_COUNTERS[name], int(count)) for name, count in _WAIT.findall(text) if name in _COUNTERS]
    if not _WAIT.search(text):
        raise UnknownInstructionError(f"unknown wait {text!r}")

    def run(g: WaveGroup) -> None:
        for counter, count in waits:
            g.tracking.wait(counter, count)

    return make_instruction(statement, run, InstructionClass.WAIT, waits=tuple(waits))


def _nothing(g: WaveGroup) -> None:
    """No effect on any result."""


def _is_device_wide(statement: Statement) -> bool:
    """Whether a cache instruction, whose scope stands where others have operands, reaches beyond the L2 of a die.

    Raises:
        UnknownInstructionError: It has something else there.
    """
    scope = {*statement.operands, *statement.modifiers}
    if not scope <= SCOPES:
        raise UnknownInstructionError(f"unknown scope {' '.join(sorted(scope - SCOPES))!r}")
    return "sc1" in scope


def _bind_write_back(statement: Statement, context: Context) -> Instruction:
    """BUFFER_WBL2."""
    device_wide = _is_device_wide(statement)

    def run(g: WaveGroup) -> None:
        if device_wide:
            written = g.env.handover.write_back(g.waves, g.env.memory.clock)
            g.tracking.issue("vm", Pending((Entry((), g.waves, written),)))

    return make_instruction(statement, run, InstructionClass.SCALAR)


def _bind_invalidate(statement: Statement, context: Context) -> Instruction:
    """BUFFER_INV: what a workgroup shares anyhow stays."""
    device_wide = _is_device_wide(statement)

    def run(g: WaveGroup) -> None:
        if device_wide:
            g.env.handover.acquire(g.waves)

    return make_instruction(statement, run, InstructionClass.SCALAR)


def _bind_index_on(statement: Statement, context: Context) -> Instruction:
    """M0[7:0] = S0[7:0], M0[15:12] = mode; the mode holds until S_SET_GPR_IDX_OFF."""
    source = parse_operand(statement.operands[0])
    if source.index is None or statement.operands[1] != "gpr_idx(SRC0)":
        raise UnknownInstructionError(f"index mode {statement.operands[1]!r} is not modelled")
    index = source.index
    context.index_first_source = True

    def run(g: WaveGroup) -> None:
        g.u[M0][...] = (g.u[M0] & np.uint32(0xFFFF0F00)) | (g.u[index] & np.uint32(0xFF)) | np.uint32(0x1000)

    return make_instruction(statement, coherent(run, {M0}), InstructionClass.SCALAR, (index,), (M0,))


def _bind_index_off(statement: Statement, context: Context) -> Instruction:
    """Ends the mode."""
    context.index_first_source = False
    return make_instruction(statement, _nothing, InstructionClass.SCALAR)


def _bind_control(control: Control, kind: InstructionClass) -> Binder:
    return lambda statement, context: make_instruction(statement, _nothing, kind, control=control)


_IGNORED = (
    "s_nop", "s_sleep", "s_setprio", "s_dcache_wb", "s_dcache_inv", "s_icache_inv", "s_ttracedata", "s_wakeup",
)  # fmt: skip
BINDERS: Mapping[str, Binder] = MappingProxyType(
    {name: _bind_branch(condition, reads) for name, (condition, reads) in _CONDITIONS.items()}
    | {name: _bind_control(Control.NEXT, InstructionClass.SCALAR) for name in _IGNORED}
    | {
        "s_waitcnt": _bind_wait,
        "buffer_wbl2": _bind_write_back,
        "buffer_inv": _bind_invalidate,
        "s_set_gpr_idx_on": _bind_index_on,
        "s_set_gpr_idx_off": _bind_index_off,
        "s_barrier": _bind_control(Control.BARRIER, InstructionClass.BARRIER),
        "s_endpgm": _bind_control(Control.END, InstructionClass.SCALAR),
    }
)
