"""The report of a results folder or file as one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import optuna
import pandas as pd

from kernels.tables.rows import TunedTable
from search.commands.export import table_rows
from search.report.page import write_report
from search.results.against import best_of, compare, load_best
from search.results.columns import rows_of
from search.results.comparisons import regrets
from search.results.winners import shapes_of
from search.terminal import naming

LEAST_REGRET = 0.01  # part of the best time that a winner must lose at a smaller M to be named


def report(frame: pd.DataFrame, path: Path, against: Path | None = None, gains: Sequence[str] = ()) -> None:
    """Write the page ``path``.

    Args:
        against: Results, a tuned table or a published file to compare with.

    Raises:
        InputError: No plotly, nothing to show or to compare with, or a file that cannot be written.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)  # of the studies that judge importance
    with naming("--against"):
        comparisons = None if against is None else compare(best_of(frame), load_best(against))
    write_report(frame, path, against=comparisons, gains=gains, regrets=_regret_lines(frame))


def _regret_lines(frame: pd.DataFrame) -> list[str]:
    """Lines about winners that would serve smaller M, as far as rows can be made of them."""
    made = frame[frame[["started", "triton", "torch", "source_hash"]].notna().all(axis=1)]
    devices = dict.fromkeys(device for device, _ in shapes_of(made))
    lines = []
    for device in devices:
        mine = rows_of(made, device)
        known = regrets(mine, TunedTable(device, tuple(table_rows(mine))))
        lines += [one.line() for one in known if one.most > LEAST_REGRET]
    return lines
