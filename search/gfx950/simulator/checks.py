"""The slow path of one instruction that touches a suspect register: waits and undefined bits."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from search.gfx950.simulator.decode.op import Instruction
from search.gfx950.simulator.decode.values import rows_swapped
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import FindingKind
from search.gfx950.simulator.state.registers import CONSTANT, SCRATCH, SGPR, register_name
from search.gfx950.simulator.state.shadow import ALL, any_bit
from search.gfx950.simulator.state.state import LANES, WaveGroup

_SINKS = {
    "address": FindingKind.UNINITIALISED_ADDRESS, "store": FindingKind.UNINITIALISED_STORE,
    "branch": FindingKind.UNINITIALISED_BRANCH, "mfma": FindingKind.UNINITIALISED_MFMA,
}  # fmt: skip
_ZERO = np.zeros((1, 1), np.uint32)


def run_checked(g: WaveGroup, instruction: Instruction) -> None:
    """Execute ``instruction``, reporting early reads and undefined uses, and propagate undefined bits."""
    tracking = g.tracking
    _report_waiting(g, instruction)
    undefined = tracking.undefined
    if undefined.keys().isdisjoint(instruction.touches):
        instruction.run(g)
        return
    _report_sinks(g, instruction)
    if instruction.counter is not None or any(name == "mfma" for name, _ in instruction.sinks):
        mask = g.mask if instruction.counter is not None else None
        _run_defining(g, instruction, mask)
        return
    results = _result_shadows(g, instruction)
    mask = g.mask
    instruction.run(g)
    for register, bits in results.items():
        _merge(g, register, bits, mask, instruction)


def _report_waiting(g: WaveGroup, instruction: Instruction) -> None:
    waiting = g.tracking.waiting
    if not waiting:
        return
    for register in instruction.touches & waiting.keys():
        if register in instruction.reads:
            kind, verb = FindingKind.READ_BEFORE_WAIT, "reads"
        elif instruction.counter is not None:
            continue  # loads of one kind return in order
        else:
            kind, verb = FindingKind.WRITE_BEFORE_WAIT, "writes"
        g.env.report(kind, g, None, f"{verb} {register_name(register)} before the load into it has been waited for")
        g.tracking.forget(register)


def _report_sinks(g: WaveGroup, instruction: Instruction) -> None:
    undefined = g.tracking.undefined
    for name, registers in instruction.sinks:
        for register in registers & undefined.keys():
            bits = undefined[register]
            active: Array = g.mask if name in ("address", "store") else np.ones((g.count, LANES), np.bool_)
            if name == "store":
                bits = bits & np.uint32(instruction.store_bits)
                active = active & _lanes_in_range(g, instruction)
            wrong = (bits != 0) & active
            if wrong.any():
                g.env.report(_SINKS[name], g, wrong, f"{register_name(register)} was never (fully) written")
                g.tracking.set_undefined(register, None)


def _lanes_in_range(g: WaveGroup, instruction: Instruction) -> Array:
    if instruction.lanes is None:
        return np.ones((1, 1), np.bool_)
    inside = instruction.lanes(g).in_range(1)
    return np.ones((1, 1), np.bool_) if inside is None else inside


def _run_defining(g: WaveGroup, instruction: Instruction, mask: Array | None) -> None:
    """A load or MFMA defines its destinations in the lanes that it writes."""
    zero = np.uint32(0)
    for register in instruction.writes:
        old = g.tracking.undefined.get(register)
        if old is None:
            continue
        kept = old & np.uint32(instruction.preserve)
        if mask is None or g.full or register >= SGPR:
            g.tracking.set_undefined(register, kept if instruction.preserve else None)
        else:
            g.tracking.set_undefined(register, np.where(mask, np.where(kept, kept, zero), old))
    instruction.run(g)


def _result_shadows(g: WaveGroup, instruction: Instruction) -> dict[int, Array]:
    undefined = g.tracking.undefined
    special = LANE_RULES.get(instruction.statement.mnemonic.removesuffix("_e32").removesuffix("_e64"))
    if special is not None:
        results: dict[int, Array] = special(g, instruction)
        return results
    reads = instruction.reads & undefined.keys()
    if not reads:
        return {register: _ZERO for register in instruction.writes}
    if instruction.halves is not None and len(instruction.writes) == 2:
        pairs = zip(instruction.writes, instruction.halves, strict=True)
        return {register: _any_of(g, half) for register, half in pairs}
    if instruction.narrow and len(instruction.writes) == 1:
        return {instruction.writes[0]: _narrow(g, instruction)}
    if instruction.shadow is not None:
        return _by_rule(g, instruction)
    spread = _any_of(g, reads)
    return {register: spread for register in instruction.writes}


def _narrow(g: WaveGroup, instruction: Instruction) -> Array:
    """Undefined bits of the only result of an instruction on single registers, modifiers included."""
    rows = dict(g.tracking.undefined)

    def undefined(register: int) -> Array:
        return rows.get(register, _ZERO)

    for step in instruction.before:
        rows[step.target] = step.shadow(g, undefined)
        step.run(g)  # rules look at values too
    shadows = [undefined(source) for source in instruction.sources]
    if instruction.shadow is not None:
        result = np.asarray(instruction.shadow([g.u[source] for source in instruction.sources], shadows))
    else:
        result = any_bit(shadows)
    for step in instruction.after:
        rows[step.target] = result
        result = step.shadow(g, undefined)
    return result


def _by_rule(g: WaveGroup, instruction: Instruction) -> dict[int, Array]:
    """A rule on instructions of several registers works dword by dword."""
    assert instruction.shadow is not None
    undefined = g.tracking.undefined
    results: dict[int, Array] = {}
    wide = [register for register in instruction.writes if register < CONSTANT]
    for offset, register in enumerate(wide):
        values = [g.u[source + offset] for source in instruction.sources]
        shadows = [undefined.get(source + offset, _ZERO) for source in instruction.sources]
        results[register] = instruction.shadow(values, shadows)
    everything = any_bit([_ZERO, *results.values()])
    for register in instruction.writes:
        results.setdefault(register, everything)
    return results


def _merge(g: WaveGroup, register: int, bits: Array, mask: Array, instruction: Instruction) -> None:
    if register >= SCRATCH:
        if bits.shape[1] == LANES:
            bits = np.where(((bits != 0) & mask).any(axis=1, keepdims=True), ALL, np.uint32(0))
        g.tracking.set_undefined(register, bits)
        return
    old = g.tracking.undefined.get(register, _ZERO)
    preserve = np.uint32(instruction.preserve)
    if instruction.statement.mnemonic.startswith("v_writelane"):
        g.tracking.set_undefined(register, bits)
        return
    fresh = (old & preserve) | (bits & ~preserve)
    g.tracking.set_undefined(register, fresh if mask.all() else np.where(mask, fresh, old))


def _row(g: WaveGroup, register: int) -> Array:
    return np.broadcast_to(g.tracking.undefined.get(register, _ZERO), (g.count, LANES))


def _first_lane(g: WaveGroup, instruction: Instruction) -> dict[int, Array]:
    row = _row(g, instruction.sources[0])
    return {instruction.writes[0]: np.take_along_axis(row, g.mask.argmax(axis=1)[:, None], axis=1)}


def _chosen_lane(g: WaveGroup, instruction: Instruction) -> dict[int, Array]:
    source, select = instruction.sources
    lane = np.broadcast_to(g.u[select] & np.uint32(63), (g.count, 1)).astype(np.int64)
    return {instruction.writes[0]: np.take_along_axis(_row(g, source), lane, axis=1)}


def _written_lane(g: WaveGroup, instruction: Instruction) -> dict[int, Array]:
    source, select = instruction.sources
    register = instruction.writes[0]
    lane = np.broadcast_to(g.u[select] & np.uint32(63), (g.count, 1))
    bits = g.tracking.undefined.get(source, _ZERO)
    return {register: np.where(np.arange(LANES, dtype=np.uint32) == lane, bits, _row(g, register))}


def _swapped(rows: int) -> Callable[[WaveGroup, Instruction], dict[int, Array]]:
    swapped = rows_swapped(rows)

    def rule(g: WaveGroup, instruction: Instruction) -> dict[int, Array]:
        first, second = instruction.writes
        return dict(zip(instruction.writes, swapped(_row(g, first), _row(g, second)), strict=True))

    return rule


def _any_of(g: WaveGroup, registers: Iterable[int]) -> Array:
    total: Array = _ZERO
    for register in registers:
        total = total | g.tracking.undefined.get(register, _ZERO)
    return np.where(total != 0, ALL, np.uint32(0))


def _wide_multiply(g: WaveGroup, instruction: Instruction) -> dict[int, Array]:
    """V_MAD_U64_U32: the low result does not depend on the high half of the addend."""
    a, b, c = instruction.sources
    everything = _any_of(g, (a, b, c, c + 1))
    low, *others = instruction.writes
    return {low: _any_of(g, (a, b, c)), **{register: everything for register in others}}


def _wide_shift(left: bool) -> Callable[[WaveGroup, Instruction], dict[int, Array]]:
    def rule(g: WaveGroup, instruction: Instruction) -> dict[int, Array]:
        count, value = instruction.sources
        low, high = instruction.writes
        undefined = g.tracking.undefined
        if count in undefined:
            return {register: _any_of(g, instruction.reads) for register in (low, high)}
        bits = undefined.get(value, _ZERO).astype(np.uint64)
        bits = bits | (undefined.get(value + 1, _ZERO).astype(np.uint64) << np.uint64(32))
        places = (g.u[count] & np.uint32(63)).astype(np.uint64)
        moved = bits << places if left else bits >> places
        return {low: moved.astype(np.uint32), high: (moved >> np.uint64(32)).astype(np.uint32)}

    return rule


def _conditional(g: WaveGroup, instruction: Instruction) -> dict[int, Array]:
    """V_CNDMASK_B32: the chosen source's bits; everything where the mask is undefined."""
    first, second, mask = instruction.sources
    undefined = g.tracking.undefined
    rows = [undefined.get(source, _ZERO) for source in (first, second)]
    if instruction.before:
        rows = [_any_of(g, instruction.reads)] * 2
    chosen = np.where(g.read_mask(mask), rows[1], rows[0])
    return {instruction.writes[0]: np.where(_any_of(g, (mask, mask + 1)) != 0, ALL, chosen)}


LANE_RULES = {
    "v_cndmask_b32": _conditional,
    "v_mad_u64_u32": _wide_multiply, "v_mad_i64_i32": _wide_multiply, "v_lshlrev_b64": _wide_shift(True),
    "v_lshrrev_b64": _wide_shift(False),
    "v_readfirstlane_b32": _first_lane, "v_readlane_b32": _chosen_lane, "v_writelane_b32": _written_lane,
    "v_permlane16_swap_b32": _swapped(16), "v_permlane32_swap_b32": _swapped(32),
}  # fmt: skip
