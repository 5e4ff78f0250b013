"""Published or earlier winners as first trials: which of them would serve a shape, and what became of them here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.problem import GemmShape
from kernels.tables.file import load_table
from search.evaluation import Point
from search.results import load
from search.results.against import TABLE_SUFFIXES, best_of_table
from search.results.columns import protocol_of, rows_of
from search.results.published import LEFT_OUT
from search.results.winners import config_of, shapes_of, winners


@dataclass(frozen=True)
class Start:
    """A configuration to try early, and what its source says of it.

    Args:
        shape: It was made for; serves smaller M too.
        time_us: As its source says; None where that has no times.
        exact: Whether only this point is meant, not the nearest that is legal.
    """

    device: DeviceKey
    shape: GemmShape
    family: str
    config: KernelConfig
    time_us: float | None
    how: str
    exact: bool = False

    @property
    def point(self) -> Point:
        """Family and configuration."""
        return self.family, self.config


def read_starts(place: Path | str) -> tuple[list[Start], Sequence[str]]:
    """The starts in results, a tuned table (.yaml) or a published file; and lines about what of it was left out.

    Raises:
        InputError: As :func:`search.results.load`, or a table that cannot be read.
    """
    if not str(place).endswith(TABLE_SUFFIXES):
        frame = load(place)
        return starts_of(frame), frame.attrs.get(LEFT_OUT, ())
    rows = best_of_table(load_table(Path(place)))
    return [Start(row.device, row.shape, row.family, row.config, row.cost_us, row.how) for row in rows], ()


def starts_of(frame: pd.DataFrame) -> list[Start]:
    """Those in results: of timed trials the winner of each shape, of others all."""
    return list(_starts(frame))


def starts_for(starts: Collection[Start], shapes: Collection[GemmShape]) -> dict[GemmShape, tuple[Start, ...]]:
    """What of ``starts`` would serve each of ``shapes``.

    It is that of the smallest M of the same (N, K) that is not below the asked one, or of the largest.
    """
    found = {}
    for shape in shapes:
        same = [start for start in starts if (start.shape.N, start.shape.K) == (shape.N, shape.K)]
        Ms = sorted({start.shape.M for start in same})
        M = next((M for M in Ms if shape.M <= M), Ms[-1] if Ms else None)
        mine = tuple(start for start in same if start.shape.M == M)
        if mine:
            found[shape] = mine
    return found


def _starts(frame: pd.DataFrame) -> Iterator[Start]:
    for winner in winners(frame):
        how = protocol_of(frame.loc[winner.row])
        yield Start(winner.device, winner.shape, winner.family, winner.config, winner.cost_us, how)
    untimed = frame[frame["evidence"].isna() & (frame["outcome"] == "ok").fillna(False)]
    for device, shape in shapes_of(untimed):
        for _, row in rows_of(untimed, device, shape).iterrows():
            yield Start(device, shape, str(row["family"]), config_of(row), None, protocol_of(row))


def start_lines(frame: pd.DataFrame, starts: Mapping[GemmShape, Sequence[Start]]) -> list[str]:
    """A line for each start: its own word, and beside it what the same configuration and the winner take here."""
    best = {winner.shape: winner.cost_us for winner in winners(frame)}
    lines = []
    for shape, members in starts.items():
        trials = frame[frame["shape"] == str(shape)]
        for start in members:
            said = "without a time" if start.time_us is None else f"{start.time_us:.2f} us ({start.how})"
            winner = f"; the winner {best[shape]:.2f} us" if shape in best else ""
            made = f"{start.family} made for M = {start.shape.M}"
            lines.append(f"published {shape}: {made}, {said}; here {_here(trials, start)}{winner}")
    return lines


def _here(trials: pd.DataFrame, start: Start) -> str:
    """What became of the start, or of the trial that is most like it, in a few words."""
    values = start.config.to_dict()
    mine = trials[(trials["family"] == start.family).fillna(False)]
    if not len(mine):
        return "not tried"
    alike = sum((mine[name] == value).fillna(False).to_numpy(int) for name, value in values.items())
    row = mine.iloc[int(np.argmax(alike))]
    same = "" if np.max(alike) == len(values) else "its nearest legal point "
    if row["outcome"] != "ok":
        return f"{same}{row['outcome']}"
    time_us = row["time_us" if row["evidence"] == "measured" else "predicted_us"]
    return f"{same}{time_us:.2f} us {row['evidence']}"
