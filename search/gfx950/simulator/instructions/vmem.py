"""Vector memory: buffer, global and flat loads, stores and LDS-direct loads.

MI300 ISA guide, section "Vector memory operations". Buffer addresses: base + soffset + offset + stride * index; without
swizzle an access is out of range where offset + stride * index >= num_records - soffset (bytes), each dword on its own:
loads give 0, stores vanish. That is no finding; an access in range that no argument's array covers is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from search.gfx950.simulator.decode.bind import Binder, Context, check_modifiers, make_access, resolve, vector_registers
from search.gfx950.simulator.decode.op import Instruction
from search.gfx950.simulator.decode.text import Statement
from search.gfx950.simulator.state.access import Access, Width, load_bytes, report_overtaken, store_bytes, write_loaded
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import FindingKind, UnknownInstructionError
from search.gfx950.simulator.state.registers import M0, Operand, parse_operand
from search.gfx950.simulator.state.state import LANES, WaveGroup
from search.gfx950.simulator.state.tracking import Entry, Pending

Addresses = Callable[[WaveGroup], Access]
CACHE_KEYS = frozenset({"sc0", "sc1", "nt", "glc", "slc", "scc"})
_BASE_MASK = np.uint64((1 << 48) - 1)
LOADS: Mapping[str, Width] = MappingProxyType(
    {
        "ubyte": Width(1), "sbyte": Width(1, True), "ushort": Width(2), "sshort": Width(2, True), "dword": Width(4),
        "dwordx2": Width(8), "dwordx3": Width(12), "dwordx4": Width(16), "ubyte_d16": Width(1, half="lo"),
        "ubyte_d16_hi": Width(1, half="hi"), "sbyte_d16": Width(1, True, "lo"), "sbyte_d16_hi": Width(1, True, "hi"),
        "short_d16": Width(2, half="lo"), "short_d16_hi": Width(2, half="hi"),
    }
)  # fmt: skip
STORES: Mapping[str, Width] = MappingProxyType(
    {
        "byte": Width(1), "short": Width(2), "dword": Width(4), "dwordx2": Width(8), "dwordx3": Width(12),
        "dwordx4": Width(16), "byte_d16_hi": Width(1, half="hi"), "short_d16_hi": Width(2, half="hi"),
    }
)  # fmt: skip


def immediate(statement: Statement, key: str = "offset") -> int:
    """The offset modifier as an integer, 0 if absent."""
    return int(statement.modifiers.get(key) or "0", 0)


def buffer_addresses(statement: Statement, operands: Sequence[Operand], context: Context) -> tuple[Addresses, set[int]]:
    """Address function of (vaddr, srsrc, soffset), and the registers it reads.

    Raises:
        UnknownInstructionError: Operands of the wrong form.
    """
    vaddr, resource, soffset = operands
    if resource.index is None or resource.count != 4:
        raise UnknownInstructionError(f"buffer resource expected, found {resource.text}")
    offset_register, index_register = _vaddr_registers(statement, vaddr)
    scalar_offset = resolve(soffset, "u32", context)
    constant_offset = immediate(statement)
    first = resource.index
    reads = {*range(first, first + 4)}
    reads |= {register for register in (offset_register, index_register) if register is not None}
    reads |= {scalar_offset} if soffset.index is not None else set()

    def compute(g: WaveGroup) -> Access:
        base = (g.read64(first) & _BASE_MASK).view(np.int64)
        records = g.u[first + 2].astype(np.int64)
        outer = g.u[scalar_offset].astype(np.int64)
        inner: Array = np.full((1, 1), constant_offset, np.int64)
        if offset_register is not None:
            inner = g.u[offset_register].astype(np.int64)
            if constant_offset:
                inner += constant_offset
        if index_register is None:
            return Access(base + (inner + outer), limit=records - outer, position=inner)
        stride = ((g.u[first + 1] >> np.uint32(16)) & np.uint32(0x3FFF)).astype(np.int64)
        index = g.u[index_register].astype(np.int64)
        linear = inner + stride * index
        if np.any(g.u[first + 1] >> np.uint32(31)):
            raise UnknownInstructionError("swizzled buffer resource")
        return Access(base + outer + linear, limit=records - outer, position=linear)

    return compute, reads


def _vaddr_registers(statement: Statement, vaddr: Operand) -> tuple[int | None, int | None]:
    offen, idxen = "offen" in statement.modifiers, "idxen" in statement.modifiers
    if offen and idxen:
        return (vaddr.index or 0) + 1, vaddr.index
    return (vaddr.index if offen else None), (vaddr.index if idxen else None)


def global_addresses(statement: Statement, operands: Sequence[Operand | None]) -> tuple[Addresses, set[int]]:
    """Address function of (vaddr, saddr or None for ``off``), and the registers it reads.

    Raises:
        UnknownInstructionError: Operands of the wrong form.
    """
    vaddr, saddr = operands
    offset = immediate(statement)
    if vaddr is None or vaddr.index is None:
        raise UnknownInstructionError("vector address expected")
    vector = vaddr.index
    if saddr is None:
        if vaddr.count != 2:
            raise UnknownInstructionError(f"64-bit address expected, found {vaddr.text}")
        return lambda g: Access(g.read64(vector).view(np.int64) + np.int64(offset)), {vector, vector + 1}
    if saddr.index is None or saddr.count != 2:
        raise UnknownInstructionError(f"64-bit base expected, found {saddr.text}")
    scalar = saddr.index
    return (
        lambda g: Access(g.read64(scalar).view(np.int64) + (g.u[vector].astype(np.int64) + offset)),
        {vector, scalar, scalar + 1},
    )


def _optional(text: str) -> Operand | None:
    return None if text in ("off", "null") else parse_operand(text)


def addresses(statement: Statement, texts: Sequence[str], context: Context) -> tuple[Addresses, set[int]]:
    """Address function of the operands after the data, and the registers it reads.

    Raises:
        UnknownInstructionError: Operands or modifiers of the wrong form.
    """
    family = statement.mnemonic.partition("_")[0]
    if family == "buffer":
        check_modifiers(statement, CACHE_KEYS | {"offset", "offen", "idxen", "lds"})
        vaddr = _optional(texts[0]) or Operand("off", None)
        return buffer_addresses(statement, [vaddr, parse_operand(texts[1]), parse_operand(texts[2])], context)
    check_modifiers(statement, CACHE_KEYS | {"offset"})
    if family == "flat":
        return global_addresses(statement, [_optional(texts[0]), None])
    return global_addresses(statement, [_optional(texts[0]), _optional(texts[1])])


def _counters(statement: Statement) -> tuple[str, ...]:
    return ("vm", "lgkm") if statement.mnemonic.startswith("flat_") else ("vm",)


def _bind_load(statement: Statement, context: Context, width: Width) -> Instruction:
    """A load into registers, or with ``lds`` one into LDS."""
    if "lds" in statement.modifiers:
        return _bind_direct(statement, context, width)
    registers = tuple(vector_registers(statement.operands[0], width.registers))
    compute, reads = addresses(statement, statement.operands[1:], context)
    counters = _counters(statement)

    def run(g: WaveGroup) -> None:
        values, undefined = load_bytes(g, compute(g), width.size)
        write_loaded(g, registers[0], values, undefined, width)
        for counter in counters:
            g.tracking.issue(counter, Pending((Entry(registers, g.waves),)))

    return make_access(statement, run, reads, writes=registers, preserve=half_preserve(width))


def half_preserve(width: Width) -> int:
    """Register bits that a 16-bit half load leaves alone."""
    return {"": 0, "lo": 0xFFFF0000, "hi": 0x0000FFFF}[width.half]


def _bind_direct(statement: Statement, context: Context, width: Width) -> Instruction:
    """An LDS-direct load: lane i writes ``width.size`` bytes at M0 + offset + i * size of its workgroup's LDS."""
    compute, reads = addresses(statement, statement.operands, context)
    reads = reads | {M0}
    constant = immediate(statement)
    lanes = np.arange(LANES, dtype=np.int64) * width.size

    def run(g: WaveGroup) -> None:
        env = g.env
        values, _ = load_bytes(g, compute(g), width.size)
        local = g.u[M0].astype(np.int64) + constant + lanes
        active = g.mask
        outside = active & (local + width.size > env.lds.size)
        if outside.any():
            env.report(FindingKind.LDS_OUT_OF_RANGE, g, outside, f"LDS-direct write beyond {env.lds.size} bytes")
            active = active & ~outside
        flat = env.lds.base[g.waves][:, None] + local
        report_overtaken(g, flat, active, width.size)
        record = env.lds.write(g.waves, flat, values, active, direct=True)
        env.lds_written_bytes += int(np.count_nonzero(active)) * width.size
        entry = Entry((), g.waves, partial(env.lds.finish, record))
        g.tracking.issue("vm", Pending((entry,), into_lds=True))

    return make_access(statement, run, reads)


def _bind_store(statement: Statement, context: Context, width: Width) -> Instruction:
    """A store from registers."""
    texts = list(statement.operands)
    position = 0 if statement.mnemonic.startswith("buffer_") else 1
    registers = vector_registers(texts.pop(position), width.registers)
    compute, reads = addresses(statement, texts, context)
    counters = _counters(statement)

    def run(g: WaveGroup) -> None:
        store_bytes(g, compute(g), stored_bytes(g, registers[0], width))
        landing = g.env.handover.landing(g.env.memory.clock)
        for counter in counters:
            g.tracking.issue(counter, Pending((Entry((), g.waves, landing),)))

    return make_access(statement, run, reads, stored=registers, lanes=compute, store_bits=store_bits(width))


def store_bits(width: Width) -> int:
    """Register bits that a store of ``width`` reads."""
    bits = (1 << 8 * min(width.size, 4)) - 1
    return bits << 16 if width.half == "hi" else bits


def stored_bytes(g: WaveGroup, data: int, width: Width) -> Array:
    """Bytes of the data registers, uint8 [waves, 64, size]."""
    if width.size >= 4:
        block = g.block(data, width.registers).transpose(1, 2, 0)
        return np.ascontiguousarray(block).view(np.uint8)
    word = g.u[data] >> np.uint32(16) if width.half == "hi" else g.u[data]
    return np.ascontiguousarray(word).view(np.uint8).reshape(g.count, LANES, 4)[:, :, : width.size]


_FAMILIES = ("buffer", "global", "flat")
_DIRECT = ("ubyte", "sbyte", "ushort", "sshort", "dword", "dwordx3", "dwordx4")
BINDERS: Mapping[str, Binder] = MappingProxyType(
    {f"{family}_load_{name}": partial(_bind_load, width=width) for family in _FAMILIES for name, width in LOADS.items()}
    | {
        f"{family}_store_{name}": partial(_bind_store, width=width)
        for family in _FAMILIES
        for name, width in STORES.items()
    }
    | {f"global_load_lds_{name}": partial(_bind_direct, width=LOADS[name]) for name in _DIRECT}
)
