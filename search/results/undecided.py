"""Candidates that a prediction cannot tell from a shape's winner: what to measure first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.evaluation import Point
from search.results import csv_to_columns
from search.results.columns import CONFIG
from search.results.winners import config_of, winners

IDENTITY = ("M", "N", "K", "family")


def undecided(frame: pd.DataFrame) -> pd.DataFrame:
    """The trials that are predicted as fast as a winner, itself included, as shape, family and knobs.

    A shape whose winner is told from all others, or was measured, has none.
    """
    rows: list[Any] = []
    for winner in winners(frame):
        if winner.evidence == "predicted" and len(winner.equals) > 1:
            rows += winner.equals
    found = frame.loc[rows, [*IDENTITY, *CONFIG]]
    return found.dropna(axis="columns", how="all").reset_index(drop=True)


def shape_counts(rows: pd.DataFrame) -> Mapping[GemmShape, int]:
    """How many of the rows of :func:`undecided` each shape has."""
    sizes: Any = rows.groupby(["M", "N", "K"], sort=False).size().items()
    return {GemmShape(int(M), int(N), int(K)): int(size) for (M, N, K), size in sizes}


def read_points(path: Path) -> Mapping[GemmShape, Sequence[Point]]:
    """Points by shape of a file that holds the rows of :func:`undecided`.

    Raises:
        InputError: It cannot be read, or a row names no shape, family or value that there is.
    """
    try:
        frame = pd.DataFrame(csv_to_columns(path.read_text()))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; write it with inspect --undecided") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as CSV ({' '.join(str(error).split())})") from error
    missing = [name for name in IDENTITY if name not in frame.columns]
    if missing:
        raise InputError(f"{path}: has no column {', '.join(missing)}; write it with inspect --undecided")
    found: dict[GemmShape, list[Point]] = {}
    for number, (_, row) in enumerate(frame.iterrows(), start=2):
        try:
            shape = GemmShape(int(row["M"]), int(row["N"]), int(row["K"]))
            found.setdefault(shape, []).append(_point(row))
        except ValueError as error:
            raise InputError(f"{path} line {number}: {error}; write it with inspect --undecided") from error
    return found


def _point(row: pd.Series[Any]) -> Point:
    family = str(row["family"])
    if family not in FAMILIES:
        raise ValueError(f"no family {family!r}, choose one of {', '.join(FAMILIES)}")
    return family, config_of(row.reindex(["family", *FAMILIES[family].config_type().to_dict()]))
