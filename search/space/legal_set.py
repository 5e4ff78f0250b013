"""The legal set: every point of a space that can run a shape on a device, enumerated once.

Knobs are joined one at a time, and each constraint and rule is applied as soon as its names are known, so the
full product of a space's lists is never held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kernels.config import KernelConfig, Rule
from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.space.space import KnobValue, SearchSpace

MAX_POINTS = 2_000_000  # held at once: a search keeps about 0.7 kB of each
Codes = dict[str, npt.NDArray[np.int8]]  # index of each point's choice, by knob


@dataclass(frozen=True, eq=False)
class LegalSet:
    """The legal points of one family at one shape, in the order of the space's lists.

    Args:
        frame: One row a point, one column a field of the family's configuration (int32, or categorical text).
        keys: Position of each point in the full product [points], ascending.
    """

    space: SearchSpace
    shape: GemmShape
    device: DeviceKey
    frame: pd.DataFrame
    keys: npt.NDArray[np.int64]

    def __len__(self) -> int:
        """Number of legal points."""
        return len(self.keys)

    @property
    def defaults(self) -> tuple[KernelConfig, ...]:
        """The space's starting configurations that are legal here."""
        return tuple(config for config in self.space.defaults if self.index_of(config) is not None)

    def config(self, i: int) -> KernelConfig:
        """Configuration of point ``i``.

        Raises:
            IndexError: There is no such point.
        """
        key, values = int(self.keys[i]), dict(self.space.fixed)
        for name, choices in reversed(tuple(self.space.parameters.items())):
            key, code = divmod(key, len(choices))
            values[name] = choices[code]
        return FAMILIES[self.space.family].config(values)

    def index_of(self, config: KernelConfig) -> int | None:
        """Point whose configuration is ``config``, or None if that is not legal here."""
        values, key = config.to_dict(), 0
        if type(config) is not self.space.config_type or any(
            values[name] != fixed for name, fixed in self.space.fixed.items()
        ):
            return None
        for name, choices in self.space.parameters.items():
            if values[name] not in choices:
                return None
            key = key * len(choices) + choices.index(values[name])
        i = int(np.searchsorted(self.keys, key))
        return i if i < len(self.keys) and self.keys[i] == key else None


def legal_sets(
    spaces: Iterable[SearchSpace], shape: GemmShape, device: DeviceKey
) -> tuple[dict[str, LegalSet], list[str]]:
    """Legal set of each space by family, and what was removed last where one has no legal point.

    Raises:
        InputError: None has one.
    """
    legal: dict[str, LegalSet] = {}
    refusals: list[InputError] = []
    for space in spaces:
        try:
            legal[space.family] = legal_set(space, shape, device)
        except InputError as error:
            refusals.append(error)
    if not legal:
        raise refusals[-1]
    return legal, [str(refusal) for refusal in refusals]


def legal_set(space: SearchSpace, shape: GemmShape, device: DeviceKey) -> LegalSet:
    """The points of ``space`` that meet its constraints and the family's rules.

    Raises:
        InputError: No point is legal (the message names the condition that removed the last ones), a
            constraint divides by 0, or more than ``MAX_POINTS`` points would be held.
    """
    enumeration = _Enumeration(space, shape, device)
    for name in (None, *space.parameters):
        if name is not None:
            enumeration.join(name)
        enumeration.filter()
    codes = enumeration.codes
    return LegalSet(space, shape, device, _frame(space, codes, enumeration.points), _keys(space, codes))


@dataclass(frozen=True)
class _Condition:
    """A constraint or a rule: what it reads, and whether points meet it."""

    text: str
    where: str
    names: frozenset[str]
    holds: Callable[[Mapping[str, Any]], Any]


class _Recorder:
    """Stands in for a configuration and notes which fields a rule reads."""

    def __init__(self, values: Mapping[str, KnobValue]) -> None:
        self._values = values
        self._names: set[str] = set()

    def __getattr__(self, name: str) -> KnobValue:
        self._names.add(name)
        return self._values[name]


def _rule_condition(rule: Rule, default: KernelConfig, shape: GemmShape, device: DeviceKey) -> _Condition:
    recorder = _Recorder(default.to_dict())
    rule.holds(recorder, shape, device)  # only arithmetic and comparisons: no field is read on a condition

    def holds(values: Mapping[str, Any]) -> Any:
        return rule.holds(SimpleNamespace(**values), shape, device)

    return _Condition(rule.reason, "", frozenset(recorder._names), holds)


def _conditions(space: SearchSpace, shape: GemmShape, device: DeviceKey) -> list[_Condition]:
    constants = {
        **space.absent,
        "M": shape.M,
        "N": shape.N,
        "K": shape.K,
        "arch": device.arch,
        "cu_count": device.cu_count,
    }

    def holds(expression: Any, values: Mapping[str, Any]) -> Any:
        return expression.evaluate({**constants, **values})

    written = [_Condition(e.text, e.where, e.names - constants.keys(), partial(holds, e)) for e in space.constraints]
    default = space.config_type()
    return written + [_rule_condition(rule, default, shape, device) for rule in space.config_type.RULES]


class _Enumeration:
    """The points over the knobs joined so far."""

    def __init__(self, space: SearchSpace, shape: GemmShape, device: DeviceKey) -> None:
        self.space = space
        self.what = f"{space.family} at {shape} on {device}"
        self.choices = {name: np.asarray(values) for name, values in space.parameters.items()}
        self.waiting = _conditions(space, shape, device)
        self.codes: Codes = {}
        self.points = 1

    def join(self, name: str) -> None:
        """Combine each point with each choice of ``name``."""
        width = len(self.choices[name])
        if self.points * width > MAX_POINTS:
            raise InputError(
                f"{self.space.source}: {self.what} has more than {MAX_POINTS} points up to {name}; "
                "shorten its list, or move knobs that a constraint names to the top"
            )
        self.codes = {known: np.repeat(codes, width) for known, codes in self.codes.items()}
        self.codes[name] = np.tile(np.arange(width, dtype=np.int8), self.points)
        self.points *= width

    def filter(self) -> None:
        """Apply each waiting condition whose names are all known."""
        known = self.codes.keys() | self.space.fixed.keys()
        ready = [condition for condition in self.waiting if condition.names <= known]
        self.waiting = [condition for condition in self.waiting if not condition.names <= known]
        for condition in ready:
            self.apply(condition)

    def apply(self, condition: _Condition) -> None:
        kept = np.broadcast_to(condition.holds(self.values(condition.names)), (self.points,))
        lost = self.points - int(np.count_nonzero(kept))
        if lost == self.points:
            self.fail(condition)
        if lost:
            self.codes = {name: codes[kept] for name, codes in self.codes.items()}
            self.points -= lost

    def values(self, names: Iterable[str]) -> dict[str, Any]:
        fixed = self.space.fixed
        return {
            name: self.choices[name][self.codes[name]] if name in self.codes else np.asarray(fixed[name])
            for name in names
        }

    def fail(self, condition: _Condition) -> None:
        """Raise for the condition that removed the last points."""
        cure = f"loosen it, or add values of {', '.join(sorted(condition.names)) or 'other knobs'}"
        if condition.where:
            problem = f"{condition.where}: no point of {self.what} is legal: constraint {condition.text!r}"
        else:
            sample = {n: np.atleast_1d(v)[0] for n, v in self.values(condition.names).items()}
            reason = condition.text.format(**{**self.space.config_type().to_dict(), **sample})
            problem = f"{self.space.source}: no point of {self.what} is legal: {reason}"
            if not condition.names:
                raise InputError(f"{problem}; choose another family")
            problem += "; this rule"
            cure = f"add values of {', '.join(sorted(condition.names))} to parameters"
        raise InputError(f"{problem} removes the last {self.points}; {cure}")


def _keys(space: SearchSpace, codes: Codes) -> npt.NDArray[np.int64]:
    keys = np.zeros(1, dtype=np.int64)
    for name, choices in space.parameters.items():
        keys = keys * len(choices) + codes[name]
    return keys


def _frame(space: SearchSpace, codes: Codes, points: int) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name, default in space.config_type().to_dict().items():
        choices = space.parameters.get(name, (default,))
        column = codes.get(name, np.zeros(points, dtype=np.int8))
        if isinstance(default, str):
            columns[name] = pd.Categorical.from_codes(column, categories=pd.Index(choices, dtype="str"))
        else:
            columns[name] = np.asarray(choices, dtype=np.int32)[column]
    return pd.DataFrame(columns, index=pd.RangeIndex(points), copy=False)
