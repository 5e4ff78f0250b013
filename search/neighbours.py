"""The best points of shapes that were searched before, which near shapes try first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from kernels.device import DeviceKey
from kernels.problem import GemmShape
from search.study import Point, point_of


def winners_of(frame: pd.DataFrame, device: DeviceKey) -> dict[GemmShape, Point]:
    """Best point of each shape in earlier results for ``device``."""
    mine = frame[(frame["arch"] == device.arch) & (frame["cu_count"] == device.cu_count)]
    found: dict[GemmShape, Point] = {}
    for _, rows in mine.groupby(["M", "N", "K"]):
        records = rows.to_dict("records")
        best = best_point(records)
        if best is not None:
            found[GemmShape(*(int(records[0][name]) for name in ("M", "N", "K")))] = best
    return found


def best_point(records: Iterable[Mapping[Any, Any] | None]) -> Point | None:
    """The fastest point that a record says is ok: by measured time where there is one, else by predicted time."""
    good = [record for record in records if record is not None and record.get("outcome") == "ok"]
    measured = [record for record in good if record["evidence"] == "measured"]
    column = "time_us" if measured else "predicted_us"
    best = min(measured or good, key=lambda record: float(record[column]), default=None)
    return None if best is None else point_of(best)


def distance(a: GemmShape, b: GemmShape) -> float:
    """How unlike two shapes are: the sum of the ratios of their extents, as logarithms."""
    ratios = ((a.M, b.M), (a.N, b.N), (a.K, b.K))
    return sum(abs(math.log2(x / y)) for x, y in ratios)
