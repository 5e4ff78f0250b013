"""Decode: one statement and its table entry to an ``Instruction`` bound to register indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from search.gfx950.simulator.decode.alu_run import AluPlan, plain_run, registers_of, vector_run
from search.gfx950.simulator.decode.modifiers import (
    DPP_KEYS,
    SDWA_KEYS,
    Modifiers,
    dpp_source_step,
    float_result_step,
    high_half_step,
    indexed_source_step,
    lane_pattern,
    omod_text,
    parse_modifiers,
    sdwa_result_step,
    sdwa_source_step,
    sign_step,
)
from search.gfx950.simulator.decode.op import WIDTHS, Instruction, InstructionClass, Op
from search.gfx950.simulator.decode.text import Statement
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import UnknownInstructionError
from search.gfx950.simulator.state.registers import (
    CONSTANT,
    EXEC,
    RESULT_SCRATCH,
    SCC,
    SCRATCH,
    SGPR,
    SOURCE_SCRATCH,
    VCC,
    Operand,
    constant_dwords,
    parse_operand,
)
from search.gfx950.simulator.state.state import WaveGroup

_SELECTION_KEYS = frozenset({"op_sel", "op_sel_hi", "neg_lo", "neg_hi", "bitop3"})
_OUTPUT_KEYS = frozenset({"clamp", "mul", "div"})
_ALU_KEYS = _SELECTION_KEYS | _OUTPUT_KEYS | SDWA_KEYS | DPP_KEYS
_16_BIT = frozenset({"u16", "i16", "f16", "bf16"})
_FLOATS = frozenset({"f32", "f16", "f64", "bf16"})
ENCODINGS = ("_e32", "_e64_dpp", "_e64", "_sdwa", "_dpp")


@dataclass
class Context:
    """What decoding a program collects.

    Args:
        constants: uint32 arrays [1, 1] in index order from ``CONSTANT`` on.
        labels: Statement index by label.
        index_of: Statement index by address.
        index_first_source: The statement lies between S_SET_GPR_IDX_ON and _OFF.
    """

    constants: list[Array] = field(default_factory=list)
    labels: Mapping[str, int] = field(default_factory=dict)
    index_of: Mapping[int, int] = field(default_factory=dict)
    index_first_source: bool = False
    _known: dict[tuple[int, int], int] = field(default_factory=dict)

    def constant(self, text: str, kind: str) -> int:
        """Index of a constant operand of type ``kind`` (two entries: low and high dword)."""
        dwords = constant_dwords(text, kind)
        if dwords not in self._known:
            self._known[dwords] = CONSTANT + len(self.constants)
            self.constants += [np.full((1, 1), dword, np.uint32) for dword in dwords]
        return self._known[dwords]


Binder = Callable[[Statement, Context], Instruction]  # makes the instruction of a line


def base_name(mnemonic: str) -> tuple[str, str]:
    """(name without encoding suffix, suffix) of a mnemonic."""
    for suffix in ENCODINGS:
        if mnemonic.endswith(suffix):
            return mnemonic[: -len(suffix)], suffix
    return mnemonic, ""


def resolve(operand: Operand, kind: str, context: Context) -> int:
    """Register or constant index of ``operand`` as type ``kind``.

    Raises:
        UnknownInstructionError: The register range has the wrong width.
    """
    if operand.index is None:
        return context.constant(operand.text, kind)
    if operand.count != WIDTHS[kind]:
        raise UnknownInstructionError(f"operand {operand.text}: {WIDTHS[kind]} registers expected for {kind}")
    return operand.index


def check_modifiers(statement: Statement, known: frozenset[str]) -> None:
    """Raise for a modifier that the instruction does not have.

    Raises:
        UnknownInstructionError: The first unknown modifier.
    """
    for key in statement.modifiers:
        if key not in known:
            raise UnknownInstructionError(f"unknown modifier {key!r}")


def bind_alu(op: Op, statement: Statement, context: Context) -> Instruction:
    """Bind a SALU or VALU instruction.

    Raises:
        UnknownInstructionError: Operand count, width or modifier do not fit the table entry.
    """
    count = len(op.dst) + len(op.src)
    if len(statement.operands) != count:
        raise UnknownInstructionError(f"{count} operands expected, found {len(statement.operands)}")
    operands = [parse_operand(text) for text in statement.operands]
    if statement.modifiers:
        check_modifiers(statement, _ALU_KEYS)
    dst = [resolve(operand, kind, context) for operand, kind in zip(operands, op.dst, strict=False)]
    plan = AluPlan(op, dst, [], set(), preserve=op.preserve)
    _bind_sources(plan, operands[len(op.dst) :], statement, context)
    _bind_result(plan, statement)
    _bind_implicit(plan)
    return _finish(plan, statement)


def _bind_sources(plan: AluPlan, operands: Sequence[Operand], statement: Statement, context: Context) -> None:
    mods = parse_modifiers(statement.modifiers, plan.op.op_sel_hi)
    if plan.op.takes_modifiers or plan.op.byte_destination:
        plan.keywords["mods"] = mods
    if statement.modifiers and not DPP_KEYS.isdisjoint(statement.modifiers):
        plan.pattern = lane_pattern(statement.modifiers)
    for position, (operand, kind) in enumerate(zip(operands, plan.op.src, strict=True)):
        is_half = kind == "mix" and mods.op_sel_hi[position]
        if is_half and operand.index is None:
            raise UnknownInstructionError(f"the constant {operand.text} as f16")
        if is_half and not mods.op_sel[position]:
            kind = "f16"  # its sign is bit 15
        index = resolve(operand, kind, context)
        plan.reads.update(_read_registers(plan, position, index, kind, mods))
        if position == 0 and context.index_first_source and operand.is_vector:
            plan.before.append(indexed_source_step(index, SOURCE_SCRATCH))
            index = SOURCE_SCRATCH
        if statement.modifiers or operand.neg or operand.abs:
            index = _modified(plan, position, operand, kind, index, mods, statement.modifiers)
        plan.src.append(index)


def _read_registers(plan: AluPlan, position: int, index: int, kind: str, mods: Modifiers) -> Iterable[int]:
    """Registers that a source really reads: op_sel picks from the pairs of packed f32 instructions."""
    if kind != "pkf32" or index >= CONSTANT:
        return registers_of(index, kind)
    if plan.op.name == "v_pk_mov_b32":
        chosen = [index + mods.op_sel[position]]
        plan.halves[position].update(chosen)
        return chosen
    for half, selects in enumerate((mods.op_sel, mods.op_sel_hi)):
        plan.halves[half].add(index + selects[position])
    return [index + mods.op_sel[position], index + mods.op_sel_hi[position]]


def _modified(
    plan: AluPlan, position: int, operand: Operand, kind: str, index: int, mods: Modifiers, found: Mapping[str, str]
) -> int:
    target = SOURCE_SCRATCH + 2 * position
    select = found.get(f"src{position}_sel", "DWORD")
    if select != "DWORD" or operand.sext:
        plan.before.append(sdwa_source_step(index, target, select, operand.sext))
        index = target
    if plan.pattern is not None and position == 0:
        plan.before.append(dpp_source_step(index, target, plan.pattern))
        index = target
    if kind in _16_BIT and mods.op_sel[position]:
        plan.before.append(high_half_step(index, target))
        index = target
    if operand.neg or operand.abs:
        plan.before.append(sign_step(index, target, kind, operand.neg, operand.abs))
        index = target
    return index


def _bind_result(plan: AluPlan, statement: Statement) -> None:
    found = statement.modifiers
    if not found and not plan.op.byte_destination:
        return
    kind = plan.op.dst[0] if plan.op.dst else ""
    omod = omod_text(found)
    if kind in _FLOATS and ("clamp" in found or omod):
        plan.after.append(float_result_step(RESULT_SCRATCH, kind, omod, "clamp" in found))
    select, unused = found.get("dst_sel", "DWORD"), found.get("dst_unused", "UNUSED_PAD")
    if kind in _16_BIT and parse_modifiers(found).op_sel[len(plan.op.src)]:
        select, unused = "WORD_1", "UNUSED_PRESERVE"
    if select != "DWORD":
        plan.after.append(sdwa_result_step(RESULT_SCRATCH, plan.dst[0], select, unused))
        plan.preserve = 0xFFFFFFFF if unused == "UNUSED_PRESERVE" else 0
        if unused == "UNUSED_PRESERVE":
            width = 0xFF if select.startswith("BYTE") else 0xFFFF
            shift = int(select[-1]) * width.bit_length()
            plan.preserve &= ~(width << shift) & 0xFFFFFFFF
    if plan.op.byte_destination:
        mods: Modifiers = plan.keywords["mods"]
        plan.preserve = ~(0xFF << 8 * (mods.op_sel[2] + 2 * mods.op_sel[3])) & 0xFFFFFFFF


def _bind_implicit(plan: AluPlan) -> None:
    for name in plan.op.implicit:
        if name in ("dst", "dst1"):
            position = 1 if name == "dst1" else 0
            plan.src.append(plan.dst[position])
            plan.reads.update(registers_of(plan.dst[position], plan.op.dst[position]))
        elif name == "vcc":
            plan.src.append(VCC)
            plan.reads.update((VCC, VCC + 1))
        elif name == "scc":
            plan.src.append(SCC)
            plan.reads.add(SCC)
        elif name == "exec":
            plan.reads.update((EXEC, EXEC + 1))


def _finish(plan: AluPlan, statement: Statement) -> Instruction:
    op = plan.op
    writes: list[int] = []
    scalar_write = has_vector = False
    for index, kind in zip(plan.dst, plan.op.dst, strict=True):
        writes += registers_of(index, kind)
        has_vector = has_vector or index < SCRATCH
        scalar_write = scalar_write or (SGPR <= index < CONSTANT and kind != "mask")
    run = vector_run(plan) if has_vector else plain_run(plan)
    writes += [SCC] if op.sets_scc else []
    writes += [EXEC, EXEC + 1] if "exec" in op.implicit else []
    if scalar_write or "exec" in op.implicit:
        run = coherent(run, set(writes))
    shadow = op.shadow if op.shadow_of is None else op.shadow_of(plan.keywords["mods"])
    if op.halfwise and _mixes_halves(statement):
        shadow = None
    return Instruction(
        statement=statement,
        run=run,
        kind=op.kind,
        reads=frozenset(plan.reads),
        writes=tuple(writes),
        touches=frozenset(plan.reads.union(writes)),
        preserve=plan.preserve,
        shadow=shadow,
        sources=tuple(plan.src),
        before=tuple(plan.before),
        after=tuple(plan.after),
        narrow=op.is_narrow,
        halves=(frozenset(plan.halves[0]), frozenset(plan.halves[1])) if plan.halves[0] else None,
    )


def _mixes_halves(statement: Statement) -> bool:
    mods = parse_modifiers(statement.modifiers)
    return any(mods.op_sel) or not all(mods.op_sel_hi)


def coherent(run: Callable[[WaveGroup], None], writes: set[int]) -> Callable[[WaveGroup], None]:
    """``run``, after which cached lane masks of the scalar registers ``writes`` are dropped and EXEC takes effect."""
    writes_exec = bool(writes & {EXEC, EXEC + 1})
    pairs = tuple({index & ~1 for index in writes if SGPR <= index < CONSTANT})

    def scalar_run(g: WaveGroup) -> None:
        run(g)
        cache = g.lane_cache
        if cache:
            for pair in pairs:
                cache.pop(pair, None)
        if writes_exec:
            g.refresh_exec()

    return scalar_run


def vector_registers(text: str, count: int) -> range:
    """Indices of an operand of exactly ``count`` VGPRs or AGPRs.

    Raises:
        UnknownInstructionError: It is another one.
    """
    operand = parse_operand(text)
    if operand.index is None or not operand.is_vector or operand.count != count:
        raise UnknownInstructionError(f"{count} vector registers expected, found {text}")
    return range(operand.index, operand.index + count)


def make_instruction(
    statement: Statement,
    run: Callable[[WaveGroup], None],
    kind: InstructionClass,
    reads: Sequence[int] = (),
    writes: Sequence[int] = (),
    **more: Any,
) -> Instruction:
    """An instruction that is not in an ALU table."""
    return Instruction(
        statement=statement,
        run=run,
        kind=kind,
        reads=frozenset(reads),
        writes=tuple(writes),
        touches=frozenset(reads) | frozenset(writes),
        **more,
    )


def make_access(
    statement: Statement,
    run: Callable[[WaveGroup], None],
    address: Iterable[int],
    *,
    kind: InstructionClass = InstructionClass.GLOBAL,
    counter: str = "vm",
    reads: Iterable[int] = (),
    writes: Sequence[int] = (),
    stored: Iterable[int] = (),
    **more: Any,
) -> Instruction:
    """A memory instruction, of global memory where nothing else is said.

    Args:
        address: Registers that no undefined bit may be in.
        reads: Others that it reads.
        stored: Those that it stores, which have to be defined too.
    """
    sinks = [("address", frozenset(address)), ("store", frozenset(stored))]
    everything = [*sinks[0][1], *reads, *stored]
    used = tuple(sink for sink in sinks if sink[1])
    return make_instruction(statement, run, kind, everything, writes, counter=counter, sinks=used, **more)
