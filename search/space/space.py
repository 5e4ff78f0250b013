"""Search spaces: the values that each knob of a family may take, read from ``configs/spaces``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from kernels.config import KernelConfig
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.families.family import Family
from kernels.tables.file import knob_value
from kernels.wording import instead_of
from kernels.yaml_node import YamlNode, optional_items, read_yaml
from search.space.expressions import Expression, Kind, parse_expression

KnobValue = int | str
SHAPE_NAMES: Mapping[str, Kind] = {
    "M": "integer",
    "N": "integer",
    "K": "integer",
    "cu_count": "integer",
    "arch": "text",
}  # what a constraint may read besides the knobs
MAX_CHOICES = 127  # of one knob: a code of the legal set is one signed byte


@dataclass(frozen=True)
class SearchSpace:
    """The points that a search of one family chooses from.

    Args:
        parameters: Choices of each searched knob, in the order of the file; other knobs keep their defaults.
        constraints: Conditions that a point must meet besides the family's own rules.
        defaults: Starting configurations, the first that is legal first.
        digest: Short hash of the content; comments, spelling and the order of constraints do not change it.
        absent: What constraints read of knobs that the family lacks.
    """

    family: str
    parameters: Mapping[str, tuple[KnobValue, ...]]
    constraints: tuple[Expression, ...]
    defaults: tuple[KernelConfig, ...]
    source: str
    digest: str
    absent: Mapping[str, KnobValue] = field(default_factory=dict)

    @property
    def config_type(self) -> type[KernelConfig]:
        """The family's configuration."""
        return FAMILIES[self.family].config_type

    @property
    def fixed(self) -> dict[str, KnobValue]:
        """Value of each knob that is not searched."""
        default = self.config_type().to_dict()
        return {name: value for name, value in default.items() if name not in self.parameters}


@dataclass(frozen=True)
class _Part:
    """One file of a space: the one that names the family, or one that it extends.

    Args:
        inherited: Whether another file extends it: then it may name knobs that the family lacks.
    """

    path: Path
    keys: Mapping[str, YamlNode]
    inherited: bool


def load_space(path: Path) -> SearchSpace:
    """The space that ``path`` describes, with what it takes over from the files that it ``extends``.

    A knob's values are those of the first file that lists it, the file itself first; constraints add up.

    Raises:
        InputError: One line of file, line, key and cure: no file, not YAML, an unknown key, family or
            parameter, an empty list, a value of a wrong type or given twice, a bad constraint, a default
            outside of the lists.
    """
    parts = _parts(path, ())
    own = parts[0].keys
    family = FAMILIES[own["family"].word(FAMILIES)]
    parameters = _parameters(parts, family)
    absent = {k: v for part in parts for k, v in _absent(part).items() if k not in family.knobs}
    constraints = tuple(constraint for part in parts for constraint in _constraints(part, family, absent))
    defaults = tuple(_default(node, family, parameters) for node in optional_items(own, "defaults"))
    digest = _digest(family, parameters, absent, constraints, defaults)
    return SearchSpace(family.name, parameters, constraints, defaults, str(path), digest, absent)


def _parts(path: Path, above: tuple[Path, ...]) -> list[_Part]:
    """``path`` and what it extends, each file once, in the order in which it is named."""
    root = read_yaml(path, "name a file of configs/spaces, or write one")
    required = () if above else ("family",)
    optional = ("parameters", "constraints", "defaults", "extends", "absent", *(("family",) if above else ()))
    keys = root.mapping(required, optional)
    if not above and not {"extends", "parameters"} & keys.keys():
        root.fail("lacks parameters; add it, or extend a file that has some")
    parts = [_Part(path, keys, bool(above))]
    for node in _extended(keys):
        file = path.parent / node.text()
        if file in (path, *above):
            node.fail(f"{file.name} extends itself; remove one of the lines")
        parts += [part for part in _parts(file, (path, *above)) if part.path not in {known.path for known in parts}]
    return parts


def _extended(keys: Mapping[str, YamlNode]) -> list[YamlNode]:
    node = keys.get("extends")
    if node is None:
        return []
    return node.items("extends") if isinstance(node.node, yaml.SequenceNode) else [node]


def _absent(part: _Part) -> dict[str, KnobValue]:
    """What the part's constraints read of a knob that a family lacks."""
    node = part.keys.get("absent")
    owners = _owners()
    found = {} if node is None else node.mapping((), owners)
    return {name: knob_value(child, owners[name], name) for name, child in found.items()}


def _owners() -> dict[str, Family]:
    """A family that has it, for each knob of any."""
    return {name: family for family in reversed(list(FAMILIES.values())) for name in family.knobs}


def _constraints(part: _Part, family: Family, absent: Mapping[str, KnobValue]) -> Iterator[Expression]:
    own: dict[str, Kind] = {k: "integer" if hint is int else "text" for k, hint in family.knobs.items()}
    missing: dict[str, Kind] = {k: "integer" if isinstance(value, int) else "text" for k, value in absent.items()}
    names = {**own, **missing, **SHAPE_NAMES}
    for node in optional_items(part.keys, "constraints"):
        yield parse_expression(node.text(), names, f"{part.path}:{node.line}")


def load_spaces(folder: Path, families: Sequence[str] | None = None) -> dict[str, SearchSpace]:
    """Spaces by family, read from ``folder/<family>.yaml``.

    Args:
        families: Which ones, in this order; default: each family that has a file, in the registry's order.

    Raises:
        InputError: An unknown family, a file that describes another family than its name says, no file.
    """
    for name in families or ():
        if name not in FAMILIES:
            raise InputError(f"unknown family {name!r}; {instead_of(name, FAMILIES)}")
    chosen = families or [name for name in FAMILIES if (folder / f"{name}.yaml").is_file()]
    if not chosen:
        raise InputError(f"{folder}: holds no space; add {next(iter(FAMILIES))}.yaml or name another folder")
    spaces = {name: load_space(folder / f"{name}.yaml") for name in chosen}
    for name, space in spaces.items():
        if space.family != name:
            cure = f"write {name!r}, or rename the file"
            raise InputError(f"{space.source}: family: is {space.family!r}; {cure}")
    return spaces


def _parameters(parts: Sequence[_Part], family: Family) -> dict[str, tuple[KnobValue, ...]]:
    known = family.knobs
    found: dict[str, tuple[KnobValue, ...]] = {}
    for part in parts:
        if "parameters" in part.keys:
            listed = part.keys["parameters"].mapping((), _owners() if part.inherited else known)
            new = {name: node for name, node in listed.items() if name in known and name not in found}
            found |= {name: _choices(node, family, name) for name, node in new.items()}
    if known and not found:  # a family without knobs has one point
        own = parts[0].keys
        own.get("parameters", own["family"]).fail(f"is empty; list values for one of {', '.join(known)}")
    return found


def _choices(node: YamlNode, family: Family, name: str) -> tuple[KnobValue, ...]:
    if not isinstance(node.node, yaml.SequenceNode):
        node.fail("must be a list; write [value, ...], even for one value")
    choices: list[KnobValue] = []
    for item in node.items(node.field):
        choice = knob_value(item, family, name)
        if choice in choices:
            item.fail(f"{choice!r} is given twice; keep one")
        choices.append(choice)
    if not choices:
        node.fail("is an empty list; give a value, or remove the key to keep the default")
    if len(choices) > MAX_CHOICES:
        node.fail(f"has {len(choices)} values; give at most {MAX_CHOICES}")
    return tuple(choices)


def _default(node: YamlNode, family: Family, parameters: Mapping[str, tuple[KnobValue, ...]]) -> KernelConfig:
    values = node.mapping((), family.knobs)
    config = family.config({name: knob_value(child, family, name) for name, child in values.items()})
    fixed = family.config({}).to_dict()
    for name, value in config.to_dict().items():
        choices = parameters.get(name, (fixed[name],))
        if value not in choices:
            node.fail(f"{name} = {value!r} is not among {list(choices)}; use one of them, or add it there")
    return config


def _digest(
    family: Family,
    parameters: Mapping[str, tuple[KnobValue, ...]],
    absent: Mapping[str, KnobValue],
    constraints: Sequence[Expression],
    defaults: Sequence[KernelConfig],
) -> str:
    content = {
        "family": family.name,
        "parameters": list(parameters.items()),
        "fixed": family.config({}).to_dict(),
        "absent": sorted(absent.items()),
        "constraints": sorted({constraint.normal_text for constraint in constraints}),
        "defaults": [default.to_dict() for default in defaults],
    }
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]
