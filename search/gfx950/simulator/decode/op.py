"""What an instruction table says of one mnemonic, and what a decoded instruction is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import MappingProxyType
from typing import Any

from search.gfx950.simulator.decode.modifiers import Step
from search.gfx950.simulator.decode.text import Statement
from search.gfx950.simulator.state.state import WaveGroup

Semantics = Callable[..., None]
ShadowRule = Callable[..., Any]
WIDTHS: Mapping[str, int] = MappingProxyType(
    {
        "u32": 1, "i32": 1, "f32": 1, "f16": 1, "bf16": 1, "u16": 1, "i16": 1, "pk16": 1, "pkf16": 1, "mix": 1,
        "b64": 2, "f64": 2, "pkf32": 2, "mask": 2, "b128": 4, "b256": 8, "b512": 16, "b96": 3, "b192": 6,
    }
)  # fmt: skip


class InstructionClass(Enum):
    """Class of an executed instruction in the histogram."""

    MFMA = "mfma"
    VALU = "valu"
    TRANSCENDENTAL = "transcendental"
    LDS = "lds"
    GLOBAL = "global"
    SCALAR = "scalar"
    WAIT = "waits"
    BARRIER = "barriers"


class Control(Enum):
    """What the machine does after an instruction besides going on to the next."""

    NEXT = 0
    BRANCH = 1
    BARRIER = 2
    END = 3


@dataclass(frozen=True)
class Op:
    """One mnemonic without its encoding suffix.

    Args:
        name: ISA name in lower case.
        semantics: ``f(group, dst…, src…)`` with register indices.
        dst: Types of the destinations; ``mask`` is a lane mask in an SGPR pair.
        implicit: Sources that the text does not print: ``dst`` (read-modify-write), ``vcc``, ``scc``, ``exec``.
        preserve: Bits of the destination that keep their old value.
        shadow: Rule for undefined bits; None: any undefined source bit makes every result bit undefined.
        shadow_of: Makes that rule from the modifiers, where it depends on them.
        takes_modifiers: ``semantics`` gets ``mods`` (op_sel and the like) as a keyword.
        byte_destination: As ``takes_modifiers``; op_sel[2:4] choose the byte of the destination that changes.
        halfwise: ``shadow`` holds only while no modifier moves halves.
        op_sel_hi: What it is where the text has none.
    """

    name: str
    semantics: Semantics
    dst: tuple[str, ...]
    src: tuple[str, ...]
    implicit: tuple[str, ...] = ()
    kind: InstructionClass = InstructionClass.VALU
    sets_scc: bool = False
    preserve: int = 0
    shadow: ShadowRule | None = None
    shadow_of: Callable[[Any], ShadowRule] | None = None
    takes_modifiers: bool = False
    byte_destination: bool = False
    ignores_exec: bool = False
    halfwise: bool = False
    op_sel_hi: int = 1

    @cached_property
    def is_narrow(self) -> bool:
        """Whether every operand is a single register."""
        return all(WIDTHS[kind] == 1 for kind in self.src + self.dst)


@dataclass(slots=True, eq=False)  # not frozen: thousands are made for each program
class Instruction:
    """A decoded instruction, bound to its registers.

    Args:
        run: Executes it on a group of waves.
        reads, writes: Register indices.
        control: What the machine does next.
        target: Index of the branch target.
        counter: Wait counter that its result is covered by (``vm`` or ``lgkm``), or None.
        sinks: Uses in which an undefined value is an error: (finding name, register indices).
        lanes: Address function of a store, which tells the lanes that are in range; None: all active lanes.
        store_bits: Bits of each data register that a store reads.
        preserve: Bits of each destination that keep their old value.
        sources: First index of each source (or of the scratch row it was changed into), in order.
        before, after: Steps for modifiers, whose effect on undefined bits counts too.
        narrow: All operands are single registers.
        waits: Of a wait: (counter, operations that may be left).
        halves: Registers that the low and the high result of a packed f32 instruction depend on.
    """

    statement: Statement
    run: Callable[[WaveGroup], None]
    kind: InstructionClass
    reads: frozenset[int]
    writes: tuple[int, ...]
    touches: frozenset[int]
    control: Control = Control.NEXT
    target: int = -1
    counter: str | None = None
    sinks: tuple[tuple[str, frozenset[int]], ...] = ()
    lanes: Callable[[WaveGroup], Any] | None = None
    store_bits: int = 0xFFFFFFFF
    preserve: int = 0
    shadow: ShadowRule | None = None
    sources: tuple[int, ...] = ()
    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    narrow: bool = False
    halves: tuple[frozenset[int], frozenset[int]] | None = None
    waits: tuple[tuple[str, int], ...] = ()


def table(ops: Iterable[Op]) -> Mapping[str, Op]:
    """Read-only table by name.

    Raises:
        ValueError: A name comes twice.
    """
    found: dict[str, Op] = {}
    for op in ops:
        if op.name in found:
            raise ValueError(f"{op.name} is defined twice")
        found[op.name] = op
    return MappingProxyType(found)
