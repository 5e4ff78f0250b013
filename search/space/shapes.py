"""The shapes that a sweep tunes: from the command line, a set in YAML, a plain list or a CSV file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.yaml_node import YamlNode, optional_items, read_yaml

ROLES = ("benchmark", "test")
_FORM = "write MxNxK, for example 16x2112x7168 or 1,2,4..64x2112x7168"
_FILE = "name a shapes file, for example one of configs/shapes"
_RUNG = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?")


@dataclass(frozen=True)
class ShapeEntry:
    """One shape and why it is there.

    Args:
        shape: Logical elements.
        role: ``benchmark`` or ``test`` where the set tells them apart, else "".
        layers: Names of the layers that need it.
    """

    shape: GemmShape
    role: str = ""
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShapeSet:
    """Shapes without duplicates, in the order of their file.

    Args:
        name: For people.
        source: Where the shapes come from.
        entries: At least one.
    """

    name: str
    source: str
    entries: tuple[ShapeEntry, ...]

    @property
    def shapes(self) -> tuple[GemmShape, ...]:
        """All shapes of the set."""
        return tuple(entry.shape for entry in self.entries)

    def with_role(self, role: str) -> tuple[GemmShape, ...]:
        """Shapes of one role."""
        return tuple(entry.shape for entry in self.entries if entry.role == role)


def parse_shapes(args: Sequence[str]) -> tuple[GemmShape, ...]:
    """Shapes written as ``MxNxK``, where M may be a list or a ladder; without duplicates, in order.

    ``1,2,4..64x2112x7168`` has M = 1, 2, 4, 8, 16, 32, 64.

    Raises:
        InputError: Another form, or a size that no kernel supports.
    """
    return tuple(dict.fromkeys(shape for arg in args for shape in _written_shapes(arg, f"shape {arg!r}")))


def load_shapes(path: Path) -> ShapeSet:
    """The shapes that ``path`` lists.

    ``.yaml`` and ``.yml`` hold a set (see ``configs/shapes``); ``.csv`` has the columns M, N and K, and other
    columns are not read (AITER's untuned and tuned files); any other file has one ``MxNxK`` a line, where ``#``
    starts a comment.

    Raises:
        InputError: One line of file, line and cure: no file, no shapes, another form, unknown keys, a size
            that no kernel supports.
    """
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return _yaml_set(path)
    entries = _csv_entries(path) if suffix == ".csv" else _list_entries(path)
    return _shape_set(path, path.stem, str(path), entries)


def parse_ladder(text: str, where: str) -> tuple[int, ...]:
    """Values of M written as a list or a ladder: ``1,2,4..64`` is 1, 2, 4, 8, 16, 32, 64.

    Raises:
        InputError: Another form, or a ladder whose end is not its start doubled some times; ``where`` begins
            the message.
    """
    values: list[int] = []
    for rung in text.split(","):
        match = _RUNG.fullmatch(rung.strip())
        if match is None:
            raise InputError(f"{where}: M = {rung.strip()!r} is no number or ladder; {_FORM}")
        first, last = int(match[1]), int(match[2] or match[1])
        ladder = [first << doublings for doublings in range(31) if first << doublings <= last]
        if not ladder or ladder[-1] != last or first < 1:
            cure = "write one that doubles from its first number (1 or more) to its last: 4..64 is 4, 8, 16, 32, 64"
            raise InputError(f"{where}: M = {rung.strip()!r} is no ladder; {cure}")
        values += ladder
    return tuple(dict.fromkeys(values))


def _shape(M: int, N: int, K: int, where: str) -> GemmShape:
    try:
        return GemmShape(M, N, K)
    except ValueError as error:
        cure = "correct or remove it (M, N, K count logical elements)"
        raise InputError(f"{where}: {error}; {cure}") from error


def _written_shapes(text: str, where: str, place: str = "") -> tuple[GemmShape, ...]:
    """Shapes of ``text``; ``place`` begins the message about another form, which quotes it, ``where`` all others."""
    parts = [part.strip() for part in text.lower().split("x")]
    if len(parts) != 3 or not all(re.fullmatch(r"\d{1,9}", part) for part in parts[1:]):
        raise InputError(f"{place}{text!r} is no shape; {_FORM}")
    if parts[0].isdecimal():  # a plain M = 0 is reported as such, not as a ladder
        return (_shape(int(parts[0]), int(parts[1]), int(parts[2]), where),)
    return tuple(_shape(M, int(parts[1]), int(parts[2]), where) for M in parse_ladder(parts[0], where))


def _shape_set(path: Path, name: str, source: str, entries: Iterable[ShapeEntry]) -> ShapeSet:
    """Set of ``entries``, those of one shape joined: the first role, all layers."""
    merged: dict[GemmShape, ShapeEntry] = {}
    for entry in entries:
        known = merged.get(entry.shape, ShapeEntry(entry.shape))
        layers = tuple(dict.fromkeys((*known.layers, *entry.layers)))
        merged[entry.shape] = ShapeEntry(entry.shape, known.role or entry.role, layers)
    if not merged:
        raise InputError(f"{path}: holds no shapes; add one, for example 16x2112x7168")
    return ShapeSet(name, source, tuple(merged.values()))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; {_FILE}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a shapes file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is no text; name a .yaml, .csv or plain list of shapes") from error


def _list_entries(path: Path) -> Iterator[ShapeEntry]:
    for number, line in enumerate(_lines(path), 1):
        text = line.partition("#")[0].strip()
        if text:
            yield from map(ShapeEntry, _written_shapes(text, f"{path}:{number}", f"{path}:{number}: "))


def _csv_entries(path: Path) -> Iterator[ShapeEntry]:
    reader = csv.reader(_lines(path))
    header = [cell.strip() for cell in next(reader, [])]
    if header and not {"M", "N", "K"} <= set(header):
        problem = f"the header {','.join(header)!r} lacks M, N or K"
        raise InputError(f"{path}:1: {problem}; begin the file with M,N,K")
    for row in _rows(reader, path):
        cells = dict(zip(header, (cell.strip() for cell in row), strict=False))
        if not any(cells.values()):
            continue
        where = f"{path}:{reader.line_num}"
        sizes = [cells.get(name, "") for name in ("M", "N", "K")]
        if not all(re.fullmatch(r"\d{1,9}", size) for size in sizes):
            problem = f"M, N, K = {', '.join(sizes)!r} are no whole numbers"
            raise InputError(f"{where}: {problem}; correct the row or remove it")
        yield ShapeEntry(_shape(int(sizes[0]), int(sizes[1]), int(sizes[2]), where))


def _rows(reader: Any, path: Path) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: {error}; write a table of M,N,K") from error


def _yaml_set(path: Path) -> ShapeSet:
    root = read_yaml(path, _FILE)
    keys = root.mapping((), ("name", "source", "M", "shapes", "layers"))
    name = keys["name"].text() if "name" in keys else path.stem
    source = keys["source"].text() if "source" in keys else str(path)
    ladder = _ladder(keys["M"]) if "M" in keys else ()
    entries = [_yaml_entry(node) for node in optional_items(keys, "shapes")]
    for node in optional_items(keys, "layers"):
        entries += _layer_entries(node, ladder)
    return _shape_set(path, name, source, entries)


def _where(node: YamlNode) -> str:
    return f"{node.path}:{node.line}: {node.field}"


def _ladder(node: YamlNode) -> tuple[int, ...]:
    """M as one text (``1..8192``), one number, or a list of both."""
    parts = node.items(node.field) if isinstance(node.node, yaml.SequenceNode) else [node]
    values = [M for part in parts for M in parse_ladder(part.text(), _where(part))]
    return tuple(dict.fromkeys(values)) or node.fail("is an empty list; write a ladder, for example 1..8192")


def _yaml_entry(node: YamlNode) -> ShapeEntry:
    keys = node.mapping(("M", "N", "K"), ("role",))
    M, N, K = (keys[name].integer() for name in ("M", "N", "K"))
    role = keys["role"].word(ROLES) if "role" in keys else ""
    return ShapeEntry(_shape(M, N, K, _where(node)), role)


def _layer_entries(node: YamlNode, ladder: tuple[int, ...]) -> list[ShapeEntry]:
    keys = node.mapping(("name", "N", "K", "source"), ("M",))
    keys["source"].text()
    rungs = _ladder(keys["M"]) if "M" in keys else ladder
    if not rungs:
        node.fail("has no M; write `M: 1..8192` in the layer, or once for all at the top of the file")
    N, K, layers = keys["N"].integer(), keys["K"].integer(), (keys["name"].text(),)
    return [ShapeEntry(_shape(M, N, K, _where(node)), layers=layers) for M in rungs]
