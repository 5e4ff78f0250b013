"""What results must be before anything is made of them, wherever they come from."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache
from typing import Any, Final, get_args, get_type_hints

import numpy as np
import pandas as pd

from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.tables.rows import EVIDENCE
from kernels.wording import first_of, instead_of
from search.evaluation import OUTCOMES
from search.results.columns import COLUMNS, NUMBER

REQUIRED: Final = ("arch", "cu_count", "M", "N", "K", "family", "outcome")  # of a file that calls itself results
TIMES_US: Final = (
    "time_us", "time_lo_us", "time_hi_us", "predicted_us", "baseline_us", "confirmed_us",
)  # fmt: skip
LEAST_US: Final = 1e-3  # of a time: a table keeps 1e-4, and no GPU starts a kernel within a nanosecond
NAMED: Final = 3  # rows of one fault in a message
Problem = Callable[[Any], str | None]  # what is wrong with a value; None where it is right


def check_results(frame: pd.DataFrame, source: str) -> None:
    """Check that every row says for which device and shape it is, that times are times and words are known ones.

    Args:
        source: Where they come from, for messages.

    Raises:
        InputError: One line: source, rows (from 1), column, value and cure.
    """
    bare = frame.copy(deep=False)
    bare.attrs = {}  # of which pandas gives each column that is looked at a copy
    for positions, problem in _faults(bare):
        rows = first_of([str(position + 1) for position in positions], NAMED)
        raise InputError(f"{source}: row {rows}: {problem}; correct it or remove it")


def _faults(frame: pd.DataFrame) -> Iterator[tuple[list[int], str]]:
    """Positions of rows, and what is wrong with all of them."""
    for name in REQUIRED:
        yield from _at(frame[name].isna(), f"no {name}")
    yield from _extents(frame, ("arch", "cu_count"), DeviceKey)
    yield from _extents(frame, ("M", "N", "K"), GemmShape)
    for name in (name for name, dtype in COLUMNS.items() if dtype == NUMBER):
        values = frame[name].to_numpy(float, na_value=1.0)
        yield from _at(~np.isfinite(values), f"{name} is no finite number")
        if name in TIMES_US:
            yield from _at(values < LEAST_US, f"{name} is no time of {LEAST_US:g} us or more")
        if name == "roofline_us":  # a bound: that of 1x64x64 is 0.0003 us
            yield from _at(values <= 0, f"{name} is no time above 0")
    every = np.ones(len(frame), bool)
    yield from _values(frame["outcome"], every, _word(OUTCOMES))
    yield from _values(frame["evidence"], every, _word(EVIDENCE))
    present = set(frame["family"].unique())
    for family in filter(present.__contains__, FAMILIES):
        trials = (frame["family"] == family).to_numpy()
        for name, problem in _knobs(family).items():
            yield from _values(frame[name], trials, problem)


def _at(wrong: Any, problem: str) -> Iterator[tuple[list[int], str]]:
    positions = np.flatnonzero(np.asarray(wrong, bool))
    if len(positions):
        yield positions.tolist(), problem


def _values(column: pd.Series[Any], rows: Any, problem: Problem) -> Iterator[tuple[list[int], str]]:
    """Each wrong value of ``column`` in ``rows``; one that is missing is not wrong."""
    for value in column[rows].dropna().unique():
        why = problem(value)
        if why is not None:
            yield from _at((column == value).fillna(False).to_numpy() & rows, f"{column.name} {why}")


def _extents(frame: pd.DataFrame, names: tuple[str, ...], kind: Callable[..., Any]) -> Iterator[tuple[list[int], str]]:
    """Where ``kind`` refuses the values of the columns ``names`` of a row."""
    for values in frame[list(names)].drop_duplicates().itertuples(index=False, name=None):
        try:
            kind(*values)
        except ValueError as error:
            same = np.logical_and.reduce([frame[name] == value for name, value in zip(names, values, strict=True)])
            yield from _at(same, str(error))


def _word(words: Collection[str]) -> Problem:
    return lambda value: None if value in words else f"{value!r} is unknown; {instead_of(value, words)}"


def _within(least: int, most: int) -> Problem:
    return lambda value: None if least <= value <= most else f"= {value} is not within {least}..{most}"


@cache
def _knobs(family: str) -> dict[str, Problem]:
    """What may be wrong with each knob of ``family``."""
    config_type = FAMILIES[family].config_type
    hints = {name: hint for name, hint in get_type_hints(config_type).items() if name in config_type().to_dict()}
    return {
        name: _within(*config_type.limits(name)) if hint is int else _word(get_args(hint))
        for name, hint in hints.items()
    }
