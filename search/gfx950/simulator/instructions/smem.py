"""Scalar memory: S_LOAD and S_BUFFER_LOAD.

MI300 ISA guide, section "Scalar memory operations": address = base + offset, or + SGPR, or both; results return out of
order, so only ``s_waitcnt lgkmcnt(0)`` covers them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from search.gfx950.simulator.decode.bind import Binder, Context, check_modifiers, coherent, make_access
from search.gfx950.simulator.decode.op import Instruction, InstructionClass
from search.gfx950.simulator.decode.text import Statement
from search.gfx950.simulator.instructions.vmem import immediate
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import FindingKind, UnknownInstructionError
from search.gfx950.simulator.state.registers import SGPR, parse_operand
from search.gfx950.simulator.state.state import WaveGroup
from search.gfx950.simulator.state.tracking import Entry, Pending

_BASE_MASK = np.uint64((1 << 48) - 1)


def _bind_load(dwords: int, buffer: bool) -> Binder:
    def bind(statement: Statement, context: Context) -> Instruction:
        check_modifiers(statement, frozenset({"offset", "glc"}))
        target, base = (parse_operand(text) for text in statement.operands[:2])
        if target.index is None or base.index is None or target.count != dwords or base.count != (4 if buffer else 2):
            raise UnknownInstructionError(f"{dwords} registers and a base expected")
        extra = parse_operand(statement.operands[2])
        constant = immediate(statement) + (int(extra.text, 0) if extra.index is None else 0)
        registers = tuple(range(target.index, target.index + dwords))
        reads = [*range(base.index, base.index + base.count)] + ([extra.index] if extra.index is not None else [])
        run = coherent(_loader(base.index, extra.index, constant, registers, buffer), set(registers))
        return make_access(statement, run, reads, kind=InstructionClass.SCALAR, counter="lgkm", writes=registers)

    return bind


def _loader(
    base: int, offset: int | None, constant: int, registers: tuple[int, ...], buffer: bool
) -> Callable[[WaveGroup], None]:
    first = registers[0] - SGPR

    def run(g: WaveGroup) -> None:
        address = (g.read64(base) & _BASE_MASK).view(np.int64) + constant
        if offset is not None:
            address = address + g.u[offset]
        address = address & ~np.int64(3)
        words = _fetch(g, address, 4 * len(registers))
        if buffer:
            position = np.arange(len(registers)) * 4 + (address - (g.read64(base) & _BASE_MASK).view(np.int64))
            words = np.where(position + 3 < g.u[base + 2].astype(np.int64), words, np.uint32(0))
        g.scalars[:, first : first + len(registers)] = words
        g.tracking.issue("lgkm", Pending((Entry(registers, g.waves),), ordered=False))

    return run


def _fetch(g: WaveGroup, address: Array, size: int) -> Array:
    memory = g.env.memory
    inside = memory.accessible(address, size)
    if not inside.all():
        first = int(address[~inside][0])
        g.env.report(FindingKind.OUT_OF_BOUNDS, g, ~inside, f"{size} bytes at {memory.describe(first)}")
        words = np.zeros((g.count, size // 4), np.uint32)
        if inside.any():
            words[inside[:, 0]] = memory.gather(address[inside], size)[0].view(np.uint32)
        return words
    g.env.global_read_bytes += size * g.count
    values, _ = memory.gather(address[:, 0], size)
    return np.ascontiguousarray(values).view(np.uint32)


BINDERS: Mapping[str, Binder] = MappingProxyType(
    {
        f"s_{prefix}load_dword{suffix}": _bind_load(dwords, bool(prefix))
        for prefix in ("", "buffer_")
        for suffix, dwords in (("", 1), ("x2", 2), ("x4", 4), ("x8", 8), ("x16", 16))
    }
)
