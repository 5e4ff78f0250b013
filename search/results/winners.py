"""The best trial of each shape: measured before predicted, fastest, and inside the noise the safest."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from kernels.config import KernelConfig, violations
from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.tables.rows import Evidence, TunedTable
from search.evaluation import Point
from search.results.columns import CONFIG, cost_us

PREDICTED_TIE = 1e-9  # relative, where a model says nothing: equal work is predicted equal up to rounding
RESOURCES = ("vgprs", "lds_bytes", "kernels")  # fewer is safer: occupancy to spare, fewer launches
NUMBERS = (
    "cost_us", "spread_us", "measured", "selected", "present", "safe", "predicted_tie", "margin_us",
    "roofline_fraction",
)  # fmt: skip
KEY = ["arch", "cu_count", "N", "K", "M"]  # of one competition
DECIDING = [
    *KEY, "family", "evidence", "time_us", "time_lo_us", "time_hi_us", "predicted_us", "predicted_tie", "margin_us",
    "deterministic", "protocol", "model", "source_hash", "started", "trial", "selected", "roofline_fraction",
    *RESOURCES,
]  # fmt: skip
Preference = tuple[bool, bool, tuple[float, ...], float]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Winner:
    """The trial that wins a shape.

    Args:
        spread_us: ``time_hi_us - time_lo_us`` of a measured trial, if known.
        deterministic: Whether every run gives the same bits.
        margin: How much slower the runner-up is, as a part of ``cost_us``; None without one.
        row: Label of the trial in the DataFrame.
        equals: Labels of the trials that it cannot be told from, itself included.
    """

    device: DeviceKey
    shape: GemmShape
    family: str
    config: KernelConfig
    evidence: Evidence
    cost_us: float
    spread_us: float | None
    deterministic: bool
    margin: float | None
    roofline_fraction: float | None
    row: Any
    equals: tuple[Any, ...] = ()


def shapes_of(frame: pd.DataFrame) -> list[tuple[DeviceKey, GemmShape]]:
    """Every (device, shape) that has a trial, in the order of N, K, M."""
    keys: list[Any] = list(frame[KEY].drop_duplicates().itertuples(index=False, name=None))
    ordered = sorted((str(arch), int(cu), int(N), int(K), int(M)) for arch, cu, N, K, M in keys)
    return [(DeviceKey(arch, cu_count), GemmShape(M, N, K)) for arch, cu_count, N, K, M in ordered]


def winners(
    frame: pd.DataFrame, incumbents: TunedTable | None = None, *, deterministic_only: bool = False
) -> list[Winner]:
    """The winner of each (device, shape) that has one, in the order of N, K, M.

    Only ``ok`` trials of known families compete. Times that cannot be compared do not: measured trials exclude
    predicted ones, trials of the present kernels those of older ones, and the newest protocol or model the others.
    A trial that won the finals of its shape, timed side by side with the others, wins here. Elsewhere, of the trials
    within the noise of the fastest (of predicted ones: closer than the model tells apart), the incumbent wins, then a
    deterministic one, then, of predicted ones, the one with more knobs at their defaults, then the one with fewer
    resources, then the faster one.

    Args:
        incumbents: Table whose rows win ties on its own device.
        deterministic_only: Leave out trials whose result may vary.
    """
    return Competition.of(frame, deterministic_only=deterministic_only).winners(incumbents)


def slowdowns(
    frame: pd.DataFrame, points: Callable[[DeviceKey, GemmShape], Collection[Point]]
) -> dict[tuple[DeviceKey, GemmShape], dict[Point, float]]:
    """As :meth:`Competition.slowdowns`."""
    return Competition.of(frame).slowdowns(points)


def _points(table: TunedTable | None, device: DeviceKey, shape: GemmShape) -> list[Point]:
    """Family and configuration of the rows of ``table`` for exactly this shape."""
    rows = table.rows if table is not None and table.device == device else ()
    return [(row.family, row.config) for row in rows if row.shape == shape]


def _eligible(frame: pd.DataFrame, deterministic_only: bool) -> pd.DataFrame:
    """Trials that may win, oldest first, the latest of each configuration and kind of time, with what decides.

    Adds ``cost_us``, ``safe`` (deterministic), ``how`` (protocol or model) and ``present`` (of today's kernels).
    """
    known = ((frame["outcome"] == "ok").fillna(False) & frame["family"].isin(list(FAMILIES))).to_numpy(bool)
    columns = {name: frame[name].array[known] for name in (*DECIDING, *CONFIG)}  # copied once
    rows = pd.DataFrame(columns, index=frame.index[known])
    always = rows["family"].map({name: family.deterministic for name, family in FAMILIES.items()}).astype("boolean")
    rows["cost_us"] = cost_us(rows)
    rows["safe"] = always & rows["deterministic"].fillna(True)
    rows["how"] = rows["protocol"].where((rows["evidence"] == "measured").fillna(False), rows["model"]).fillna("")
    recorded = rows["source_hash"].astype(object).where(rows["source_hash"].notna(), None)
    rows["present"] = [FAMILIES[family].made(known) for family, known in zip(rows["family"], recorded, strict=True)]
    rows = rows[rows["cost_us"].notna() & rows["evidence"].notna() & (rows["safe"] | (not deterministic_only))]
    rows = rows.sort_values(["started", "trial"], na_position="first", kind="stable")
    return rows.drop_duplicates([*KEY, "family", *CONFIG, "evidence", "how", "present"], keep="last")


@dataclass(frozen=True, eq=False)
class Competition:
    """Eligible trials as arrays [trials], so that thousands of shapes take seconds.

    Args:
        rows: What they compete for.
        labels: Of them in the results.
        how: Protocol or model.
        numbers: Columns of numbers; NaN where one is unknown.
        knobs: Configuration fields of each family, defaults where NA.
    """

    rows: pd.DataFrame
    labels: Array
    families: Array
    how: Array
    numbers: Mapping[str, Array]
    knobs: Mapping[str, Mapping[str, Array]]

    @classmethod
    def of(cls, frame: pd.DataFrame, *, deterministic_only: bool = False) -> Competition:
        """Those of the results ``frame`` that may win."""
        rows = _eligible(frame, deterministic_only)
        rows["measured"] = rows["evidence"] == "measured"
        rows["spread_us"] = rows["time_hi_us"] - rows["time_lo_us"]
        arrays: dict[tuple[str, Any], Array] = {}  # one for all families with the same default
        for knob, value in {pair for family in FAMILIES.values() for pair in family.config_type().to_dict().items()}:
            dtype = type(value) if isinstance(value, int) else object
            arrays[knob, value] = rows[knob].fillna(value).to_numpy(dtype=dtype)
        knobs = {
            name: {knob: arrays[knob, value] for knob, value in family.config_type().to_dict().items()}
            for name, family in FAMILIES.items()
        }
        return cls(
            rows[KEY], rows.index.to_numpy(object), rows["family"].to_numpy(object), rows["how"].to_numpy(object),
            {name: rows[name].to_numpy(float, na_value=np.nan) for name in (*NUMBERS, *RESOURCES)}, knobs,
        )  # fmt: skip

    def winners(self, incumbents: TunedTable | None = None) -> list[Winner]:
        """See :func:`winners`."""
        return [
            self.winner(device, shape, best, _points(incumbents, device, shape)) for device, shape, best in self.best
        ]

    def slowdowns(
        self, points: Callable[[DeviceKey, GemmShape], Collection[Point]]
    ) -> dict[tuple[DeviceKey, GemmShape], dict[Point, float]]:
        """How much slower other points are than the winner of each (device, shape), as a part of the winner's time.

        A point without a trial that can be compared with the winner is left out; one that only lost a tie is 0 slower.
        """
        found: dict[tuple[DeviceKey, GemmShape], dict[Point, float]] = {}
        for device, shape, best in self.best:
            winner_us = self.winner(device, shape, best, []).cost_us
            times = {point: self.times_us(best, point) for point in points(device, shape)}
            found[device, shape] = {p: max(0.0, us[0] / winner_us - 1) for p, us in times.items() if len(us)}
        return found

    @cached_property
    def best(self) -> list[tuple[DeviceKey, GemmShape, Array]]:
        """Each (device, shape) with a winner, in the order of N, K, M, and the trials that are compared there."""
        compared = [
            (device, shape, self.comparable(self.legal(members, shape, device)))
            for device, shape, members in self.groups()
        ]
        return [one for one in compared if len(one[-1])]

    def groups(self) -> Iterator[tuple[DeviceKey, GemmShape, Array]]:
        """Positions of the trials of each (device, shape), oldest first."""
        found: dict[Any, Any] = dict(self.rows.groupby(KEY, sort=True).indices)
        for (arch, cu_count, N, K, M), members in sorted(found.items()):
            yield DeviceKey(str(arch), int(cu_count)), GemmShape(int(M), int(N), int(K)), members

    def legal(self, members: Array, shape: GemmShape, device: DeviceKey) -> Array:
        """Those that today's rules allow; older trials may have been judged by others."""
        names = self.families[members]
        legal = np.ones(len(members), bool)
        for name in set(names):
            mine = names == name
            columns = {knob: values[members[mine]] for knob, values in self.knobs[name].items()}
            for _, broken in violations(FAMILIES[name].config_type, columns, shape, device):
                legal[mine] &= ~broken
        return members[legal]

    def comparable(self, members: Array) -> Array:
        """The best-evidenced trials with one kind of time, fastest first."""
        for better in ("measured", "present"):
            chosen = members[self.numbers[better][members] == 1]
            members = chosen if len(chosen) else members
        same: Array = members[self.how[members] == self.how[members[-1:]]]
        order: Array = np.argsort(self.numbers["cost_us"][same], kind="stable")
        return same.take(order)

    def times_us(self, members: Array, point: Point) -> list[float]:
        """Costs of the trials of ``point`` among ``members``, in their order."""
        family, config = point
        mine = self.families[members] == family
        for knob, value in config.to_dict().items():
            mine &= self.knobs[family][knob][members] == value
        return [float(cost) for cost in self.numbers["cost_us"][members[mine]]]

    def winner(self, device: DeviceKey, shape: GemmShape, members: Array, incumbents: list[Point]) -> Winner:
        """The one to prefer among those that are as good as the fastest, ``members[0]``."""
        costs_us, spreads_us = self.numbers["cost_us"][members], np.nan_to_num(self.numbers["spread_us"][members])
        measured = bool(self.numbers["measured"][members[0]])
        tie = self._or(members[0], "predicted_tie", PREDICTED_TIE)
        noise_us = np.maximum(spreads_us, spreads_us[0]) if measured else costs_us[0] * tie
        tied = members[costs_us <= costs_us[0] + noise_us]
        finals = members[self.numbers["selected"][members] == 1]
        if len(finals):
            tied = np.array([finals.max()])  # the latest
        chosen = min(tied, key=lambda trial: self._preference(trial, incumbents)) if len(tied) > 1 else tied[0]
        return Winner(
            device, shape, str(self.families[chosen]), self._config(chosen), "measured" if measured else "predicted",
            float(self.numbers["cost_us"][chosen]),
            spread_us=self._known(chosen, "spread_us") if measured else None,
            deterministic=bool(self.numbers["safe"][chosen]),
            margin=self._margin(chosen, costs_us[members != chosen]),
            roofline_fraction=self._known(chosen, "roofline_fraction"),
            row=self.labels[chosen],
            equals=tuple(self.labels[tied]),
        )  # fmt: skip

    def _known(self, trial: int, name: str) -> float | None:
        value = float(self.numbers[name][trial])
        return None if math.isnan(value) else value

    def _or(self, trial: int, name: str, otherwise: float) -> float:
        known = self._known(trial, name)
        return otherwise if known is None else known

    def _margin(self, trial: int, rest: Array) -> float | None:
        """How much slower the next one is: by the paired differences of the finals, else by the times of the search."""
        cost_us, margin_us = float(self.numbers["cost_us"][trial]), self._known(trial, "margin_us")
        if margin_us is not None:
            return margin_us / cost_us
        return float(rest[0]) / cost_us - 1 if len(rest) else None

    def _config(self, trial: int) -> KernelConfig:
        family = str(self.families[trial])
        values = {knob: column[trial] for knob, column in self.knobs[family].items()}
        return FAMILIES[family].config({k: v if isinstance(v, str) else int(v) for k, v in values.items()})

    def _preference(self, trial: int, incumbents: list[Point]) -> Preference:
        resources = tuple(self._or(trial, name, math.inf) for name in RESOURCES)
        config = self._config(trial)
        if not self.numbers["measured"][trial]:
            resources = (_unusual(config), *resources)
        incumbent = (str(self.families[trial]), config) in incumbents
        safe, cost_us = bool(self.numbers["safe"][trial]), float(self.numbers["cost_us"][trial])
        return preference(incumbent, safe, resources, cost_us)


def preference(incumbent: bool, deterministic: bool, resources: tuple[float, ...], time_us: float) -> Preference:
    """Sorts the one to prefer first, among those whose times cannot be told apart.

    Args:
        resources: What it needs of :data:`RESOURCES`, infinite where unknown.
    """
    return (not incumbent, not deterministic, resources, time_us)


def _unusual(config: KernelConfig) -> int:
    """How many knobs differ from their defaults: what a model cannot tell apart is no reason to move one."""
    usual = type(config)().to_dict()
    return sum(value != usual[name] for name, value in config.to_dict().items())


def config_of(row: pd.Series[Any] | Mapping[Any, Any]) -> KernelConfig:
    """Configuration of a trial; a field that its version did not record has the default."""
    family = FAMILIES[str(row["family"])]
    known = {name: row[name] for name in family.config_type().to_dict() if not pd.isna(row[name])}
    return family.config({name: value if isinstance(value, str) else int(value) for name, value in known.items()})
