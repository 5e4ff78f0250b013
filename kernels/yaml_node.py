"""YAML values that know where they stand, so that an error names file, line, field and cure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NoReturn

import yaml

from kernels.errors import InputError
from kernels.wording import instead_of

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where PyYAML was built with it: 10x
MOST_BYTES = 64 << 20  # of a file: 100,000 rows, and the end of what never ends, such as /dev/zero
TORN = "a torn or mistyped file; restore or correct it"


@dataclass(frozen=True)
class YamlNode:
    """One node of a YAML file.

    Args:
        field: Words that lead to the node, for messages.
    """

    path: Path
    node: Any
    field: str

    @property
    def line(self) -> int:
        """Where the node starts, from 1."""
        return int(self.node.start_mark.line) + 1

    def fail(self, problem: str) -> NoReturn:
        """Raise an InputError that locates ``problem``."""
        at = f"{self.field}: " if self.field else ""
        raise InputError(f"{self.path}:{self.line}: {at}{problem}")

    def mapping(self, required: Collection[str], optional: Collection[str] = ()) -> dict[str, YamlNode]:
        """Values by key: each required one, and known ones only, once."""
        if not isinstance(self.node, yaml.MappingNode):
            self.fail("must be a mapping, {key: value, ...}")
        found: dict[str, YamlNode] = {}
        for key, value in self.node.value:
            name = str(key.value)
            child = YamlNode(self.path, value, f"{self.field} {name}".strip())
            if name in found:
                child.fail("is given twice; keep one")
            if name not in required and name not in optional:
                child.fail(f"unknown key; {instead_of(name, (*required, *optional))}")
            found[name] = child
        missing = [name for name in required if name not in found]
        if missing:
            self.fail(f"lacks {', '.join(missing)}; add it, or remove the entry")
        return found

    def items(self, name: str) -> list[YamlNode]:
        """Members of a list, each called ``name`` and its number from 1."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.fail(f"must be a list; {TORN}")
        return [YamlNode(self.path, node, f"{name} {i}") for i, node in enumerate(self.node.value, 1)]

    def _scalar(self, tags: Collection[str], what: str) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            self.fail(f"must be {what}")
        if self.node.tag.rpartition(":")[2] not in tags:
            self.fail(f"{self.node.value!r} is not {what}")
        return str(self.node.value)

    def text(self) -> str:
        """The scalar as written, so that 3.10 stays 3.10; never null or empty."""
        value = self._scalar(("str", "int", "float", "timestamp"), "a text")
        return value or self.fail("is empty; write a text")

    def integer_within(self, limits: tuple[int, int]) -> int:
        """A whole number that is not below the first of ``limits`` nor above the second."""
        value = self.integer()
        least, most = limits
        return value if least <= value <= most else self.fail(f"{value} is not within {least}..{most}; correct it")

    def integer(self) -> int:
        """A whole number in decimal digits."""
        value = self._scalar(("int",), "a whole number")
        if re.fullmatch(r"-?[0-9]{1,18}", value) is None:
            self.fail(f"{value[:40]!r}: use decimal digits, 18 at most")
        return int(value)

    def number(self) -> float:
        """A number; infinities and NaN are the caller's to reject."""
        value = self._scalar(("int", "float"), "a number")
        try:
            return float(value.replace(".inf", "inf").replace(".nan", "nan"))
        except ValueError:
            self.fail(f"{value!r}: use decimal digits")

    def flag(self) -> bool:
        """True or false."""
        return self._scalar(("bool",), "true or false").lower() in ("true", "yes", "on")

    def day(self) -> date:
        """A date in ISO form."""
        value = self._scalar(("timestamp", "str"), "a date like 2026-11-30")
        try:
            return date.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is not a date like 2026-11-30")

    def word(self, words: Collection[str]) -> str:
        """One of ``words``."""
        value = self._scalar(("str",), f"one of {', '.join(map(repr, words))}")
        return value if value in words else self.fail(f"{value!r} is unknown; {instead_of(value, words)}")


def read_yaml(path: Path, missing: str) -> YamlNode:
    """Root of the file; ``missing`` is the cure for a file that does not exist or holds nothing.

    Raises:
        InputError: No file, not readable, too long, not YAML, or empty.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; {missing}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_yaml(content, path, missing)


def parse_yaml(content: bytes, path: Path, missing: str) -> YamlNode:
    """Root of the file ``path`` that holds ``content``, as :func:`read_yaml` gives it.

    Raises:
        InputError: More than ``MOST_BYTES``, not YAML, or empty.
    """
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: is longer than {MOST_BYTES >> 20} MiB; name a file that `export` or a person wrote")
    try:
        root = yaml.compose(content, Loader=LOADER)
    except yaml.YAMLError as error:
        raise InputError(_syntax(path, error)) from error
    if root is None:
        raise InputError(f"{path}: holds nothing; {missing}")
    return YamlNode(path, root, "")


def optional_items(keys: Mapping[str, YamlNode], name: str) -> list[YamlNode]:
    """Members of the list ``name`` that a person writes; none if the key is absent."""
    if name not in keys:
        return []
    node = keys[name]
    if not isinstance(node.node, yaml.SequenceNode):
        node.fail("must be a list; write - before each member")
    return node.items(name)


def _syntax(path: Path, error: yaml.YAMLError) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"{path}: not UTF-8 text; {TORN}"
    line = f":{error.problem_mark.line + 1}" if error.problem_mark is not None else ""
    return f"{path}{line}: not YAML ({error.problem}); {TORN}"
