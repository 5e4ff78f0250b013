"""The little of ELF that a code object needs: its symbols, and the bytes at an address.

Source: System V ABI, "ELF-64 object file format".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

from search.gfx950.simulator.state.findings import SimulationError

_SYMTAB, _DYNSYM, _NOBITS = 2, 11, 8


@dataclass(frozen=True)
class Symbol:
    """Address and size in bytes of a symbol."""

    address: int
    size: int


@dataclass(frozen=True)
class _Section:
    name: int
    kind: int
    address: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class ElfFile:
    """A 64-bit little-endian ELF file in memory."""

    data: bytes
    symbols: dict[str, Symbol]
    sections: tuple[_Section, ...]

    def read(self, address: int, size: int) -> bytes:
        """``size`` bytes that the file loads at ``address``.

        Raises:
            SimulationError: No section holds them all.
        """
        for section in self.sections:
            inside = 0 <= address - section.address < section.size
            if section.address and section.kind != _NOBITS and inside:
                start = section.offset + address - section.address
                found = self.data[start : start + size]
                if len(found) == size:
                    return found
        raise SimulationError(f"no section holds address {address:#x}")


def read_elf(path: Path) -> ElfFile:
    """Parse ``path``.

    Raises:
        SimulationError: The file cannot be read, or is no 64-bit little-endian ELF file, or is cut short or damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SimulationError(f"{path} cannot be read: {error.strerror}") from error
    if data[:6] != b"\x7fELF\x02\x01":
        raise SimulationError(f"{path} is no 64-bit little-endian ELF file")
    try:
        return _parse(data)
    except (struct.error, ValueError, IndexError, OverflowError) as error:  # it points outside of itself
        raise SimulationError(f"{path} is cut short or damaged: {error}") from error


def _parse(data: bytes) -> ElfFile:
    (table,) = struct.unpack_from("<Q", data, 40)
    entry_size, count = struct.unpack_from("<HH", data, 58)
    sections = []
    for number in range(count):
        name, kind, _, address, offset, size, link = struct.unpack_from("<IIQQQQI", data, table + number * entry_size)
        sections.append(_Section(name, kind, address, offset, size, link))
    return ElfFile(data, _symbols(data, sections), tuple(sections))


def _symbols(data: bytes, sections: list[_Section]) -> dict[str, Symbol]:
    symbols: dict[str, Symbol] = {}
    for section in sections:
        if section.kind not in (_SYMTAB, _DYNSYM):
            continue
        names = sections[section.link]
        for offset in range(section.offset, section.offset + section.size, 24):
            name, _, _, _, address, size = struct.unpack_from("<IBBHQQ", data, offset)
            start = names.offset + name
            text = data[start : data.index(b"\0", start)].decode()
            if text:
                symbols[text] = Symbol(address, size)
    return symbols
