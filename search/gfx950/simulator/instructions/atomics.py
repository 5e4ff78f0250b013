"""Read-modify-write on global memory and LDS.

MI300 ISA guide, buffer, global, flat and DS atomics. Lanes that name one address take turns in lane order (the
hardware's order is not defined, so float sums may differ in rounding). ``sc0`` (DS: ``_rtn_``) returns the old value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.bind import Binder, Context, check_modifiers, make_access, vector_registers
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
from search.gfx950.simulator.state.registers import parse_operand
from search.gfx950.simulator.state.state import LANES, WaveGroup
from search.gfx950.simulator.state.tracking import Entry, Pending

Combine = Callable[[Array, Array], Array]


def _pk_add_bf16(old: Array, value: Array) -> Array:
    """Two bf16 sums, each rounded to nearest even."""
    sums = (x + y for x, y in zip(HALVES["bf16"](old), HALVES["bf16"](value), strict=True))
    return paired(*map(bf16_bits, sums))


def _increment(old: Array, value: Array) -> Array:
    """One more, 0 from the value on."""
    return np.asarray(np.where(old >= value, old.dtype.type(0), old + old.dtype.type(1)))


def _decrement(old: Array, value: Array) -> Array:
    """One less, the value from 0 and from above it."""
    return np.asarray(np.where((old == 0) | (old > value), value, old - old.dtype.type(1)))


def _of(kind: Any, operation: Callable[[Array, Array], Array]) -> Combine:
    """``operation`` on registers, or pairs of them, as numbers of type ``kind``."""

    def combine(old: Array, value: Array) -> Array:
        x, y = (np.ascontiguousarray(words).view(kind) for words in (old, value))
        return np.ascontiguousarray(operation(x, y)).view(np.uint32)

    return combine


def _swap_if_equal(old: Array, value: Array) -> Array:
    """The first half of the data where memory holds the second half."""
    new, expected = np.split(value, 2, axis=-1)
    return np.where((old == expected).all(axis=-1, keepdims=True), new, old)


def _swap(old: Array, value: Array) -> Array:
    """The new value."""
    return value


_i32, _u64, _i64, _f32, _f64 = np.int32, np.uint64, np.int64, np.float32, np.float64
COMBINE: Mapping[str, tuple[int, Combine]] = MappingProxyType(  # by name: registers of a number, operation
    {
        "add_f32": (1, _of(_f32, np.add)), "add_f64": (2, _of(_f64, np.add)), "pk_add_bf16": (1, _pk_add_bf16),
        "pk_add_f16": (1, _of(np.float16, np.add)),
        "add": (1, np.add), "sub": (1, np.subtract), "and": (1, np.bitwise_and), "or": (1, np.bitwise_or),
        "xor": (1, np.bitwise_xor), "smin": (1, _of(_i32, np.minimum)), "smax": (1, _of(_i32, np.maximum)),
        "umin": (1, np.minimum), "umax": (1, np.maximum), "swap": (1, _swap), "swap_x2": (2, _swap),
        "inc": (1, _increment), "dec": (1, _decrement),
        "cmpswap": (1, _swap_if_equal), "cmpswap_x2": (2, _swap_if_equal),
        "min_f64": (2, _of(_f64, smaller)), "max_f64": (2, _of(_f64, larger)),
        "add_x2": (2, _of(_u64, np.add)), "sub_x2": (2, _of(_u64, np.subtract)),
        "and_x2": (2, _of(_u64, np.bitwise_and)), "or_x2": (2, _of(_u64, np.bitwise_or)),
        "xor_x2": (2, _of(_u64, np.bitwise_xor)), "smin_x2": (2, _of(_i64, np.minimum)),
        "smax_x2": (2, _of(_i64, np.maximum)), "umin_x2": (2, _of(_u64, np.minimum)),
        "umax_x2": (2, _of(_u64, np.maximum)), "inc_x2": (2, _of(_u64, _increment)),
        "dec_x2": (2, _of(_u64, _decrement)),
    }
)  # fmt: skip
_DS_AS_GLOBAL: Mapping[str, str] = MappingProxyType(  # DS instructions that do what those of global memory do
    {
        "add_u32": "add", "sub_u32": "sub", "and_b32": "and", "or_b32": "or", "xor_b32": "xor", "min_i32": "smin",
        "max_i32": "smax", "min_u32": "umin", "max_u32": "umax", "inc_u32": "inc", "dec_u32": "dec",
        "cmpst_b32": "cmpswap", "add_u64": "add_x2", "sub_u64": "sub_x2", "and_b64": "and_x2", "or_b64": "or_x2",
        "xor_b64": "xor_x2", "min_i64": "smin_x2", "max_i64": "smax_x2", "min_u64": "umin_x2", "max_u64": "umax_x2",
        "inc_u64": "inc_x2", "dec_u64": "dec_x2", "cmpst_b64": "cmpswap_x2", "add_f32": "add_f32",
        "pk_add_bf16": "pk_add_bf16", "pk_add_f16": "pk_add_f16", "add_f64": "add_f64", "min_f64": "min_f64",
        "max_f64": "max_f64",
    }
)  # fmt: skip
_DS_NAMES: Mapping[str, tuple[int, Combine]] = MappingProxyType(
    {name: COMBINE[twin] for name, twin in _DS_AS_GLOBAL.items()}
    | {
        "rsub_u32": (1, lambda old, value: value - old), "min_f32": (1, _of(_f32, smaller)),
        "max_f32": (1, _of(_f32, larger)), "rsub_u64": (2, _of(_u64, lambda old, value: value - old)),
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
        data = vector_registers(texts[0 if buffer else 1], 2 * dwords if combine is _swap_if_equal else dwords)
        operand = parse_operand(texts.pop(0 if buffer else 1))
        target = operand if returns and buffer else target
        compute, reads = addresses(statement, texts, context)
        first = target.index if target is not None else None
        results = () if first is None else tuple(range(first, first + dwords))

        def run(g: WaveGroup) -> None:
            old, complete = _global_update(g, compute(g), combine, data, dwords, returns=returns)
            if results:
                np.copyto(g.block(results[0], dwords), old.transpose(2, 0, 1), where=g.mask)
            g.tracking.issue("vm", Pending((Entry(results, g.waves, complete),)))

        return make_access(statement, run, reads, stored=data, writes=results, lanes=compute)

    return bind


def _bind_ds(combine: Combine, returns: bool, dwords: int = 1) -> Binder:
    def bind(statement: Statement, context: Context) -> Instruction:
        check_modifiers(statement, frozenset({"offset"}))
        operands = list(statement.operands)
        target = tuple(vector_registers(operands.pop(0), dwords)) if returns else ()
        (address,) = vector_registers(operands.pop(0), 1)
        # The value to compare with stands first, and behind the new one in global memory's instructions.
        data = tuple(register for text in reversed(operands) for register in vector_registers(text, dwords))
        if len(data) != dwords * (2 if combine is _swap_if_equal else 1):
            raise UnknownInstructionError(f"{len(statement.operands)} operands")
        offset = immediate(statement)

        def run(g: WaveGroup) -> None:
            old, record = _ds_update(g, address, offset, data, combine, dwords)
            if target:
                np.copyto(g.block(target[0], dwords), old.transpose(2, 0, 1), where=g.mask)
            g.tracking.issue("lgkm", Pending((Entry(target, g.waves, record),)))

        kind = InstructionClass.LDS
        return make_access(statement, run, (address,), kind=kind, counter="lgkm", stored=data, writes=target)

    return bind


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
    return old, partial(lds.finish, record)


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
