"""The shapes that a sweep tunes: from the command line, a set in YAML, a plain list or a CSV file."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kernels.disk import configs_folder
from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.wording import first_of
from kernels.yaml_node import YamlNode, optional_items, read_yaml

ROLES = ("benchmark", "test")
NAMED = 4  # lines of a file that a message names
_FORM = "write MxNxK, for example 16x2112x7168 or 1,2,4..64x2112x7168"
_FILE = "name a shapes file, for example one of configs/shapes"
_RUNG = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?")


@dataclass(frozen=True)
class Layer:
    """A layer that a step of a model runs, for what the model gains.

    Args:
        N: Columns of its output.
        K: Columns of its input.
        last: The most tokens that it is tuned for; more are computed as so many.
        calls: How often a step runs it.
        tp: Deployments that have it, by their number of tensor-parallel ranks.
        experts: How many alike there are; 0 of a dense layer.
    """

    name: str
    N: int
    K: int
    last: int
    calls: int
    tp: tuple[int, ...]
    experts: int = 0
    top_k: int = 0

    def products(self, tokens: int) -> tuple[int, int]:
        """Rows of each product in a step of so many tokens, spread evenly over the experts, and how many there are."""
        if not self.experts:
            return min(tokens, self.last), self.calls
        pairs = tokens * self.top_k
        return min(-(-pairs // self.experts), self.last), self.calls * min(self.experts, pairs)


@dataclass(frozen=True)
class ShapeSet:
    """Shapes without duplicates, in the order of their file.

    Args:
        shapes: At least one.
        layers: Those that a step runs, of a model.
        steps: How often a step of so many tokens occurs, by that number; relative.
        left_out: Lines about rows of a CSV that no kernel supports.
    """

    name: str
    shapes: tuple[GemmShape, ...]
    layers: tuple[Layer, ...] = ()
    steps: Mapping[int, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    @property
    def weights(self) -> dict[GemmShape, float]:
        """How often each shape runs in a step, on average over steps and deployments; empty of a set without calls.

        A product is counted at the next larger M of the set, which will serve it.
        """
        counts: dict[GemmShape, float] = {}
        steps = sum(self.steps.values())
        for layer in self.layers:
            for tokens, occurs in self.steps.items():
                rows, number = layer.products(tokens)
                shape = self._serving(rows, layer)
                counts[shape] = counts.get(shape, 0.0) + number * occurs / steps
        return counts

    def _serving(self, rows: int, layer: Layer) -> GemmShape:
        """The shape of the set that serves so many rows of a layer."""
        Ms = sorted(shape.M for shape in self.shapes if (shape.N, shape.K) == (layer.N, layer.K))
        return GemmShape(next((M for M in Ms if rows <= M), Ms[-1]), layer.N, layer.K)


def parse_shapes(args: Sequence[str]) -> tuple[GemmShape, ...]:
    """Shapes written as ``MxNxK``, where M may be a list or a ladder; without duplicates, in order.

    ``1,2,4..64x2112x7168`` has M = 1, 2, 4, 8, 16, 32, 64.

    Raises:
        InputError: Another form, or a size that no kernel supports.
    """
    return tuple(dict.fromkeys(shape for arg in args for shape in _written_shapes(arg, f"shape {arg!r}")))


def load_shapes(path: Path) -> ShapeSet:
    """The shapes that ``path`` lists.

    ``.yaml`` and ``.yml`` hold a set (see ``configs/shapes``); ``.csv`` has the columns M, N and K in any case, between
    commas, semicolons or tabs, and other columns are not read (AITER's untuned and tuned files): rows that no kernel
    supports are left out together; any other file has one ``MxNxK`` a line, where ``#`` starts a comment.
    The name of a set that comes with the program will do: ``gpumode``.

    Raises:
        InputError: One line of file, line and cure: no file, no shapes, another form, unknown keys, a size
            that no kernel supports.
    """
    path = _shipped(path)
    suffix = path.suffix.lower()
    if suffix in (".yaml", ".yml"):
        return _yaml_set(path)
    if suffix == ".csv":
        shapes, left_out = _csv_shapes(path)
        return ShapeSet(path.stem, _unique(path, shapes), left_out=left_out)
    return ShapeSet(path.stem, _unique(path, _listed_shapes(path)))


def shipped_sets() -> tuple[ShapeSet, ...]:
    """Every set that comes with the program."""
    return tuple(load_shapes(path) for path in sorted(_sets_folder().glob("*.yaml")))


def _sets_folder() -> Path:
    return configs_folder() / "shapes"


def _shipped(path: Path) -> Path:
    """The shipped set of this name, where there is one and no such file."""
    shipped = _sets_folder() / f"{path.name.removesuffix('.yaml')}.yaml"
    named = path.parent in (Path(), Path("configs/shapes"))
    return shipped if named and not path.exists() and shipped.is_file() else path


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


def _unique(path: Path, shapes: Iterable[GemmShape]) -> tuple[GemmShape, ...]:
    """Each shape once."""
    found = tuple(dict.fromkeys(shapes))
    if not found:
        raise InputError(f"{path}: holds no shapes; add one, for example 16x2112x7168")
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; {_FILE}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a shapes file") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is no text; name a .yaml, .csv or plain list of shapes") from error


def _listed_shapes(path: Path) -> Iterator[GemmShape]:
    for number, line in enumerate(_lines(path), 1):
        text = line.partition("#")[0].strip()
        if text:
            yield from _written_shapes(text, f"{path}:{number}", f"{path}:{number}: ")


def _csv_shapes(path: Path) -> tuple[list[GemmShape], tuple[str, ...]]:
    """Shapes, and lines about the rows of extents that no kernel supports.

    Raises:
        InputError: No header, a row without extents, or no row that is supported.
    """
    lines = _lines(path)
    reader = csv.reader(lines, delimiter=max(",;\t", key=lines[0].count) if lines else ",")
    header = [cell.strip().upper() for cell in next(reader, [])]
    if header and not {"M", "N", "K"} <= set(header):
        problem = f"the header {lines[0]!r} lacks M, N or K"
        raise InputError(f"{path}:1: {problem}; begin the file with M,N,K")
    shapes: list[GemmShape] = []
    refused: dict[str, list[str]] = {}
    for row in _rows(reader, path):
        cells = dict(zip(header, (cell.strip() for cell in row), strict=False))
        if not any(cells.values()):
            continue
        M, N, K = _extents(cells, f"{path}:{reader.line_num}")
        try:
            shapes.append(GemmShape(M, N, K))
        except ValueError as error:
            refused.setdefault(str(error), []).append(f"{reader.line_num}")
    if refused and not shapes:
        reason, where = next(iter(refused.items()))
        raise InputError(f"{path}:{where[0]}: {reason}; correct or remove it (M, N, K count logical elements)")
    left_out = tuple(f"{path}: left out: {reason} (line {first_of(where, NAMED)})" for reason, where in refused.items())
    return shapes, left_out


def _extents(cells: Mapping[str, str], where: str) -> tuple[int, int, int]:
    """M, N and K of a row, also where pandas wrote ``16.0`` because of a gap in the column."""
    sizes = [cells.get(name, "") for name in ("M", "N", "K")]
    if not all(re.fullmatch(r"\d{1,9}(\.0)?", size) for size in sizes):
        problem = f"M, N, K = {', '.join(sizes)!r} are no whole numbers"
        raise InputError(f"{where}: {problem}; correct the row or remove it")
    M, N, K = (int(size.removesuffix(".0")) for size in sizes)
    return M, N, K


def _rows(reader: Any, path: Path) -> Iterator[list[str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: {error}; write a table of M,N,K") from error


def _yaml_set(path: Path) -> ShapeSet:
    root = read_yaml(path, _FILE)
    keys = root.mapping((), ("name", "source", "M", "steps", "shapes", "layers"))
    name = keys["name"].text() if "name" in keys else path.stem
    if "source" in keys:
        keys["source"].text()
    ladder = _ladder(keys["M"]) if "M" in keys else ()
    shapes = [_yaml_shape(node) for node in optional_items(keys, "shapes")]
    layers: list[Layer] = []
    for node in optional_items(keys, "layers"):
        mine, counted = _layer(node, ladder)
        shapes += mine
        layers += counted
    steps = _steps(keys["steps"]) if "steps" in keys else dict.fromkeys(ladder, 1)
    return ShapeSet(name, _unique(path, shapes), tuple(layers), steps)


def _steps(node: YamlNode) -> dict[int, int]:
    """Tokens of a step and how often it occurs."""
    if not isinstance(node.node, yaml.MappingNode):
        node.fail("must be a mapping of tokens and how often a step of so many occurs, {64: 4, 4096: 1}")
    found = node.mapping((), [str(key.value) for key, _ in node.node.value])
    return {M: value.integer() for text, value in found.items() for M in parse_ladder(text, _where(node))}


def _where(node: YamlNode) -> str:
    return f"{node.path}:{node.line}: {node.field}"


def _ladder(node: YamlNode) -> tuple[int, ...]:
    """M as one text (``1..8192``), one number, or a list of both."""
    parts = node.items(node.field) if isinstance(node.node, yaml.SequenceNode) else [node]
    values = [M for part in parts for M in parse_ladder(part.text(), _where(part))]
    return tuple(dict.fromkeys(values)) or node.fail("is an empty list; write a ladder, for example 1..8192")


def _yaml_shape(node: YamlNode) -> GemmShape:
    keys = node.mapping(("M", "N", "K"), ("role",))
    if "role" in keys:  # for readers of the file
        keys["role"].word(ROLES)
    M, N, K = (keys[name].integer() for name in ("M", "N", "K"))
    return _shape(M, N, K, _where(node))


def _layer(node: YamlNode, ladder: tuple[int, ...]) -> tuple[list[GemmShape], list[Layer]]:
    """Shapes of a layer; and the layer, if its calls are given.

    Raises:
        InputError: No M, or experts without ``top_k``, or the other way round.
    """
    keys = node.mapping(("name", "N", "K", "source"), ("M", "calls", "tp", "experts", "top_k"))
    keys["source"].text()
    rungs = _ladder(keys["M"]) if "M" in keys else ladder
    if not rungs:
        node.fail("has no M; write `M: 1..8192` in the layer, or once for all at the top of the file")
    N, K, name = keys["N"].integer(), keys["K"].integer(), keys["name"].text()
    shapes = [_shape(M, N, K, _where(node)) for M in rungs]
    if "calls" not in keys:
        return shapes, []
    if ("experts" in keys) != ("top_k" in keys):
        node.fail("has experts or top_k alone; give both, or neither")
    experts, top_k = (keys[key].integer() if key in keys else 0 for key in ("experts", "top_k"))
    tp = tuple(one.integer() for one in keys["tp"].items("rank")) if "tp" in keys else (1,)
    return shapes, [Layer(name, N, K, max(rungs), keys["calls"].integer(), tp, experts, top_k)]
