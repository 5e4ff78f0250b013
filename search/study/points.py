"""The legal points of one shape over all families, which of them were tried, and how they look to Optuna."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Protocol, get_args, get_type_hints

import numpy as np
import numpy.typing as npt
import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from kernels.config import KernelConfig
from kernels.families import FAMILIES


class LegalPoints(Protocol):
    """The legal configurations of one family; ``search.space.legal_set.LegalSet`` is one."""

    @property
    def frame(self) -> pd.DataFrame:
        """One row a point, one column a field."""

    def __len__(self) -> int: ...

    def config(self, index: int) -> KernelConfig:
        """The configuration in row ``index``."""

    def index_of(self, config: KernelConfig) -> int | None:
        """Its row, or None if it is not legal."""


class Points:
    """Every legal point of a shape, with a mark on those that were tried or are being tried.

    Args:
        doubtful: By family, which points [points] are left until no other is; they can still be tried by name.
    """

    def __init__(
        self,
        legal: Mapping[str, LegalPoints],
        seed: int,
        doubtful: Mapping[str, npt.NDArray[np.bool_]] | None = None,
    ) -> None:
        self.legal = {family: points for family, points in legal.items() if len(points)}
        self.total = sum(len(points) for points in self.legal.values())
        self._untried = {family: np.ones(len(points), dtype=bool) for family, points in self.legal.items()}
        starts = itertools.accumulate(map(len, self.legal.values()), initial=0)
        self._begins = dict(zip(self.legal, starts, strict=False))  # number of each family's first point
        self._doubtful = doubtful or {}
        self._coordinates: dict[str, npt.NDArray[np.float32]] = {}
        self._random = np.random.default_rng(seed)

    @property
    def untried(self) -> int:
        """How many points are left."""
        return int(sum(mask.sum() for mask in self._untried.values()))

    def is_untried(self, family: str, config: KernelConfig) -> bool:
        """Whether ``config`` is legal and was not tried."""
        index = self.legal[family].index_of(config) if family in self.legal else None
        return index is not None and bool(self._untried[family][index])

    def mark(self, family: str, config: KernelConfig) -> None:
        """Note that ``config`` is tried; unknown points are ignored."""
        self._set_untried(family, config, untried=False)

    def reopen(self, family: str, config: KernelConfig) -> None:
        """Note that ``config`` was not tried after all."""
        self._set_untried(family, config, untried=True)

    def _set_untried(self, family: str, config: KernelConfig, *, untried: bool) -> None:
        index = self.legal[family].index_of(config) if family in self.legal else None
        if index is not None:
            self._untried[family][index] = untried

    def number(self, family: str, config: KernelConfig) -> int | None:
        """Place of ``config`` among the points of all families; None where it is not legal."""
        if family not in self.legal:
            return None
        index = self.legal[family].index_of(config)
        return None if index is None else int(self._begins[family]) + index

    def at(self, number: int) -> tuple[str, KernelConfig]:
        """The point in place ``number``."""
        family = max((name for name, begin in self._begins.items() if begin <= number), key=self._begins.__getitem__)
        return family, self.legal[family].config(number - self._begins[family])

    @property
    def last(self) -> npt.NDArray[np.bool_]:
        """Which points are left until no other is [points of all families]."""
        flags = [self._doubtful.get(family, np.zeros(len(mask), np.bool_)) for family, mask in self._untried.items()]
        return np.concatenate(flags) if flags else np.zeros(0, np.bool_)

    def first(self) -> tuple[str, KernelConfig]:
        """The untried point that comes first, taking the families in turn by the share of each that is done."""
        family = min(self._open(), key=lambda name: 1 - self._untried[name].mean())
        return family, self.legal[family].config(int(self._choice(family)[0]))

    def random(self, family: str | None = None) -> tuple[str, KernelConfig]:
        """An untried point: a family at random unless given, then a point of it, each with equal chances."""
        open_families = self._open()
        if family not in open_families:
            family = open_families[self._random.integers(len(open_families))]
        index = self._random.choice(self._choice(family))
        return family, self.legal[family].config(int(index))

    def nearest(self, family: str, values: Mapping[str, Any]) -> tuple[str, KernelConfig]:
        """The untried point closest to ``values``; another family if this one has none left.

        Distance: each field's span counts 1; powers of two by exponent; text differs by 1. Ties at random.
        """
        if family not in self._open():
            return self.random()
        points = self.legal[family]
        rows = self._choice(family)
        table = self._table(family)[rows]
        target = _coordinates(pd.DataFrame([values], columns=points.frame.columns, index=[0]), points.frame)
        distance = np.abs(table - target).sum(axis=1)
        closest = rows[distance <= distance.min() + 1e-6]
        return family, points.config(int(self._random.choice(closest)))

    def _open(self) -> list[str]:
        """Families with points to try; those with nothing but doubtful ones only when all are like that."""
        promising = [family for family in self._untried if self._promising(family).any()]
        return promising or [family for family, mask in self._untried.items() if mask.any()]

    def _promising(self, family: str) -> npt.NDArray[np.bool_]:
        untried = self._untried[family]
        return untried & ~self._doubtful[family] if family in self._doubtful else untried

    def _choice(self, family: str) -> npt.NDArray[np.intp]:
        """Rows of the family to choose from."""
        promising = np.flatnonzero(self._promising(family))
        return promising if len(promising) else np.flatnonzero(self._untried[family])

    def _table(self, family: str) -> npt.NDArray[np.float32]:
        if family not in self._coordinates:
            frame = self.legal[family].frame
            self._coordinates[family] = _coordinates(frame, frame)
        return self._coordinates[family]


def _coordinates(frame: pd.DataFrame, whole: pd.DataFrame) -> npt.NDArray[np.float32]:
    """Rows of ``frame`` as points of a cube whose sides are the value ranges of ``whole``."""
    columns: list[npt.NDArray[Any]] = [np.zeros(len(frame))]  # of a family without knobs, all that there is
    for name in whole.columns:
        if pd.api.types.is_numeric_dtype(whole[name]):
            low, high = (_exponent(np.array([f(whole[name])]))[0] for f in (np.min, np.max))
            columns.append((_exponent(frame[name].to_numpy()) - low) / max(high - low, 1e-9))
        else:
            columns += [(frame[name] == value).to_numpy() / 2 for value in sorted(whole[name].unique())[1:]]
    return np.stack(columns, axis=1).astype(np.float32)


def _exponent(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.log2(values.astype(np.float64) + 1)


def family_distribution() -> CategoricalDistribution:
    """Of the parameter ``family``: always every family, so that a study can be resumed with others."""
    return CategoricalDistribution(sorted(FAMILIES))


def distributions(points: Points) -> dict[str, dict[str, BaseDistribution]]:
    """Optuna's view of each family's fields: integers by their range, texts by the values seen in any family."""
    frames = {family: legal.frame for family, legal in points.legal.items()}
    names = sorted({str(name) for frame in frames.values() for name in frame.columns})
    merged: dict[str, BaseDistribution] = {}
    for name in names:
        values = {value for frame in frames.values() if name in frame.columns for value in frame[name].unique()}
        merged[name] = _distribution(name, sorted(values))
    return {family: {str(name): merged[str(name)] for name in frame.columns} for family, frame in frames.items()}


def _distribution(name: str, values: list[Any]) -> BaseDistribution:
    if isinstance(values[0], str):
        return CategoricalDistribution(text_choices(name))
    low, high = int(min(values)), int(max(values))
    return IntDistribution(low, high, log=low >= 1)


def text_choices(name: str) -> tuple[str, ...]:
    """Values that the configuration classes allow for text field ``name``, the same in every study.

    Raises:
        KeyError: No configuration has such a field.
    """
    for family in FAMILIES.values():
        hints = get_type_hints(family.config_type)
        if name in hints:
            return get_args(hints[name])
    raise KeyError(name)


def suggest(trial: optuna.Trial, spaces: Mapping[str, Mapping[str, BaseDistribution]]) -> tuple[str, KernelConfig]:
    """The point that the sampler chose for ``trial``."""
    family = str(trial.suggest_categorical("family", family_distribution().choices))
    values: dict[str, Any] = {}
    for name, distribution in spaces[family].items():
        if isinstance(distribution, IntDistribution):
            values[name] = trial.suggest_int(name, distribution.low, distribution.high, log=distribution.log)
        elif isinstance(distribution, CategoricalDistribution):
            values[name] = trial.suggest_categorical(name, distribution.choices)
    return family, FAMILIES[family].config(values)


def parameters(point: tuple[str, KernelConfig] | None, spaces: Mapping[str, Mapping[str, BaseDistribution]]) -> Any:
    """``params`` and ``distributions`` of an earlier trial at ``point``, as Optuna's samplers learn from them.

    A value outside of today's range widens it; a family or a word that there is no more is left out.
    """
    if point is None:
        return {}
    family, config = point
    values: dict[str, Any] = config.to_dict()
    held = {name: _holding(of, values[name]) for name, of in spaces.get(family, {}).items()}
    held = {"family": family_distribution()} | {name: of for name, of in held.items() if of is not None}
    return {"params": {name: values.get(name, family) for name in held}, "distributions": held}


def _holding(distribution: BaseDistribution, value: Any) -> BaseDistribution | None:
    if isinstance(distribution, IntDistribution):
        low, high = min(distribution.low, value), max(distribution.high, value)
        return IntDistribution(low, high, log=low >= 1)
    return distribution if isinstance(distribution, CategoricalDistribution) and value in distribution.choices else None
