"""Read-modify-write on global memory and LDS.

MI300 ISA guide, buffer, global, flat and DS atomics. Lanes that name one address take turns in lane order (the
hardware's order is not defined, so float sums may differ in rounding). ``sc0`` (DS: ``_rtn_``) returns the old value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.bind import Binder, Context, check_modifiers, make_instruction
from search.gfx950.simulator.decode.op import Instruction, InstructionClass
from search.gfx950.simulator.decode.text import Statement
from search.gfx950.simulator.decode.values import HALVES, bf16_bits, paired
from search.gfx950.simulator.instructions.ds import locate
from search.gfx950.simulator.instructions.valu_float import larger, smaller
from search.gfx950.simulator.instructions.vmem import addresses, immediate
from search.gfx950.simulator.state.access import Access, checked_store
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import FindingKind, UnknownInstructionError
from search.gfx950.simulator.state.handover import Completion
from search.gfx950.simulator.state.lds import NEVER_WRITTEN
from search.gfx950.simulator.state.registers import Operand, parse_operand
from search.gfx950.simulator.state.state import LANES, WaveGroup
from search.gfx950.simulator.state.tracking import Entry, Pending

Combine = Callable[[Array, Array], Array]


def _add_f32(old: Array, value: Array) -> Array:
    """f32 sum."""
    return (old.view(np.float32) + value.view(np.float32)).view(np.uint32)


def _add_f64(old: Array, value: Array) -> Array:
    """f64 sum of register pairs."""
    total = np.ascontiguousarray(old).view(np.float64) + np.ascontiguousarray(value).view(np.float64)
    return np.asarray(total.view(np.uint32))


def _pk_add_bf16(old: Array, value: Array) -> Array:
    """Two bf16 sums, each rounded to nearest even."""
    sums = (x + y for x, y in zip(HALVES["bf16"](old), HALVES["bf16"](value), strict=True))
    return paired(*map(bf16_bits, sums))


def _pk_add_f16(old: Array, value: Array) -> Array:
    """Two f16 sums."""
    halves = [np.ascontiguousarray(words).view(np.float16) for words in (old, value)]
    return (halves[0] + halves[1]).view(np.uint32)


def _increment(old: Array, value: Array) -> Array:
    """One more, 0 from the value on."""
    return np.asarray(np.where(old >= value, old.dtype.type(0), old + old.dtype.type(1)))


def _decrement(old: Array, value: Array) -> Array:
    """One less, the value from 0 and from above it."""
    return np.asarray(np.where((old == 0) | (old > value), value, old - old.dtype.type(1)))


def _wide(operation: Callable[[Array, Array], Array], kind: Any = np.uint64) -> Combine:
    """``operation`` on pairs of registers as 64-bit numbers of type ``kind``."""

    def combine(old: Array, value: Array) -> Array:
        x, y = (np.ascontiguousarray(words).view(kind) for words in (old, value))
        return np.ascontiguousarray(operation(x, y)).view(np.uint32)

    return combine


def _float(operation: Callable[[Array, Array], Array]) -> Combine:
    return lambda old, value: np.asarray(operation(old.view(np.float32), value.view(np.float32)).view(np.uint32))


def _swap_if_equal(old: Array, value: Array) -> Array:
    """The first half of the data where memory holds the second half."""
    new, expected = np.split(value, 2, axis=-1)
    return np.where((old == expected).all(axis=-1, keepdims=True), new, old)


def _signed(operation: Callable[[Array, Array], Array]) -> Combine:
    return lambda old, value: operation(old.view(np.int32), value.view(np.int32)).view(np.uint32)


def _swap(old: Array, value: Array) -> Array:
    """The new value."""
    return value


COMBINE: Mapping[str, tuple[int, Combine]] = MappingProxyType(
    {
        "add_f32": (1, _add_f32), "add_f64": (2, _add_f64), "pk_add_bf16": (1, _pk_add_bf16),
        "pk_add_f16": (1, _pk_add_f16),
        "add": (1, np.add), "sub": (1, np.subtract), "and": (1, np.bitwise_and), "or": (1, np.bitwise_or),
        "xor": (1, np.bitwise_xor), "smin": (1, _signed(np.minimum)), "smax": (1, _signed(np.maximum)),
        "umin": (1, np.minimum), "umax": (1, np.maximum), "swap": (1, _swap), "swap_x2": (2, _swap),
        "inc": (1, _increment), "dec": (1, _decrement),
        "cmpswap": (1, _swap_if_equal), "cmpswap_x2": (2, _swap_if_equal),
        "min_f64": (2, _wide(smaller, np.float64)), "max_f64": (2, _wide(larger, np.float64)),
        "add_x2": (2, _wide(np.add)), "sub_x2": (2, _wide(np.subtract)), "and_x2": (2, _wide(np.bitwise_and)),
        "or_x2": (2, _wide(np.bitwise_or)), "xor_x2": (2, _wide(np.bitwise_xor)),
        "smin_x2": (2, _wide(np.minimum, np.int64)), "smax_x2": (2, _wide(np.maximum, np.int64)),
        "umin_x2": (2, _wide(np.minimum)), "umax_x2": (2, _wide(np.maximum)), "inc_x2": (2, _wide(_increment)),
        "dec_x2": (2, _wide(_decrement)),
    }
)  # fmt: skip
_DS_NAMES: Mapping[str, tuple[int, Combine]] = MappingProxyType(
    {
        "add_u32": COMBINE["add"], "sub_u32": COMBINE["sub"], "and_b32": COMBINE["and"], "or_b32": COMBINE["or"],
        "xor_b32": COMBINE["xor"], "min_i32": COMBINE["smin"], "max_i32": COMBINE["smax"], "min_u32": COMBINE["umin"],
        "max_u32": COMBINE["umax"], "add_f32": COMBINE["add_f32"], "pk_add_bf16": COMBINE["pk_add_bf16"],
        "pk_add_f16": COMBINE["pk_add_f16"], "inc_u32": COMBINE["inc"], "dec_u32": COMBINE["dec"],
        "cmpst_b32": COMBINE["cmpswap"], "rsub_u32": (1, lambda old, value: value - old),
        "min_f32": (1, _float(smaller)), "max_f32": (1, _float(larger)),
        "add_u64": COMBINE["add_x2"], "sub_u64": COMBINE["sub_x2"], "and_b64": COMBINE["and_x2"],
        "or_b64": COMBINE["or_x2"], "xor_b64": COMBINE["xor_x2"], "min_i64": COMBINE["smin_x2"],
        "max_i64": COMBINE["smax_x2"], "min_u64": COMBINE["umin_x2"], "max_u64": COMBINE["umax_x2"],
        "add_f64": COMBINE["add_f64"], "min_f64": COMBINE["min_f64"], "max_f64": COMBINE["max_f64"],
        "inc_u64": COMBINE["inc_x2"], "dec_u64": COMBINE["dec_x2"], "cmpst_b64": COMBINE["cmpswap_x2"],
        "rsub_u64": (2, _wide(lambda old, value: value - old)),
    }
)  # fmt: skip


def turns(address: Array) -> Iterator[Array]:
    """Index sets in which every address is unique, in lane order."""
    order = np.argsort(address, kind="stable")
    ordered = address[order]
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    start = np.maximum.accumulate(np.where(first, np.arange(len(ordered)), 0))
    rank = np.arange(len(ordered)) - start
    for turn in range(int(rank.max()) + 1 if len(rank) else 0):
        yield order[rank == turn]


def _lane_words(g: WaveGroup, data: int, dwords: int) -> Array:
    return np.ascontiguousarray(g.block(data, dwords).transpose(1, 2, 0))


def _global_update(
    g: WaveGroup, access: Access, combine: Combine, data: range, dwords: int, *, returns: bool
) -> tuple[Array, Completion]:
    """Old values uint32 [waves, 64, dwords], and what happens once waves have waited for them."""
    size = 4 * dwords
    inside = access.in_range(size)
    wanted = g.mask if inside is None else g.mask & inside
    address = np.broadcast_to(access.address, (g.count, LANES))
    old = np.zeros((g.count, LANES, dwords), np.uint32)
    if not wanted.any():
        return old, lambda waves: None
    active, _ = checked_store(g, address, wanted, size)
    where = address[active]
    values, result = _lane_words(g, data[0], len(data))[active], old[active]
    memory = g.env.memory
    waves = np.broadcast_to(g.waves[:, None], active.shape)[active]
    for turn in turns(where):
        before, undefined = memory.gather(where[turn], size)
        if undefined is not None and undefined.any():
            place = memory.describe(int(where[turn][0]))
            g.env.report(FindingKind.UNINITIALISED_ATOMIC, g, active, f"{place} was never written")
        words = np.ascontiguousarray(before).view(np.uint32).reshape(-1, dwords)
        result[turn] = words
        memory.scatter(where[turn], np.ascontiguousarray(combine(words, values[turn])).view(np.uint8).reshape(-1, size))
    memory.note(where, size, waves, result[:, 0])
    old[active] = result
    g.env.global_read_bytes += size * len(where)
    g.env.global_written_bytes += size * len(where)
    return old, g.env.handover.exchange(where, waves, returns=returns)


def _bind_global(dwords: int, combine: Combine) -> Binder:
    def bind(statement: Statement, context: Context) -> Instruction:
        texts = list(statement.operands)
        buffer = statement.mnemonic.startswith("buffer_")
        returns = "sc0" in statement.modifiers
        target = parse_operand(texts.pop(0)) if returns and not buffer else None
        operand = parse_operand(texts.pop(0 if buffer else 1))
        target = operand if returns and buffer else target
        count = 2 * dwords if combine is _swap_if_equal else dwords
        if operand.index is None or not operand.is_vector or operand.count != count:
            raise UnknownInstructionError(f"{count} data registers expected, found {operand.text}")
        compute, reads = addresses(statement, texts, context)
        data = range(operand.index, operand.index + count)
        first = target.index if target is not None else None
        results = () if first is None else tuple(range(first, first + dwords))

        def run(g: WaveGroup) -> None:
            old, complete = _global_update(g, compute(g), combine, data, dwords, returns=returns)
            if results:
                np.copyto(g.block(results[0], dwords), old.transpose(2, 0, 1), where=g.mask)
            g.tracking.issue("vm", Pending((Entry(results, g.waves, complete),)))

        registers = frozenset(data)
        return make_instruction(
            statement, run, InstructionClass.GLOBAL, (*reads, *registers), results, counter="vm",
            sinks=(("address", frozenset(reads)), ("store", registers)), lanes=compute,
        )  # fmt: skip

    return bind


def _bind_ds(combine: Combine, returns: bool, dwords: int = 1) -> Binder:
    def bind(statement: Statement, context: Context) -> Instruction:
        check_modifiers(statement, frozenset({"offset"}))
        operands = [parse_operand(text) for text in statement.operands]
        target = _registers(operands.pop(0), dwords) if returns else ()
        (address,) = _registers(operands.pop(0), 1)
        # The value to compare with stands first, and behind the new one in global memory's instructions.
        data = tuple(register for operand in reversed(operands) for register in _registers(operand, dwords))
        if len(data) != dwords * (2 if combine is _swap_if_equal else 1):
            raise UnknownInstructionError(f"{len(statement.operands)} operands")
        offset = immediate(statement)

        def run(g: WaveGroup) -> None:
            old, record = _ds_update(g, address, offset, data, combine, dwords)
            if target:
                np.copyto(g.block(target[0], dwords), old.transpose(2, 0, 1), where=g.mask)
            g.tracking.issue("lgkm", Pending((Entry(target, g.waves, record),)))

        return make_instruction(
            statement, run, InstructionClass.LDS, (address, *data), target, counter="lgkm",
            sinks=(("address", frozenset({address})), ("store", frozenset(data))),
        )  # fmt: skip

    return bind


def _registers(operand: Operand, count: int) -> tuple[int, ...]:
    if operand.index is None or not operand.is_vector or operand.count != count:
        raise UnknownInstructionError(f"{count} vector registers expected, found {operand.text}")
    return tuple(range(operand.index, operand.index + count))


def _ds_update(
    g: WaveGroup, address: int, offset: int, data: tuple[int, ...], combine: Combine, dwords: int
) -> tuple[Array, Callable[[Array], None]]:
    """(old values uint32 [waves, 64, dwords], what the wait for them does)."""
    lds, size = g.env.lds, 4 * dwords
    flat, active = locate(g, address, offset, size, size)
    old = np.zeros((g.count, LANES, dwords), np.uint32)
    where, values = flat[active], np.stack([g.u[register] for register in data], axis=-1)[active]
    result = old[active]
    for turn in turns(where):
        raw, shadow = lds.read(where[turn], size)
        if np.any(shadow == NEVER_WRITTEN):
            g.env.report(FindingKind.UNINITIALISED_ATOMIC, g, active, "changes LDS that was never written")
        words = np.ascontiguousarray(raw).view(np.uint32).reshape(-1, dwords)
        result[turn] = words
        lds.overwrite(where[turn], np.ascontiguousarray(combine(words, values[turn])).view(np.uint8).reshape(-1, size))
    old[active] = result
    final, _ = lds.read(np.where(active, flat, lds.base[g.waves][:, None]), size)
    record = lds.write(g.waves, flat, final, active)
    g.env.lds_read_bytes += size * len(where)
    g.env.lds_written_bytes += size * len(where)
    return old, lambda waves: lds.finish(record, waves)


def _ds_binders() -> Iterator[tuple[str, Binder]]:
    """Each DS atomic that returns nothing, and its twin that returns the old value."""
    for name, (dwords, combine) in _DS_NAMES.items():
        operation, _, kind = name.rpartition("_")
        yield f"ds_{name}", _bind_ds(combine, False, dwords)
        yield f"ds_{operation}_rtn_{kind}", _bind_ds(combine, True, dwords)
    for bits, dwords in ((32, 1), (64, 2)):
        yield f"ds_wrxchg_rtn_b{bits}", _bind_ds(_swap, True, dwords)


BINDERS: Mapping[str, Binder] = MappingProxyType(
    {
        f"{family}_atomic_{name}": _bind_global(dwords, combine)
        for family in ("buffer", "global", "flat")
        for name, (dwords, combine) in COMBINE.items()
    }
    | dict(_ds_binders())
)
