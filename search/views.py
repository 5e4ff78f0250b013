"""Parts of the results: winners, queries, columns; and JSON where a script wants it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from tokenize import TokenError

import pandas as pd

from kernels.errors import InputError
from search.winners import winners

QUERY_ERRORS = (  # what pandas raises for an expression that it cannot parse or evaluate
    SyntaxError, TokenError, ValueError, TypeError, KeyError, AttributeError, NameError, NotImplementedError,
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """Which rows and columns of the results to show.

    Args:
        query: Expression of pandas' ``DataFrame.query``, true for the rows to keep.
        best: Only the winners.
        sort: Column to sort by; a leading ``-`` sorts downwards.
        columns: Columns to keep, in order.
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
        InputError: An expression that pandas rejects, an unknown column, a negative limit.
    """
    if view.best:
        frame = frame.loc[[winner.row for winner in winners(frame)]]
    if view.query is not None:
        frame = _query(frame, view.query)
    if view.sort is not None:
        name = view.sort.removeprefix("-")
        _require(frame, [name])
        frame = frame.sort_values(name, ascending=not view.sort.startswith("-"), kind="stable")
    if view.limit is not None and view.limit < 0:
        raise InputError(f"--limit {view.limit} is negative; give a number of rows")
    frame = frame.head(view.limit) if view.limit is not None else frame
    if view.columns is not None:
        _require(frame, view.columns)
        frame = frame[list(view.columns)]
    return frame.reset_index(drop=True)


def _query(frame: pd.DataFrame, expression: str) -> pd.DataFrame:
    example = "write a comparison of columns like \"family == 'fused' and predicted_us < 9\""
    try:
        chosen = frame.eval(expression, engine="python")
    except QUERY_ERRORS as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"--query {expression!r}: {cause}; {example}") from error
    if not isinstance(chosen, pd.Series) or not pd.api.types.is_bool_dtype(chosen.dtype):
        raise InputError(f"--query {expression!r}: says of no row whether it is wanted; {example}")
    return frame[chosen.fillna(False)]


def _require(frame: pd.DataFrame, names: Collection[str]) -> None:
    for name in names:
        if name not in frame.columns:
            raise InputError(f"unknown column {name!r}; use {', '.join(frame.columns)}")


def to_json(frame: pd.DataFrame) -> str:
    """One JSON object a row; what is unknown is left out."""
    rows = frame.astype(object).to_dict("records")
    known = [{name: value for name, value in row.items() if not pd.isna(value)} for row in rows]
    return json.dumps(known, indent=1, default=lambda value: value.item())
