"""Single-instruction mutations of gfx950 assembly text, of the kinds that compilers and people make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from search.gfx950.simulator.decode.text import Statement, parse_triton
from search.gfx950.simulator.state.registers import parse_operand

REGISTER = re.compile(r"^[vsa](\d+|\[\d+:\d+\])$")
INTEGER = re.compile(r"^(-?\d+|0x[0-9a-f]+)$")
# Instructions whose first two (or the named) sources do not commute, by name without encoding; destination first.
ORDERED = re.compile(
    r"(v|s)_(sub|subb|lshl|lshr|ashr|cselect|andn2|bfe|bfm)(rev)?_|v_(sub|lshl|lshr|ashr)\w*rev|v_sub|v_cndmask|"
    r"v_perm|v_lshl_(add|or)|v_bfe|v_bfi|v_cmp_(lt|le|gt|ge)|s_cmp_(lt|le|gt|ge)|v_mfma|"
    r"v_cvt_scalef32_pk|v_cvt_pk|v_pk_sub|ds_bpermute|ds_write_b32|v_alignb|v_bitop3"
)
NEITHER = ("s_waitcnt", "s_nop", "s_barrier", "s_branch", "s_cbranch", "s_setprio", "s_sleep", "s_endpgm")
WHOLE_INLINE = range(-16, 65)  # integers that every encoding can hold (MI300 ISA guide, "Scalar Operands")


@dataclass(frozen=True)
class Mutation:
    """One changed line.

    Args:
        kind: What was done to it.
        index: Of the instruction in its kernel.
        line: Of the text, from 1.
        before: The instruction.
        after: What stands in its place.
    """

    kind: str
    index: int
    line: int
    before: str
    after: str

    def apply(self, text: str) -> str:
        """``text`` with the mutation."""
        lines = text.split("\n")
        lines[self.line - 1] = "\t" + self.after
        return "\n".join(lines)


@dataclass(frozen=True)
class Body:
    """A kernel's instructions and the registers that it uses, as text, by class and width."""

    statements: Sequence[Statement]
    registers: dict[tuple[str, int], list[str]]


def body_of(text: str) -> Body:
    """The instructions of the first kernel in ``text``."""
    statements = [one for one in parse_triton(text).statements if not one.mnemonic.startswith(".")]
    found: dict[tuple[str, int], set[str]] = {}
    for operand in (operand for one in statements for operand in one.operands if REGISTER.match(operand)):
        found.setdefault(_shape(operand), set()).add(operand)
    return Body(statements, {shape: sorted(names) for shape, names in found.items()})


def _shape(operand: str) -> tuple[str, int]:
    return operand[0], parse_operand(operand).count


def render(statement: Statement) -> str:
    """Assembly text of a statement."""
    modifiers = [f"{key}:{value}" if value else key for key, value in statement.modifiers.items()]
    return " ".join([f"{statement.mnemonic} {', '.join(statement.operands)}", *modifiers]).strip()


def wrong_register(one: Statement, body: Body, random: Random) -> Statement | None:
    """Another register of the same class and width, which the kernel uses elsewhere."""
    places = [i for i, operand in enumerate(one.operands) if REGISTER.match(operand)]
    if not places or one.mnemonic.startswith(NEITHER):
        return None
    place = random.choice(places)
    others = [name for name in body.registers[_shape(one.operands[place])] if name != one.operands[place]]
    return _with_operand(one, place, random.choice(others)) if others else None


def wrong_offset(one: Statement, body: Body, random: Random) -> Statement | None:
    """The offset of a memory access, a few bytes further or nearer."""
    if "offset" not in one.modifiers:
        return None
    offset, step = int(one.modifiers["offset"], 0), random.choice([4, 16, 64])
    changed = offset - step if offset >= step and random.random() < 0.5 else offset + step
    return replace_modifier(one, "offset", str(changed)) if changed < 4096 else None


def wrong_constant(one: Statement, body: Body, random: Random) -> Statement | None:
    """An integer operand or a truth table, with one bit changed."""
    if "bitop3" in one.modifiers:
        return replace_modifier(one, "bitop3", hex(int(one.modifiers["bitop3"], 0) ^ 1 << random.randrange(8)))
    places = [i for i, operand in enumerate(one.operands) if INTEGER.match(operand)]
    if not places or one.mnemonic.startswith(NEITHER):
        return None
    place = random.choice(places)
    old = int(one.operands[place], 0)
    if old in WHOLE_INLINE:
        changed = old ^ 1 << random.randrange(5)  # a shift reads five bits of its count
        return _with_operand(one, place, str(changed)) if changed in WHOLE_INLINE else None
    return _with_operand(one, place, hex((old ^ 1 << random.randrange(max(old.bit_length(), 1))) & 0xFFFFFFFF))


def swapped_operands(one: Statement, body: Body, random: Random) -> Statement | None:
    """Two sources exchanged, where their order matters."""
    if not ORDERED.match(one.mnemonic):
        return None
    first = 0 if one.mnemonic.startswith(("s_cmp", "ds_write")) else 1
    pairs = [(first, first + 1)]
    if one.mnemonic.startswith("v_mfma_scale"):
        pairs.append((4, 5))  # the two scales
    i, j = random.choice(pairs)
    if j >= len(one.operands) or one.operands[i] == one.operands[j]:
        return None
    if any(INTEGER.match(operand) and int(operand, 0) not in WHOLE_INLINE for operand in one.operands):
        return None
    operands = list(one.operands)
    operands[i], operands[j] = operands[j], operands[i]
    return replace(one, operands=tuple(operands), mnemonic=one.mnemonic.replace("_e32", "_e64"))


def dropped_wait(one: Statement, body: Body, random: Random) -> Statement | None:
    """No wait."""
    return _nop(one) if one.mnemonic == "s_waitcnt" else None


def dropped_barrier(one: Statement, body: Body, random: Random) -> Statement | None:
    """No barrier."""
    return _nop(one) if one.mnemonic == "s_barrier" else None


def _nop(one: Statement) -> Statement:
    return replace(one, mnemonic="s_nop", operands=("0",), modifiers={})


def _with_operand(one: Statement, place: int, operand: str) -> Statement:
    return replace(one, operands=(*one.operands[:place], operand, *one.operands[place + 1 :]))


def replace_modifier(one: Statement, name: str, value: str) -> Statement:
    """The statement with another value of one modifier."""
    return replace(one, modifiers={**one.modifiers, name: value})


KINDS: dict[str, Callable[[Statement, Body, Random], Statement | None]] = {
    "wrong register": wrong_register,
    "wrong offset": wrong_offset,
    "changed constant": wrong_constant,
    "swapped operands": swapped_operands,
    "dropped wait": dropped_wait,
    "dropped barrier": dropped_barrier,
}


def mutations(text: str, kind: str, random: Random) -> Iterator[Mutation]:
    """Mutations of one kind in a random order, at most one an instruction."""
    body = body_of(text)
    order = list(enumerate(body.statements))
    random.shuffle(order)
    for index, one in order:
        if "".join(render(one).split()) != "".join(one.text.split()):
            continue  # a form that would not be printed as it was read
        changed = KINDS[kind](one, body, random)
        if changed is not None and render(changed) != render(one):
            yield Mutation(kind, index, one.line, one.text, render(changed))
