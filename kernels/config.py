"""The knobs of a configuration, and the rules that a legal one meets.

Legality is a list of :class:`Rule` values whose predicates use only arithmetic and comparisons, so that one
definition judges one configuration (:meth:`KernelConfig.check`) and a whole table of columns (:func:`violations`). A
field name is also the YAML key, the Optuna parameter and the results column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from kernels.device import GFX950, DeviceKey
from kernels.problem import GemmShape

MAX_TENSOR_ELEMENTS = 1 << 20  # of one Triton block (triton.language.core.TRITON_MAX_TENSOR_NUMEL)
Predicate = Callable[[Any, GemmShape, DeviceKey], Any]


@dataclass(frozen=True)
class Rule:
    """A condition that a legal configuration meets, and what to say where it does not.

    Args:
        holds: Predicate of (configuration or columns, shape, device); a bool or a boolean array.
        reason: Text for the user; ``{FIELD}`` is replaced by the configuration's value.
    """

    holds: Predicate
    reason: str


Limits = tuple[int, int]  # both ends included
TILE: Limits = (1, 1 << 20)  # elements of one Triton block (triton.language.core.TRITON_MAX_TENSOR_NUMEL)
GROUPED: Limits = (1, 4096)  # times the tiles of a row of C it stays far below 2**31
STAGES: Limits = (1, 32)
XCDS: Limits = (1, 64)
SPLITS: Limits = (1, 65535)  # y extent of a grid (CUDA C++ Programming Guide, compute capabilities)
MFMA_ROWS: Limits = (0, 64)
SMALL: Limits = (0, 1 << 16)


def knob(default: int | str, meaning: str, limits: Limits = SMALL) -> Any:
    """Field of a configuration.

    Args:
        default: Its value where a file names none.
        limits: Least and greatest value that a file may set, of a whole number.
    """
    return field(default=default, metadata={"meaning": meaning, "limits": limits})


@dataclass(frozen=True)
class KernelConfig:
    """What the configuration of every family can do; a subclass adds the knobs, all with defaults, and the rules."""

    RULES: ClassVar[tuple[Rule, ...]] = ()

    def check(self, shape: GemmShape, device: DeviceKey) -> str | None:
        """Why this configuration cannot run ``shape`` on ``device``, or None if it can."""
        for rule in self.RULES:
            if not rule.holds(self, shape, device):
                return rule.reason.format(**self.to_dict())
        return None

    @classmethod
    def limits(cls, name: str) -> Limits:
        """Least and greatest value of the whole-number knob ``name``."""
        limits: Limits = cls.__dataclass_fields__[name].metadata["limits"]
        return limits

    def to_dict(self) -> dict[str, int | str]:
        """Field values by name, in declaration order."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def repeatable(self) -> bool:
        """Whether this choice of knobs leaves the order of every sum fixed; the family may vary it all the same."""
        return True


def _power_of_two(value: Any) -> Any:
    return (value & (value - 1)) == 0


def multiple(name: str, of: int) -> Rule:
    """The knob is a power of two and a multiple of ``of``."""

    def holds(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
        value = getattr(c, name)
        return (value >= of) & (value % of == 0) & _power_of_two(value)

    return Rule(holds, f"{name}={{{name}}} is not a power of two and a multiple of {of}")


def at_least_one(name: str) -> Rule:
    """The knob is positive."""
    return Rule(lambda c, shape, device: getattr(c, name) >= 1, f"{name}={{{name}}} is less than 1")


SPLIT_RULES = (at_least_one("split_k"), Rule(lambda c, s, d: c.split_k <= 65535, "split_k={split_k} exceeds the grid"))


def violations(
    config_type: type[KernelConfig], columns: Mapping[str, Any], shape: GemmShape, device: DeviceKey
) -> list[tuple[str, Any]]:
    """Each rule's reason with the boolean array of the points that break it.

    Args:
        columns: One array [points] a field of ``config_type``; a rule that reads none gives one value for all.
    """
    c = SimpleNamespace(**columns)
    return [(rule.reason, np.logical_not(rule.holds(c, shape, device))) for rule in config_type.RULES]


GFX950_ONLY = Rule(lambda c, s, d: d.arch == GFX950.arch, f"these kernels are {GFX950.arch} machine code")


def one_of(name: str, values: tuple[int, ...]) -> Rule:
    """The knob has one of these values."""

    def holds(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
        value = getattr(c, name)
        found = value == values[0]
        for other in values[1:]:
            found = found | (value == other)
        return found

    return Rule(holds, f"{name}={{{name}}} is none of {', '.join(map(str, values))}")
