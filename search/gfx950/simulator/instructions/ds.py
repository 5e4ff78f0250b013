"""LDS instructions: reads, writes, transposing reads, atomics, and the lane permutes that share their encoding.

MI300 ISA guide, section "Data share operations"; LLVM ``DSInstructions.td`` for ``ds_read_b64_tr_*`` of gfx950.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from search.gfx950.simulator.decode.bind import Binder, Context, check_modifiers, make_access, vector_registers
from search.gfx950.simulator.decode.op import Instruction, InstructionClass
from search.gfx950.simulator.decode.text import Statement
from search.gfx950.simulator.instructions.vmem import half_preserve, immediate, store_bits, stored_bytes
from search.gfx950.simulator.state.access import Width, report_overtaken, write_loaded
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import FindingKind, UnknownInstructionError
from search.gfx950.simulator.state.lds import IN_FLIGHT, NEVER_WRITTEN
from search.gfx950.simulator.state.state import LANES, WaveGroup
from search.gfx950.simulator.state.tracking import Entry, Pending

_READS: Mapping[str, Width] = MappingProxyType(
    {
        "u8": Width(1), "i8": Width(1, True), "u16": Width(2), "i16": Width(2, True), "b32": Width(4), "b64": Width(8),
        "b96": Width(12), "b128": Width(16), "u8_d16": Width(1, half="lo"), "u8_d16_hi": Width(1, half="hi"),
        "i8_d16": Width(1, True, "lo"), "i8_d16_hi": Width(1, True, "hi"), "u16_d16": Width(2, half="lo"),
        "u16_d16_hi": Width(2, half="hi"),
    }
)  # fmt: skip
_WRITES: Mapping[str, Width] = MappingProxyType(
    {
        "b8": Width(1), "b16": Width(2), "b32": Width(4), "b64": Width(8), "b96": Width(12), "b128": Width(16),
        "b8_d16_hi": Width(1, half="hi"), "b16_d16_hi": Width(2, half="hi"),
    }
)  # fmt: skip
_PAIRS = tuple((far, size, size * step) for far, step in (("", 1), ("st64", 64)) for size in (4, 8))


def locate(g: WaveGroup, address: int, offset: int, size: int, align: int) -> tuple[Array, Array]:
    """(flat offsets int64 [waves, 64], lanes that may access) of an LDS access, with its findings."""
    lds = g.env.lds
    local = g.u[address].astype(np.int64) + offset if offset else g.u[address].astype(np.int64)
    active = g.mask
    if g.full:
        highest, bits = int(local.max()), int(np.bitwise_or.reduce(local, axis=None))
    else:
        chosen = local[active]
        highest, bits = (int(chosen.max()), int(np.bitwise_or.reduce(chosen))) if chosen.size else (0, 0)
    if bits & (align - 1):
        wrong = active & ((local & (align - 1)) != 0)
        g.env.report(FindingKind.MISALIGNED_LDS, g, wrong, f"LDS byte {int(local[wrong][0])} is no multiple of {align}")
    if highest + size > lds.size:
        outside = active & (local + size > lds.size)
        first = int(local[outside][0])
        g.env.report(FindingKind.LDS_OUT_OF_RANGE, g, outside, f"LDS bytes {first}…{first + size - 1} of {lds.size}")
        active = active & ~outside
    if active is not g.mask or not g.full:
        local = np.where(active, local, 0)
    if g.now not in g.env.recording.footprints:
        g.env.recording.note_local(g.now, g.waves, local, active, size)
    return local + lds.base[g.waves][:, None], active


def read_lds(g: WaveGroup, flat: Array, active: Array, size: int) -> tuple[Array, Array | None]:
    """Values uint8 [waves, 64, size] and undefined bits or None, with race and wait findings."""
    env = g.env
    values, shadow = env.lds.read(flat, size)
    env.lds.note_read(g.waves, flat, active, size)
    env.lds_read_bytes += size * (flat.size if g.full else int(np.count_nonzero(active)))
    if not shadow.any():
        return values, None
    return values, _inspect(g, shadow, active)


def _inspect(g: WaveGroup, shadow: Array, active: Array) -> Array | None:
    env = g.env
    shadow = np.where(active[:, :, None], shadow, np.uint8(0))
    in_flight = shadow == IN_FLIGHT
    if in_flight.any():
        env.report(FindingKind.LDS_READ_BEFORE_WAIT, g, in_flight, "reads LDS that a load into LDS has not reached yet")
    own = (env.wave_in_group[g.waves] + 1).astype(np.uint8)[:, None, None]
    foreign = (shadow != 0) & (shadow < IN_FLIGHT) & (shadow != own)
    if foreign.any():
        writer = int(shadow[foreign][0]) - 1
        env.report(FindingKind.LDS_RACE, g, foreign, f"reads LDS that wave {writer} wrote, with no barrier in between")
    never = shadow == NEVER_WRITTEN
    return np.where(never, np.uint8(0xFF), np.uint8(0)) if never.any() else None


def _bind_read(width: Width, stride: int = 0, arrange: Callable[[Array], Array] | None = None) -> Binder:
    """A value, or with a ``stride`` two, whose offsets count that many bytes; ``arrange`` changes their bytes."""
    keys, align = _offset_keys(stride), width.size & -width.size

    def bind(statement: Statement, context: Context) -> Instruction:
        check_modifiers(statement, frozenset(keys))
        registers = vector_registers(statement.operands[0], len(keys) * width.registers)
        (address,) = vector_registers(statement.operands[1], 1)
        offsets = [immediate(statement, key) * max(stride, 1) for key in keys]

        def run(g: WaveGroup) -> None:
            parts = []
            for offset in offsets:
                flat, active = locate(g, address, offset, width.size, align)
                parts.append(read_lds(g, flat, active, width.size))
            for data, (values, undefined) in zip(registers[:: width.registers], parts, strict=True):
                write_loaded(g, data, values if arrange is None else arrange(values), undefined, width)
            g.tracking.issue("lgkm", Pending((Entry(tuple(registers), g.waves),)))

        return _access(statement, run, (address,), writes=registers, preserve=half_preserve(width))

    return bind


def _offset_keys(stride: int) -> tuple[str, ...]:
    return ("offset0", "offset1") if stride else ("offset",)


_access = partial(make_access, kind=InstructionClass.LDS, counter="lgkm")


def undefined_bytes(g: WaveGroup, data: int, width: Width) -> Array | None:
    """Undefined bits of the data registers as bytes uint8 [waves, 64, size]; None: all defined."""
    tracked = g.tracking.undefined
    registers = range(data, data + width.registers)
    if tracked.keys().isdisjoint(registers):
        return None
    zero = np.zeros((1, 1), np.uint32)
    rows = [np.broadcast_to(tracked.get(register, zero), (g.count, LANES)) for register in registers]
    if width.half == "hi":
        rows = [row >> np.uint32(16) for row in rows]
    raw = np.ascontiguousarray(np.stack(rows, axis=-1)).view(np.uint8)
    return raw[:, :, : width.size]


def _write(g: WaveGroup, address: int, offset: int, data: int, width: Width) -> Entry:
    """Write the data registers; what is left to do once the write has been waited for."""
    env = g.env
    flat, active = locate(g, address, offset, width.size, width.size & -width.size)
    report_overtaken(g, flat, active, width.size)
    record = env.lds.write(g.waves, flat, stored_bytes(g, data, width), active)
    undefined = undefined_bytes(g, data, width)
    if undefined is not None:
        env.lds.mark(flat, undefined, active)
    env.lds_written_bytes += width.size * int(np.count_nonzero(active))
    return Entry((), g.waves, partial(env.lds.finish, record))


def _bind_write(width: Width, stride: int = 0) -> Binder:
    """A value, or with a ``stride`` two, whose offsets count that many bytes: one operation."""
    keys = _offset_keys(stride)

    def bind(statement: Statement, context: Context) -> Instruction:
        check_modifiers(statement, frozenset(keys))
        (address,) = vector_registers(statement.operands[0], 1)
        data = [vector_registers(text, width.registers) for text in statement.operands[1 : 1 + len(keys)]]
        offsets = [immediate(statement, key) * max(stride, 1) for key in keys]

        def run(g: WaveGroup) -> None:
            entries = [_write(g, address, offset, one[0], width) for offset, one in zip(offsets, data, strict=True)]
            g.tracking.issue("lgkm", Pending(tuple(entries)))

        reads = [register for one in data for register in one]
        return _access(statement, run, (address,), reads=reads, store_bits=store_bits(width))

    return bind


def transposed(values: Array, bits: int) -> Array:
    """What DS_READ_B64_TR_Bn makes of the bytes that the lanes read, uint8 [waves, 64, 8].

    16 lanes read 8 bytes each, in lane order rows of 16 elements of ``bits`` bits; lane l gets element l of every row.
    """
    waves = values.shape[0]
    raw = values
    if bits == 4:
        raw = np.stack([values & 15, values >> 4], axis=-1)
    elements = np.ascontiguousarray(raw).reshape(waves, 4, -1).view(np.uint16 if bits == 16 else np.uint8)
    turned = np.ascontiguousarray(elements.reshape(waves, 4, -1, 16).transpose(0, 1, 3, 2))
    if bits == 4:
        turned = turned[..., 0::2] | (turned[..., 1::2] << 4)
    return np.ascontiguousarray(turned).view(np.uint8).reshape(waves, LANES, 8)


def _move(g: WaveGroup, destination: int, data: int, mover: Callable[[Array], Array]) -> None:
    """Write ``mover`` of the data row, and of its undefined bits, to active lanes of the destination."""
    undefined = g.tracking.undefined
    bits = undefined.get(data)
    moved_bits = None if bits is None else mover(np.broadcast_to(bits, (g.count, LANES)))
    np.copyto(g.u[destination], mover(g.u[data]), where=g.mask)
    if moved_bits is not None:
        old = undefined.get(destination, np.zeros((1, 1), np.uint32))
        g.tracking.set_undefined(destination, np.where(g.mask, moved_bits, old))
    g.tracking.issue("lgkm", Pending((Entry((destination,), g.waves),)))


def _lanes_named(g: WaveGroup, address: int, offset: int) -> Array:
    return np.asarray((((g.u[address] + np.uint32(offset)) >> np.uint32(2)) & np.uint32(63)).astype(np.int64))


def _bind_bpermute(statement: Statement, context: Context) -> Instruction:
    """DS_BPERMUTE_B32: D = data of lane (address + offset) / 4 mod 64; 0 where that lane is inactive."""
    check_modifiers(statement, frozenset({"offset"}))
    destination, address, data = (vector_registers(text, 1)[0] for text in statement.operands)
    offset = immediate(statement)

    def run(g: WaveGroup) -> None:
        lane = _lanes_named(g, address, offset)
        if g.full:
            _move(g, destination, data, lambda row: np.take_along_axis(row, lane, axis=1))
        else:
            on = np.take_along_axis(g.mask, lane, axis=1)
            _move(g, destination, data, lambda row: np.where(on, np.take_along_axis(row, lane, axis=1), np.uint32(0)))

    return _access(statement, run, (address,), reads=(data,), writes=(destination,))


def _bind_permute(statement: Statement, context: Context) -> Instruction:
    """DS_PERMUTE_B32: lane (address + offset) / 4 mod 64 of D = data; the highest lane wins, others get 0."""
    check_modifiers(statement, frozenset({"offset"}))
    destination, address, data = (vector_registers(text, 1)[0] for text in statement.operands)
    offset = immediate(statement)

    def run(g: WaveGroup) -> None:
        lane = _lanes_named(g, address, offset)

        def push(row: Array) -> Array:
            result = np.zeros((g.count, LANES), np.uint32)
            for source in range(LANES):
                active = g.mask[:, source]
                result[active, lane[active, source]] = row[active, source]
            return result

        _move(g, destination, data, push)

    return _access(statement, run, (address,), reads=(data,), writes=(destination,))


def _bind_swizzle(statement: Statement, context: Context) -> Instruction:
    """DS_SWIZZLE_B32: quad permute (bit 15 of the offset) or and/or/xor masks within 32 lanes."""
    check_modifiers(statement, frozenset({"offset"}))
    destination, data = (vector_registers(text, 1)[0] for text in statement.operands)
    source = swizzle_source(swizzle_pattern(statement.modifiers.get("offset", "0")))

    def run(g: WaveGroup) -> None:
        _move(g, destination, data, lambda row: np.where(g.mask[:, source], row[:, source], np.uint32(0)))

    return _access(statement, run, (), reads=(data,), writes=(destination,))


def swizzle_pattern(text: str) -> int:
    """The offset of a DS_SWIZZLE_B32, written as a number or as one of LLVM's macros.

    Source: LLVM ``AMDGPUOperandSyntax``, "swizzle".

    Raises:
        UnknownInstructionError: Another macro.
    """
    found = re.fullmatch(r"swizzle\((\w+),([\d,]+)\)", text.replace(" ", ""))
    if found is None:
        return _number(text)
    match found[1], [int(value) for value in found[2].split(",")]:
        case "SWAP", [distance]:
            return distance << 10 | 0x1F
        case "REVERSE", [size]:
            return (size - 1) << 10 | 0x1F
        case "BROADCAST", [size, lane]:
            return lane << 5 | (0x1F & -size)
        case "QUAD_PERM", [first, second, third, fourth]:
            return 0x8000 | first | second << 2 | third << 4 | fourth << 6
    raise UnknownInstructionError(f"unknown pattern {text!r}")


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError as error:
        raise UnknownInstructionError(f"unknown pattern {text!r}") from error


def swizzle_source(pattern: int) -> Array:
    """Lane that each of 64 lanes reads for a DS_SWIZZLE_B32 offset."""
    lane = np.arange(LANES)
    if pattern & 0x8000:
        return np.asarray((lane & ~3) + np.array([pattern >> (2 * position) & 3 for position in range(4)])[lane & 3])
    and_mask, or_mask, xor_mask = pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31
    return np.asarray((lane & 32) | ((((lane & 31) & and_mask) | or_mask) ^ xor_mask))


BINDERS: Mapping[str, Binder] = MappingProxyType(
    {f"ds_read_{name}": _bind_read(width) for name, width in _READS.items()}
    | {f"ds_write_{name}": _bind_write(width) for name, width in _WRITES.items()}
    | {f"ds_read2{far}_b{8 * size}": _bind_read(Width(size), stride) for far, size, stride in _PAIRS}
    | {f"ds_write2{far}_b{8 * size}": _bind_write(Width(size), stride) for far, size, stride in _PAIRS}
    | {f"ds_read_b64_tr_b{bits}": _bind_read(Width(8), arrange=partial(transposed, bits=bits)) for bits in (4, 8, 16)}
    | {"ds_bpermute_b32": _bind_bpermute, "ds_permute_b32": _bind_permute, "ds_swizzle_b32": _bind_swizzle}
)
