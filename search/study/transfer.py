"""What trials of other shapes say about the points of this one, before any is tried here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.evaluation import TIMED
from search.results.columns import rows_of
from search.results.winners import config_of
from search.study.covariance import Covariance, Floats, PointTable, Rows, fit, prior, slowness, standardised
from search.study.features import PointSpace, knob_values, scaled
from search.study.posterior import Posterior
from search.study.priors import distance

TRIALS: Final = 120  # of each other shape
SHAPES: Final = 3  # others, the nearest
POINTS: Final = 16_000  # of this shape, for which something is expected
FEWEST: Final = 8  # trials that say something of a shape


@dataclass(frozen=True, eq=False)
class OtherShape:
    """Trials of another shape on the same device.

    Args:
        frames: By family, one row a trial and one column a knob.
        times: Of the trials of all families, in order [trials].
    """

    shape: GemmShape
    frames: Mapping[str, pd.DataFrame]
    times: Floats


def other_shapes(frame: pd.DataFrame, shape: GemmShape, device: DeviceKey, protocol: str) -> list[OtherShape]:
    """Trials with times of the shapes nearest to ``shape`` in earlier results for ``device``.

    Args:
        protocol: How their studies judged, as their names tell; times of different protocols are never mixed.
    """
    rows = rows_of(frame, device)
    rows = rows[rows["study"].str.split("/").str[2] == protocol]
    rows = rows[rows["selected"].isna() & rows["outcome"].isin(TIMED) & rows["family"].isin(FAMILIES)]
    rows = rows.assign(taken_us=rows["time_us"].fillna(rows["predicted_us"])).dropna(subset="taken_us")
    shapes = [GemmShape(int(M), int(N), int(K)) for M, N, K in zip(rows["M"], rows["N"], rows["K"], strict=True)]
    groups = dict(tuple(rows.groupby(pd.Series(shapes, rows.index, object), sort=False)))
    groups = {other: group for other, group in groups.items() if other != shape and len(group) >= FEWEST}
    near = sorted(groups, key=lambda other: distance(shape, other))[:SHAPES]
    return [_other(other, groups[other]) for other in near]


def _other(shape: GemmShape, rows: pd.DataFrame) -> OtherShape:
    families = dict(tuple(rows.groupby("family", sort=False)))
    frames = {
        str(family): pd.DataFrame([config_of(row).to_dict() for _, row in group.iterrows()])
        for family, group in families.items()
    }
    times = np.concatenate([group["taken_us"].to_numpy(np.float64) for group in families.values()])
    return OtherShape(shape, frames, times)


def expected_by(
    others: Sequence[OtherShape],
    frames: Mapping[str, pd.DataFrame],
    shape: GemmShape,
    cu_count: int,
    estimate_us: Floats | None,
) -> Floats:
    """What other shapes' trials make expect of every point [points]; of a large space, of those with small estimates.

    NaN where nothing is expected. Arguments as for :func:`transferred` and ``PointSpace``.
    """
    count = sum(map(len, frames.values()))
    points = np.arange(count)
    if count > POINTS:
        points = points[:POINTS] if estimate_us is None else np.sort(np.argsort(estimate_us)[:POINTS])
    expected = np.full(count, np.nan)
    expected[points] = transferred(frames, points, shape, cu_count, others)
    return expected


def transferred(
    frames: Mapping[str, pd.DataFrame], points: Rows, shape: GemmShape, cu_count: int, others: Sequence[OtherShape]
) -> Floats:
    """What the trials of other shapes make expect of some points of this one [points]; more is slower.

    Args:
        frames: Of this shape, by family.
        others: Trials of others.
    """
    values = knob_values([frames, *(other.frames for other in others)])
    chosen = [_sample(other.times) for other in others]
    parts = [_columns(frames, points, shape, cu_count, values)]
    for other, rows in zip(others, chosen, strict=True):
        parts.append(_columns(other.frames, rows, other.shape, cu_count, values))
    table = PointTable(scaled(np.concatenate(parts)))
    slower = [slowness(other.times[rows], other.times.min()) for other, rows in zip(others, chosen, strict=True)]
    targets = standardised(np.concatenate(slower))
    tried = np.arange(len(points), len(table))
    parameters = fit(table, tried, targets, prior(table.width)[0])
    return Posterior(Covariance(table, parameters), tried).mean(targets)[: len(points)]


def _columns(
    frames: Mapping[str, pd.DataFrame], rows: Rows, shape: GemmShape, cu_count: int, values: Mapping[str, Any]
) -> Floats:
    """Features of some rows of ``frames``, in units that mean the same at every shape [rows, features]."""
    knobs, parts = PointSpace(frames, shape=shape, cu_count=cu_count, values=values).columns(rows)
    extents = [np.full(len(rows), np.log2(extent)) for extent in (shape.M, shape.N, shape.K)]
    return np.column_stack([knobs, *parts, *extents])


def _sample(times: Floats) -> Rows:
    """The fastest half of the trials taken, and others evenly from the rest."""
    order = np.argsort(times)
    if len(order) <= TRIALS:
        return order
    rest = np.linspace(TRIALS // 2, len(order) - 1, TRIALS - TRIALS // 2).astype(np.intp)
    return np.concatenate([order[: TRIALS // 2], order[rest]])
