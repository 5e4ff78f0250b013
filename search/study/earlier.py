"""What earlier studies of a storage say about a shape; only those near to it are read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from kernels.device import DeviceKey
from kernels.problem import GemmShape
from search.evaluation import Point
from search.results.stored import stored_frame
from search.study.priors import NEIGHBOURS, distance, winners_of
from search.study.transfer import SHAPES, OtherShape, other_shapes

READ_AT_ONCE = 8  # shapes: most of them have a winner, and three are asked for


class EarlierStudies:
    """The studies of one device in a storage.

    Args:
        location: Of the storage.
        names: Of its studies.
        protocol: How the trials to learn from were judged.
    """

    def __init__(self, location: Path | str, names: Iterable[str], device: DeviceKey, protocol: str) -> None:
        self._location = location
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
        """Trials of the nearest shapes, to learn from, as :func:`search.study.transfer.other_shapes`."""
        alike: list[OtherShape] = []
        for others in self._nearest(shape):
            names = [name for other in others for name in self._names[other] if self._is_alike(name)]
            alike += other_shapes(self.rows(names), shape, self._device, self._protocol)
            if len(alike) >= SHAPES:
                break
        return alike[:SHAPES]

    def rows(self, names: Iterable[str]) -> pd.DataFrame:
        """The trials of some studies."""
        return stored_frame(self._location, frozenset(names))

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
