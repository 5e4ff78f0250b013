"""What trials of other shapes say about the points of this one, before any is tried here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from kernels.problem import GemmShape
from search.study.covariance import Covariance, PointTable, fit, prior, slowness, standardised
from search.study.earlier import OtherShape
from search.study.features import Floats, PointSpace, Rows, knob_values, scaled
from search.study.posterior import Posterior

TRIALS: Final = 120  # of each other shape
POINTS: Final = 16_000  # of this shape, for which something is expected


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
