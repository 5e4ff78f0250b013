"""What earlier studies of a storage say about a shape; only those near to it are read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.evaluation import TIMED, Point
from search.results.columns import rows_of
from search.study.priors import NEIGHBOURS, distance, winners_of

READ_AT_ONCE: Final = 8  # shapes: most of them have a winner, and three are asked for
SHAPES: Final = 3  # others to learn from, the nearest
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
    times: npt.NDArray[np.float64]


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
    frames = {str(family): _knobs(str(family), group) for family, group in families.items()}
    times = np.concatenate([group["taken_us"].to_numpy(np.float64) for group in families.values()])
    return OtherShape(shape, frames, times)


def _knobs(family: str, rows: pd.DataFrame) -> pd.DataFrame:
    """Knobs of ``family``; one that a trial's version did not record has the default."""
    default = FAMILIES[family].config_type().to_dict()
    columns = {name: rows[name].fillna(value).astype(type(value)) for name, value in default.items()}
    return pd.DataFrame(columns).reset_index(drop=True)


class EarlierStudies:
    """The studies of one device in a storage.

    Args:
        read: Trials of some studies, by their names.
        names: Of all studies.
        protocol: How the trials to learn from were judged.
    """

    def __init__(
        self, read: Callable[[Collection[str]], pd.DataFrame], names: Iterable[str], device: DeviceKey, protocol: str
    ) -> None:
        self._read_trials = read
        self._device = device
        self._protocol = protocol
        self._names: dict[GemmShape, list[str]] = defaultdict(list)
        self._winners: dict[GemmShape, Point | None] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Take note of a study; names that are none of this device's are passed over."""
        device, _, rest = name.partition("/")
        if device == str(self._device) and rest:
            try:
                self._names[GemmShape.parse(rest.partition("/")[0])].append(name)
            except ValueError:
                return

    def found(self, shape: GemmShape, winner: Point) -> None:
        """A search of ``shape`` has ended with ``winner``."""
        self._winners[shape] = winner

    def winners(self, shape: GemmShape) -> dict[GemmShape, Point]:
        """Best points of the shapes nearest to ``shape``."""
        near: dict[GemmShape, Point] = {}
        for others in self._nearest(shape):
            self._read(others)
            near |= {other: point for other in others if (point := self._winners[other]) is not None}
            if len(near) >= NEIGHBOURS:
                break
        return near

    def trials(self, shape: GemmShape) -> list[OtherShape]:
        """Trials of the nearest shapes, to learn from, as :func:`other_shapes`."""
        alike: list[OtherShape] = []
        for others in self._nearest(shape):
            names = [name for other in others for name in self._names[other] if self._is_alike(name)]
            alike += other_shapes(self.rows(names), shape, self._device, self._protocol)
            if len(alike) >= SHAPES:
                break
        return alike[:SHAPES]

    def rows(self, names: Iterable[str]) -> pd.DataFrame:
        """The trials of some studies."""
        return self._read_trials(frozenset(names))

    def _is_alike(self, name: str) -> bool:
        return name.split("/")[2:3] == [self._protocol]

    def _nearest(self, shape: GemmShape) -> Iterator[list[GemmShape]]:
        """Other shapes, a few at a time, the nearest first."""
        others = sorted(self._names.keys() - {shape}, key=lambda other: (distance(shape, other), str(other)))
        for first in range(0, len(others), READ_AT_ONCE):
            yield others[first : first + READ_AT_ONCE]

    def _read(self, shapes: Iterable[GemmShape]) -> None:
        unread = [shape for shape in shapes if shape not in self._winners]
        if unread:
            rows = self.rows(name for shape in unread for name in self._names[shape])
            self._winners |= dict.fromkeys(unread) | winners_of(rows, self._device)
