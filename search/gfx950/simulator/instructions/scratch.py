"""Private memory: SCRATCH_LOAD and SCRATCH_STORE of dwords (register spills), bytes and words.

MI300 ISA guide, "Scratch instructions": address = VGPR + SGPR + offset in the lane's own memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from search.gfx950.simulator.decode.bind import Binder, Context, check_modifiers, make_instruction
from search.gfx950.simulator.decode.op import Instruction, InstructionClass
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


def _operands(statement: Statement, count: int, *, stores: bool) -> tuple[tuple[int, ...], Parts, int]:
    """Registers of the value, ``count`` of them, and of the address; its immediate."""
    check_modifiers(statement, CACHE_KEYS | {"offset"})
    value, first = (1, 0) if stores else (0, 1)
    operand = parse_operand(statement.operands[value])
    if operand.index is None or operand.count != count:
        raise UnknownInstructionError(f"{count} registers expected, found {operand.text}")
    parts = (_part(statement.operands[first]), _part(statement.operands[2]))
    return tuple(range(operand.index, operand.index + count)), parts, immediate(statement)


def _moves(
    statement: Statement,
    run: Callable[[WaveGroup], None],
    parts: Parts,
    reads: Sequence[int],
    writes: Sequence[int],
    preserve: int = 0,
) -> Instruction:
    address = [part for part in parts if part is not None]
    return make_instruction(
        statement, run, InstructionClass.GLOBAL, (*address, *reads), writes, counter="vm",
        sinks=(("address", frozenset(address)),), preserve=preserve,
    )  # fmt: skip


def _address(g: WaveGroup, parts: Parts, offset: int, size: int, step: int) -> Array | None:
    """Byte of each lane int64 [waves, 64], a multiple of ``step``; None (with a finding) where one lies outside."""
    address: Array = np.full((g.count, LANES), offset, np.int64)
    for part in parts:
        if part is not None:
            address = address + g.u[part]
    limit = 4 * g.env.scratch.shape[0]
    wrong = g.mask & ((address < 0) | (address + size > limit) | (address % step != 0))
    if wrong.any():
        g.env.report(FindingKind.OUT_OF_BOUNDS, g, wrong, f"scratch byte {int(address[wrong][0])} of {limit}")
        return None
    return np.where(g.mask, address, 0)


def _bind_load(dwords: int) -> Binder:
    def bind(statement: Statement, context: Context) -> Instruction:
        registers, parts, offset = _operands(statement, dwords, stores=False)

        def run(g: WaveGroup) -> None:
            address = _address(g, parts, offset, 4 * dwords, 4)
            if address is not None:
                lanes = np.arange(LANES)
                for number, register in enumerate(registers):
                    place = ((address >> 2) + number, g.waves[:, None], lanes)
                    np.copyto(g.u[register], g.env.scratch[place], where=g.mask)
                    old = g.tracking.undefined.get(register, _ZERO)
                    g.tracking.set_undefined(register, np.where(g.mask, g.env.scratch_undefined[place], old))
            g.tracking.issue("vm", Pending((Entry(registers, g.waves),)))

        return _moves(statement, run, parts, (), registers)

    return bind


def _bind_store(dwords: int) -> Binder:
    def bind(statement: Statement, context: Context) -> Instruction:
        registers, parts, offset = _operands(statement, dwords, stores=True)

        def run(g: WaveGroup) -> None:
            address = _address(g, parts, offset, 4 * dwords, 4)
            if address is not None:
                waves = np.broadcast_to(g.waves[:, None], g.mask.shape)[g.mask]
                lanes = np.broadcast_to(np.arange(LANES), g.mask.shape)[g.mask]
                for number, register in enumerate(registers):
                    place = ((address[g.mask] >> 2) + number, waves, lanes)
                    g.env.scratch[place] = g.u[register][g.mask]
                    bits = np.broadcast_to(g.tracking.undefined.get(register, _ZERO), g.mask.shape)
                    g.env.scratch_undefined[place] = bits[g.mask]
            g.tracking.issue("vm", Pending((Entry((), g.waves),)))

        return _moves(statement, run, parts, registers, ())

    return bind


def _place(g: WaveGroup, parts: Parts, offset: int, size: int) -> tuple[tuple[Array, Array, Array], Array] | None:
    """Where each lane's byte or word lies (dword, wave, lane), and by how many bits it is shifted there."""
    address = _address(g, parts, offset, size, size)
    if address is None:
        return None
    lanes = np.broadcast_to(np.arange(LANES), address.shape)
    place = (address >> 2, np.broadcast_to(g.waves[:, None], address.shape), lanes)
    return place, (8 * (address & 3)).astype(np.uint32)


def _bind_narrow_load(width: Width) -> Binder:
    def bind(statement: Statement, context: Context) -> Instruction:
        (register,), parts, offset = _operands(statement, 1, stores=False)

        def run(g: WaveGroup) -> None:
            found = _place(g, parts, offset, width.size)
            if found is not None:
                place, shift = found
                values, undefined = (
                    _bytes(words[place] >> shift, width) for words in (g.env.scratch, g.env.scratch_undefined)
                )
                write_loaded(g, register, values, undefined, width)
            g.tracking.issue("vm", Pending((Entry((register,), g.waves),)))

        return _moves(statement, run, parts, (), (register,), half_preserve(width))

    return bind


def _bytes(word: Array, width: Width) -> Array:
    """The low bytes of ``word`` [waves, 64] as uint8 [waves, 64, size]."""
    return np.ascontiguousarray(word).view(np.uint8).reshape(*word.shape, 4)[:, :, : width.size]


def _bind_narrow_store(width: Width) -> Binder:
    def bind(statement: Statement, context: Context) -> Instruction:
        (register,), parts, offset = _operands(statement, 1, stores=True)
        low, ones = np.uint32(16 if width.half == "hi" else 0), np.uint32((1 << 8 * width.size) - 1)

        def run(g: WaveGroup) -> None:
            found = _place(g, parts, offset, width.size)
            if found is not None:
                place, shift = found
                undefined = np.broadcast_to(g.tracking.undefined.get(register, _ZERO), g.mask.shape)
                for words, row in ((g.env.scratch, g.u[register]), (g.env.scratch_undefined, undefined)):
                    kept = words[place] & ~(ones << shift)
                    chosen = tuple(axis[g.mask] for axis in place)
                    words[chosen] = (kept | (((row >> low) & ones) << shift))[g.mask]
            g.tracking.issue("vm", Pending((Entry((), g.waves),)))

        return _moves(statement, run, parts, (register,), ())

    return bind


_SUFFIXES = (("dword", 1), ("dwordx2", 2), ("dwordx3", 3), ("dwordx4", 4))
BINDERS: Mapping[str, Binder] = MappingProxyType(
    {f"scratch_load_{suffix}": _bind_load(dwords) for suffix, dwords in _SUFFIXES}
    | {f"scratch_store_{suffix}": _bind_store(dwords) for suffix, dwords in _SUFFIXES}
    | {f"scratch_load_{name}": _bind_narrow_load(width) for name, width in LOADS.items() if width.size < 4}
    | {f"scratch_store_{name}": _bind_narrow_store(width) for name, width in STORES.items() if width.size < 4}
)
