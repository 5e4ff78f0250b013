"""Assembly text to statements: Triton's ``asm["amdgcn"]`` and ``llvm-objdump -d`` print one syntax."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from search.gfx950.simulator.state.findings import SimulationError

_OBJDUMP = re.compile(r"//\s*([0-9A-Fa-f]{8,}):(?:\s+[0-9A-Fa-f]{8})+")
_OBJDUMP_LABEL = re.compile(r"^([0-9a-fA-F]{8,}) <(.+)>:$")
_LABEL = re.compile(r"^([A-Za-z_.$][\w.$@]*):")
_MNEMONIC = re.compile(r"^[a-z][a-z0-9_]*$")
_OUTSIDE = {separator: re.compile(rf"{separator}(?![^\[\](]*[\])])") for separator in (",", " ")}
_MODIFIER = re.compile(r"^([a-z_0-9]+)(?::(.*)|\((.*)\))?$")
_NO_MODIFIERS: Mapping[str, str] = {}


@dataclass(slots=True, eq=False)  # not frozen: thousands are made for each program
class Statement:
    """One instruction as written.

    Args:
        mnemonic: With its encoding suffix (``v_add_u32_e32``).
        operands: As text, in order.
        modifiers: ``offset:16`` as ``{"offset": "16"}``, flags with an empty value.
        line: Line in the text, from 1.
        address: Byte address in the code object, where the text gives it.
    """

    mnemonic: str
    operands: tuple[str, ...]
    modifiers: Mapping[str, str]
    line: int
    text: str
    address: int | None = None


@dataclass
class Listing:
    """Statements of one function in order, and the index each label points at."""

    statements: list[Statement] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


def split_top_level(text: str, separator: str) -> list[str]:
    """Split at a comma or blank outside brackets; empty pieces are dropped."""
    if ":[" not in text and "(" not in text:  # brackets of registers hold neither
        return [piece for piece in map(str.strip, text.split(separator)) if piece]
    return [piece for piece in map(str.strip, _OUTSIDE[separator].split(text)) if piece]


def parse_statement(text: str, line: int, address: int | None = None) -> Statement:
    """One instruction's text as a ``Statement``.

    Raises:
        SimulationError: The text is no instruction.
    """
    try:
        return Statement(*_fields(text.strip()), line, text.strip(), address)
    except SimulationError as error:
        raise SimulationError(f"line {line}: {error}") from error


@lru_cache(maxsize=1 << 16)
def _fields(text: str) -> tuple[str, tuple[str, ...], Mapping[str, str]]:
    """Mnemonic, operands and modifiers: half of the lines of a kernel stand in the kernels before it."""
    mnemonic, _, rest = text.partition(" ")
    if not _MNEMONIC.match(mnemonic):
        raise SimulationError(f"not an instruction: {text!r}")
    if mnemonic == "s_waitcnt":
        return mnemonic, (rest.strip(),), _NO_MODIFIERS
    operands = split_top_level(rest, ",")
    modifiers: dict[str, str] = {}
    if operands and " " in operands[-1]:  # modifiers follow the last operand
        operands[-1], *words = split_top_level(operands[-1], " ")
        for word in words:
            match = _MODIFIER.match(word)
            if match is None:
                raise SimulationError(f"unreadable modifier {word!r} in {text!r}")
            modifiers[match[1]] = match[2] or match[3] or ""
    return mnemonic, tuple(operands), modifiers


def parse_triton(text: str, symbol: str | None = None) -> Listing:
    """Statements of ``symbol`` (default: the first function) in compiler output.

    Raises:
        SimulationError: No such function, or a line that cannot be read.
    """
    listing = Listing()
    inside = False
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.split(";", 1)[0].split("//", 1)[0].strip()
        label = _LABEL.match(line)
        if label is not None:
            name = label[1]
            if not inside and not name.startswith(".") and (symbol is None or name == symbol):
                inside = True
            if inside:
                listing.labels[name] = len(listing.statements)
            continue
        if not inside or not line:
            continue
        if line.startswith((".section", ".size", ".amdhsa_kernel", ".end_amdhsa")):
            break
        if not line.startswith("."):
            listing.statements.append(parse_statement(line, number))
    if not inside:
        raise SimulationError(f"no function {symbol or ''} in the assembly text".replace("  ", " "))
    return listing


def _objdump_lines(text: str) -> Iterator[tuple[int, str]]:
    for number, raw in enumerate(text.splitlines(), start=1):
        if raw.strip():
            yield number, raw


def parse_objdump(text: str, symbol: str, symbol_address: int, symbol_end: int | None = None) -> Listing:
    """Statements from ``symbol_address`` on in ``llvm-objdump -d`` output.

    Args:
        symbol_address: Its first byte.
        symbol_end: First byte after it; None: to the end of the section.

    Raises:
        SimulationError: The address is not in the text.
    """
    listing = Listing()
    addresses: dict[str, int] = {}
    for number, raw in _objdump_lines(text):
        label = _OBJDUMP_LABEL.match(raw)
        if label is not None:
            addresses[label[2]] = int(label[1], 16)
            continue
        comment = _OBJDUMP.search(raw)
        if comment is None:
            continue
        address = int(comment[1], 16)
        if address < symbol_address or (symbol_end is not None and address >= symbol_end):
            continue
        body = raw[: comment.start()].strip()
        listing.statements.append(parse_statement(body, number, address))
    if not listing.statements:
        raise SimulationError(f"no instruction of {symbol} at {symbol_address:#x} in the disassembly")
    _attach_labels(listing, addresses)
    return listing


def _attach_labels(listing: Listing, addresses: Mapping[str, int]) -> None:
    index = {statement.address: i for i, statement in enumerate(listing.statements)}
    for name, address in addresses.items():
        if address in index:
            listing.labels[name] = index[address]
