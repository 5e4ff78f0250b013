"""Private memory: SCRATCH_LOAD and SCRATCH_STORE of dwords (register spills), bytes and words.

MI300 ISA guide, "Scratch instructions": address = VGPR + SGPR + offset in the lane's own memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from search.gfx950.simulator.decode.bind import Binder, Context, check_modifiers, make_access, vector_registers
from search.gfx950.simulator.decode.op import Instruction
from search.gfx950.simulator.decode.text import Statement
from search.gfx950.simulator.instructions.vmem import CACHE_KEYS, LOADS, STORES, half_preserve, immediate
from search.gfx950.simulator.state.access import Width, write_loaded
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import FindingKind, UnknownInstructionError
from search.gfx950.simulator.state.registers import Operand, parse_operand
from search.gfx950.simulator.state.state import LANES, WaveGroup
from search.gfx950.simulator.state.tracking import Entry, Pending

Parts = tuple[int | None, int | None]  # registers that an address is the sum of
_ZERO = np.zeros((1, 1), np.uint32)


def _part(text: str) -> int | None:
    operand = Operand("off", None) if text in ("off", "null") else parse_operand(text)
    if operand.count != 1:
        raise UnknownInstructionError(f"one address register expected, found {text}")
    return operand.index


def _operands(statement: Statement, width: Width, *, stores: bool) -> tuple[range, Parts, int]:
    """Registers of the value and of the address; its immediate."""
    check_modifiers(statement, CACHE_KEYS | {"offset"})
    value, first = (1, 0) if stores else (0, 1)
    registers = vector_registers(statement.operands[value], width.registers)
    return registers, (_part(statement.operands[first]), _part(statement.operands[2])), immediate(statement)


def _address(g: WaveGroup, parts: Parts, offset: int, size: int) -> Array | None:
    """Byte of each lane int64 [waves, 64], aligned to a dword or less; None (with a finding) where one lies outside."""
    address: Array = np.full((g.count, LANES), offset, np.int64)
    for part in parts:
        if part is not None:
            address = address + g.u[part]
    limit = 4 * g.env.scratch.shape[0]
    wrong = g.mask & ((address < 0) | (address + size > limit) | (address % min(size, 4) != 0))
    if wrong.any():
        g.env.report(FindingKind.OUT_OF_BOUNDS, g, wrong, f"scratch byte {int(address[wrong][0])} of {limit}")
        return None
    return np.where(g.mask, address, 0)


def _place(g: WaveGroup, parts: Parts, offset: int, width: Width) -> tuple[tuple[Array, Array, Array], Array] | None:
    """Where each lane's dwords lie (dword, wave, lane), all [waves, 64, n]; by how many bits the value is shifted."""
    address = _address(g, parts, offset, width.size)
    if address is None:
        return None
    dwords = (address >> 2)[..., None] + np.arange(width.registers)
    waves, lanes = np.broadcast_arrays(g.waves[:, None, None], np.arange(LANES)[:, None], dwords)[:2]
    return (dwords, waves, lanes), (8 * (address & 3)).astype(np.uint32)[..., None]


def _bind_load(width: Width) -> Binder:
    def bind(statement: Statement, context: Context) -> Instruction:
        registers, parts, offset = _operands(statement, width, stores=False)

        def run(g: WaveGroup) -> None:
            found = _place(g, parts, offset, width)
            if found is not None:
                place, shift = found
                values, undefined = (
                    np.ascontiguousarray(words[place] >> shift).view(np.uint8)[..., : width.size]
                    for words in (g.env.scratch, g.env.scratch_undefined)
                )
                write_loaded(g, registers[0], values, undefined, width)
            g.tracking.issue("vm", Pending((Entry(tuple(registers), g.waves),)))

        address = [part for part in parts if part is not None]
        return make_access(statement, run, address, writes=registers, preserve=half_preserve(width))

    return bind


def _bind_store(width: Width) -> Binder:
    low, ones = np.uint32(16 if width.half == "hi" else 0), np.uint32((1 << 8 * min(width.size, 4)) - 1)

    def bind(statement: Statement, context: Context) -> Instruction:
        registers, parts, offset = _operands(statement, width, stores=True)

        def run(g: WaveGroup) -> None:
            found = _place(g, parts, offset, width)
            if found is not None:
                place, shift = found
                chosen = tuple(axis[g.mask] for axis in place)
                undefined = [np.broadcast_to(g.tracking.undefined.get(one, _ZERO), g.mask.shape) for one in registers]
                values = [g.u[one] for one in registers]
                for words, rows in ((g.env.scratch, values), (g.env.scratch_undefined, undefined)):
                    kept = words[place] & ~(ones << shift)
                    words[chosen] = (kept | (((np.stack(rows, axis=-1) >> low) & ones) << shift))[g.mask]
            g.tracking.issue("vm", Pending((Entry((), g.waves),)))

        return make_access(statement, run, [part for part in parts if part is not None], reads=registers)

    return bind


BINDERS: Mapping[str, Binder] = MappingProxyType(
    {f"scratch_load_{name}": _bind_load(width) for name, width in LOADS.items()}
    | {f"scratch_store_{name}": _bind_store(width) for name, width in STORES.items()}
)
