"""What the search's model is told of a point before it is compiled: its knobs, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from kernels.problem import GemmShape

Floats: TypeAlias = npt.NDArray[np.float64]
Singles: TypeAlias = npt.NDArray[np.float32]
Rows: TypeAlias = npt.NDArray[np.intp]

FAMILY = "family"  # the column that tells families apart
A_BYTES, B_BYTES = 2.0, 0.5  # of one element: A as bfloat16, B as FP4


@dataclass(frozen=True)
class Described:
    """Some points as numbers.

    Args:
        knobs: Coordinates of the knobs alone [points, knobs].
        features: These, and what follows from them [points, features].
    """

    knobs: Singles
    features: Singles


class PointSpace:
    """The points of several families in one numbering, those of the first family first.

    Args:
        frames: By family, one row a point and one column a knob; a knob that a family lacks is missing there.
        shape: The problem, where the points are GEMM configurations; adds tiles, waves, steps and bytes.
        estimate_us: Times by a model [points], NaN where it has none; adds them, for measurements to correct.
        expected: What trials of other shapes make expect [points], NaN where nothing; more is slower.
        values: Values of each knob, as :func:`knob_values` finds them; default: those in ``frames``.
    """

    def __init__(
        self,
        frames: Mapping[str, pd.DataFrame],
        *,
        shape: GemmShape | None = None,
        cu_count: int = 1,
        estimate_us: Floats | None = None,
        expected: Floats | None = None,
        values: Mapping[str, npt.NDArray[Any]] | None = None,
    ) -> None:
        self.shape = shape
        self.cu_count = cu_count
        self.estimate_us = estimate_us
        self.expected = expected
        self.values = knob_values([frames]) if values is None else values
        tagged = [frame.assign(**{FAMILY: family}) for family, frame in frames.items()]
        self.codes = np.concatenate([self._codes(frame) for frame in tagged])  # [points, knobs], -1: missing
        self.families = np.repeat(np.arange(len(frames)), [len(frame) for frame in frames.values()])  # [points]

    def __len__(self) -> int:
        return len(self.codes)

    def _codes(self, frame: pd.DataFrame) -> npt.NDArray[np.int16]:
        codes = np.full((len(frame), len(self.values)), -1, np.int16)
        for column, (name, values) in enumerate(self.values.items()):
            if name in frame.columns:
                codes[:, column] = pd.Index(values).get_indexer(pd.Index(frame[name].astype(values.dtype)))
        return codes

    def neighbours(self, point: int) -> Rows:
        """Points that differ from ``point`` in one of the knobs that both have."""
        return np.flatnonzero(one_step_away(self.codes, self.codes[point]))

    def describe(self, points: Rows) -> Described:
        """Coordinates and features of some points, each scaled so that these points span 0 to 1."""
        knobs, parts = self.columns(points)
        if self.estimate_us is not None:
            parts.append(_filled(np.log(self.estimate_us[points])))
        if self.expected is not None:
            parts.append(_filled(self.expected[points]))
        return Described(scaled(knobs), scaled(np.column_stack([knobs, *parts])))

    def columns(self, points: Rows) -> tuple[Floats, list[Floats]]:
        """Coordinates of some points [points, knobs], and columns of what follows from them, in natural units."""
        columns = self._columns(points)
        knobs = _stacked([part for name, column in columns.items() for part in self._coordinates(name, column)])
        parts = [part for name, column in columns.items() for part in self._arithmetic(name, column)]
        if self.shape is not None:
            parts += gemm_features(columns, self.shape, self.cu_count)
        return knobs, parts

    def _columns(self, points: Rows) -> dict[str, npt.NDArray[Any]]:
        """Values of each knob; NaN or no text where a family lacks it."""
        columns = {}
        for (name, values), codes in zip(self.values.items(), self.codes[points].T, strict=True):
            columns[name] = np.append(values, "" if values.dtype == object else math.nan)[codes]
        return columns

    def _coordinates(self, name: str, column: npt.NDArray[Any]) -> list[Floats]:
        """Logarithm of a number, the smallest where it is missing; whether a text is each of its values but one."""
        values = self.values[name]
        if values.dtype == object:
            return [(column == value).astype(np.float64) for value in values[1:]]
        return [np.log2(np.where(np.isnan(column), values[0], column) + (values[0] < 1))]

    def _arithmetic(self, name: str, column: npt.NDArray[Any]) -> list[Floats]:
        """Largest power of two that divides a whole number: vectors, warps and banks come in powers of two."""
        values = self.values[name]
        if values.dtype == object or values[0] < 1 or not np.all(values == np.round(values)):
            return []
        if len(set(_odd_part(values))) == 1:  # as good as the logarithm
            return []
        whole = np.where(np.isnan(column), values[0], column)
        return [np.log2(whole / _odd_part(whole))]


def one_step_away(codes: npt.NDArray[np.int16], own: npt.NDArray[np.int16]) -> npt.NDArray[np.bool_]:
    """Which rows of ``codes`` differ from the row ``own`` in one of the knobs that both have [rows]."""
    return np.asarray(((codes != own) & (codes >= 0) & (own >= 0)).sum(axis=1) == 1)


def knob_values(spaces: Sequence[Mapping[str, pd.DataFrame]]) -> dict[str, npt.NDArray[Any]]:
    """Values of each knob that has several, in any family of any space, the family itself among them."""
    tagged = [frame.assign(**{FAMILY: family}) for frames in spaces for family, frame in frames.items()]
    names = dict.fromkeys(str(name) for frame in tagged for name in frame.columns)
    values = {name: _values(name, tagged) for name in names}
    return {name: several for name, several in values.items() if len(several) > 1}


def _values(name: str, frames: Sequence[pd.DataFrame]) -> npt.NDArray[Any]:
    """Values of a knob in any frame, ascending: float64, or texts as objects."""
    found = pd.concat([frame[name].drop_duplicates() for frame in frames if name in frame.columns])
    numeric = pd.api.types.is_numeric_dtype(found)
    return np.array(sorted(set(found.dropna())), np.float64 if numeric else object)


def _odd_part(values: npt.NDArray[Any]) -> Floats:
    whole = values.astype(np.int64)
    return whole / (whole & -whole)


def gemm_features(columns: Mapping[str, npt.NDArray[Any]], shape: GemmShape, cu_count: int) -> list[Floats]:
    """What the tiles of a GEMM make of the problem, for each point; knobs that are not searched or missing count as 1.

    Args:
        columns: Values of each searched knob [points].
    """
    points = len(next(iter(columns.values()), ()))

    def knob(*names: str) -> Floats:
        values = (columns[name] for name in names if name in columns)
        return math.prod((np.where(np.isnan(column), 1, column) for column in values), start=np.ones(points))

    tile_m, tile_n, tile_k = knob("BLOCK_M"), knob("BLOCK_N"), knob("BLOCK_K")
    split, stages, warps = knob("split_k"), knob("num_stages"), knob("num_warps", "waves_m", "waves_n")
    rows, cols = np.ceil(shape.M / tile_m), np.ceil(shape.N / tile_n)
    rounds = rows * cols * split / cu_count
    steps = np.ceil(np.ceil(shape.K / tile_k) / split)
    stage_bytes = (tile_m * A_BYTES + tile_n * B_BYTES) * tile_k
    features = [
        np.log2(rows * cols * split), np.log2(np.ceil(rounds)), rounds / np.ceil(rounds),
        np.log2(steps), np.log2(steps / stages), np.log2(tile_m * tile_n / warps),
        np.log2(stage_bytes * stages), np.log2(stage_bytes / warps),
        shape.M / (rows * tile_m), shape.N / (cols * tile_n), split > 1,
    ]  # fmt: skip
    return [np.asarray(feature, np.float64) for feature in features]


def _stacked(columns: list[Floats]) -> Floats:
    return np.column_stack(columns) if columns else np.zeros((1, 0))


def _filled(column: Floats) -> Floats:
    """The column with its median in place of what is not known."""
    return np.where(np.isfinite(column), column, np.nanmedian(column))


def scaled(columns: Floats) -> Singles:
    """Each column stretched to span 0 to 1."""
    low, high = columns.min(axis=0), columns.max(axis=0)
    return np.asarray((columns - low) / np.maximum(high - low, 1e-12), np.float32)
