"""Parts of the results: winners, queries, columns; and JSON where a script wants it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

import pandas as pd

from kernels.errors import InputError
from kernels.spelling import instead_of
from search.columns import ALL_LISTED, HELP
from search.query import matching_rows
from search.report import CONFIGURATION, with_configuration
from search.winners import winners


@dataclass(frozen=True)
class View:
    """Which rows and columns of the results to show.

    Args:
        query: Expression that is true for the rows to keep, see ``search.query``.
        best: Only the winners.
        sort: Column to sort by; a leading ``-`` sorts downwards.
        columns: Columns to keep, in order, each once.
        limit: Most rows to keep.
    """

    query: str | None = None
    best: bool = False
    sort: str | None = None
    columns: tuple[str, ...] | None = None
    limit: int | None = None


def select(frame: pd.DataFrame, view: View) -> pd.DataFrame:
    """The part of the results that ``view`` describes.

    Raises:
        InputError: An expression that is not allowed, an unknown column, a negative limit.
    """
    if _mentions_configuration(view):
        frame = with_configuration(frame)
    if view.best:
        frame = frame.loc[[winner.row for winner in winners(frame)]]
    if view.query is not None:
        frame = matching_rows(frame, view.query)
    if view.sort is not None:
        name = view.sort.removeprefix("-")
        _require(frame, [name])
        frame = frame.sort_values(name, ascending=not view.sort.startswith("-"), kind="stable")
    if view.limit is not None and view.limit < 0:
        raise InputError(f"--limit {view.limit} is negative; give a number of rows")
    frame = frame.head(view.limit) if view.limit is not None else frame
    if view.columns is not None:
        _require(frame, view.columns)
        frame = frame[list(dict.fromkeys(view.columns))]
    else:
        frame = frame.drop(columns=CONFIGURATION, errors="ignore")
    return frame.reset_index(drop=True)


def _mentions_configuration(view: View) -> bool:
    return any(CONFIGURATION in part for part in (view.query or "", view.sort or "", view.columns or ()))


def _require(frame: pd.DataFrame, names: Collection[str]) -> None:
    known = list(dict.fromkeys([*map(str, frame), CONFIGURATION]))
    for name in names:
        if name not in frame.columns and name == HELP:
            raise InputError(f"the columns are {', '.join(known)}")
        if name not in frame.columns:
            raise InputError(f"unknown column {name!r}; {instead_of(name, known, ALL_LISTED)}")


def to_json(frame: pd.DataFrame) -> str:
    """One JSON object a row; what is unknown is left out."""
    rows = frame.astype(object).to_dict("records")
    known = [{name: value for name, value in row.items() if not pd.isna(value)} for row in rows]
    return json.dumps(known, indent=1, default=lambda value: value.item())
