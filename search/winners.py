"""The best trial of each shape: measured before predicted, fastest, and inside the noise the safest."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from kernels.config import TileConfig, violations
from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.source_hash import source_hash
from kernels.tables import TunedTable
from search.columns import CONFIG
from search.evaluate import Evidence

PREDICTED_TIE = 1e-9  # relative; equal work is predicted equal up to rounding
RESOURCES = ("vgprs", "lds_bytes", "kernels")  # fewer is safer: occupancy to spare, fewer launches
LAST = math.inf  # where an unknown resource sorts

KEY = ["arch", "cu_count", "N", "K", "M"]  # of one competition

Point = tuple[str, TileConfig]


@dataclass(frozen=True)
class Winner:
    """The trial that wins a shape.

    Args:
        device: What it is valid for.
        shape: Problem.
        family: Of the trial.
        config: Of the trial.
        evidence: Whether ``cost_us`` was measured or predicted.
        cost_us: Microseconds.
        spread_us: ``time_hi_us - time_lo_us`` of a measured trial, if known.
        deterministic: Whether every run gives the same bits.
        margin: How much slower the runner-up is, as a part of ``cost_us``; None without one.
        roofline_fraction: As recorded.
        row: Label of the trial in the DataFrame.
    """

    device: DeviceKey
    shape: GemmShape
    family: str
    config: TileConfig
    evidence: Evidence
    cost_us: float
    spread_us: float | None
    deterministic: bool
    margin: float | None
    roofline_fraction: float | None
    row: Any


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
    within the noise of the fastest, the incumbent wins, then a deterministic one, then the one with fewer resources,
    then the faster one.

    Args:
        frame: Results with all columns.
        incumbents: Table whose rows win ties on its own device.
        deterministic_only: Leave out trials whose result may vary.
    """
    found = []
    for device, shape, rows in _groups(_eligible(frame, deterministic_only)):
        legal = rows[_legal(rows, shape, device)]
        if len(legal):
            found.append(_winner(device, shape, _comparable(legal), _points(incumbents, device, shape)))
    return found


def _points(table: TunedTable | None, device: DeviceKey, shape: GemmShape) -> list[Point]:
    """Family and configuration of the rows of ``table`` for exactly this shape."""
    rows = table.rows if table is not None and table.device == device else ()
    return [(row.family, row.config) for row in rows if row.shape == shape]


def _eligible(frame: pd.DataFrame, deterministic_only: bool) -> pd.DataFrame:
    """Trials that may win, with ``cost_us`` and ``safe`` (deterministic) added."""
    rows = frame[(frame["outcome"] == "ok").fillna(False) & frame["family"].isin(list(FAMILIES))].copy()
    measured = (rows["evidence"] == "measured").fillna(False)
    rows["cost_us"] = rows["time_us"].where(measured, rows["predicted_us"])
    rows["safe"] = rows["family"].map({name: family.deterministic for name, family in FAMILIES.items()}).astype(
        "boolean"
    ) & rows["deterministic"].fillna(True)
    rows = rows[rows["cost_us"].notna() & rows["evidence"].notna()]
    return rows[rows["safe"]] if deterministic_only else rows


def _groups(rows: pd.DataFrame) -> Iterator[tuple[DeviceKey, GemmShape, pd.DataFrame]]:
    key: Any
    for key, group in rows.groupby(KEY, sort=True):
        arch, cu_count, N, K, M = key
        yield DeviceKey(str(arch), int(cu_count)), GemmShape(int(M), int(N), int(K)), group


def _legal(rows: pd.DataFrame, shape: GemmShape, device: DeviceKey) -> Any:
    """Which configurations today's rules allow; older trials may have been judged by others."""
    legal = pd.Series(True, index=rows.index)
    for name, part in rows.groupby("family"):
        config_type = FAMILIES[str(name)].config_type
        columns = {knob: part[knob].fillna(value).to_numpy() for knob, value in config_type().to_dict().items()}
        for _, broken in violations(config_type, columns, shape, device):
            legal.loc[part.index] &= ~broken
    return legal


def _comparable(rows: pd.DataFrame) -> pd.DataFrame:
    """The best-evidenced trials of one kind of time, the latest of each configuration, fastest first."""
    measured = rows["evidence"] == "measured"
    rows = rows[measured] if measured.any() else rows
    present = (rows["source_hash"] == source_hash()).fillna(False)
    rows = rows[present] if present.any() else rows
    rows = rows.sort_values(["started", "trial"], na_position="first", kind="stable")
    how = rows["protocol"] if measured.any() else rows["model"]
    same = how.isna() if how.iloc[-1] is pd.NA else (how == how.iloc[-1]).fillna(False)
    latest = rows[same].drop_duplicates(["family", *CONFIG], keep="last")
    return latest.sort_values("cost_us", kind="stable")


def _winner(device: DeviceKey, shape: GemmShape, rows: pd.DataFrame, incumbents: list[Point]) -> Winner:
    best = rows.iloc[0]
    selected = rows[rows["selected"].fillna(False)]
    if len(selected):
        label = selected["started"].sort_values(kind="stable").index[-1]
    else:
        tied = rows[rows["cost_us"] <= best["cost_us"] + _noise_us(rows, best)]
        order = [(_preference(row, incumbents), label) for label, row in tied.iterrows()]
        label = min(order, key=lambda item: item[0])[1]
    row = rows.loc[label]
    rest = rows["cost_us"].drop(label)
    cost_us = float(row["cost_us"])
    return Winner(
        device, shape, str(row["family"]), config_of(row), row["evidence"], cost_us,
        spread_us=_known(_spread_us(row)) if row["evidence"] == "measured" else None,
        deterministic=bool(row["safe"]),
        margin=_margin(row, rest),
        roofline_fraction=_known(row["roofline_fraction"]),
        row=label,
    )  # fmt: skip


def _margin(row: pd.Series[Any], rest: pd.Series[Any]) -> float | None:
    """How much slower the next one is: by the paired differences of the finals, else by the times of the search."""
    if not pd.isna(row["margin_us"]):
        return float(row["margin_us"]) / float(row["cost_us"])
    return float(rest.iloc[0]) / float(row["cost_us"]) - 1 if len(rest) else None


def _noise_us(rows: pd.DataFrame, best: pd.Series[Any]) -> Any:
    """How far each trial may lie behind the fastest without being slower: the wider of the two spreads."""
    if best["evidence"] == "predicted":
        return best["cost_us"] * PREDICTED_TIE
    own = (rows["time_hi_us"] - rows["time_lo_us"]).fillna(0.0)
    return own.clip(lower=_known(_spread_us(best)) or 0.0)


def _spread_us(row: pd.Series[Any]) -> Any:
    return row["time_hi_us"] - row["time_lo_us"]


def _known(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _preference(row: pd.Series[Any], incumbents: list[Point]) -> tuple[Any, ...]:
    """Sorts the trial to prefer among equals first."""
    is_incumbent = (row["family"], config_of(row)) in incumbents
    resources = tuple(LAST if pd.isna(row[name]) else int(row[name]) for name in RESOURCES)
    return (not is_incumbent, not row["safe"], *resources, float(row["cost_us"]))


def config_of(row: pd.Series[Any]) -> TileConfig:
    """Configuration of a trial; a field that its version did not record has the default."""
    family = FAMILIES[str(row["family"])]
    known = {name: row[name] for name in family.config_type().to_dict() if not pd.isna(row[name])}
    return family.config({name: value if isinstance(value, str) else int(value) for name, value in known.items()})
