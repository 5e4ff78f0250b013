"""What the finals of a measured sweep decided, and how much of the time the GPU waited."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from rich.console import Console

from search.results.studies import are_replayed
from search.terminal import TextTable, print_table

SLOWER_DISPATCHED = 1.05  # beyond this multiple of its time in the finals, a winner is not what the table promises
NUMBERS = {
    "finals us": ("time_us", ".2f"), "margin us": ("margin_us", ".2f"), "confidence": ("confidence", ".3f"),
    "rank tau": ("rank_tau", ".2f"), "dispatched us": ("confirmed_us", ".2f"), "default us": ("baseline_us", ".2f"),
}  # fmt: skip  # column of the results, and how it is written
HEADER = ("shape", "family", *NUMBERS, "")


def finals_table(frame: pd.DataFrame) -> TextTable:
    """The latest winner of the finals of each shape: its time, margin, confidence, rank stability, dispatched time.

    The last number is the time of the default, which serves a shape that nobody tuned: the cliff beside the winner.
    """
    selected = frame[frame["selected"].fillna(False)].sort_values("started", kind="stable")
    latest = selected.drop_duplicates(["arch", "cu_count", "M", "N", "K"], keep="last").sort_values(["N", "K", "M"])
    return TextTable(HEADER, tuple(_cells(row) for row in latest.to_dict("records")), right=frozenset(NUMBERS))


def print_finals(frame: pd.DataFrame, console: Console) -> None:
    """Print the finals and the share of its time that the GPU waited; nothing where nothing was measured."""
    table = finals_table(frame)
    if table.rows:
        print_table(table, console)
    share = gpu_wait_share(frame[~are_replayed(frame["study"])])  # in a replay no GPU waited
    if not math.isnan(share):
        console.print(f"the GPU waited {100 * share:.1f} % of its time for a compiled candidate", highlight=False)


def _cells(row: Any) -> tuple[str, ...]:
    numbers = (_number(row[name], form) for name, form in NUMBERS.values())
    return f"{row['M']}x{row['N']}x{row['K']}", str(row["family"]), *numbers, ", ".join(_remarks(row))


def _remarks(row: Any) -> list[str]:
    remarks = ["tie"] if row["tie"] is True else []
    if pd.notna(row["confirmed_us"]) and pd.notna(row["time_us"]):
        slower = row["confirmed_us"] / row["time_us"]
        remarks += [f"dispatched {100 * (slower - 1):.0f} % slower"] if slower > SLOWER_DISPATCHED else []
    why_not = row.get("reason")  # the dispatcher's time is not there
    return remarks if pd.isna(why_not) else [*remarks, str(why_not)]


def _number(value: Any, form: str) -> str:
    return "" if pd.isna(value) else format(value, form)


WARM_UP = 20  # trials of a study until the compiler is ahead


def gpu_wait_share(frame: pd.DataFrame, *, warm_up: int = WARM_UP) -> float:
    """Waiting over waiting and working, from the columns ``gpu_wait_s`` and ``gpu_s``; NaN without measured trials.

    Args:
        warm_up: First trials of each study that do not count.
    """
    measured = frame[frame["gpu_s"].notna()]
    later = measured[measured.groupby("study").cumcount() >= warm_up]
    waited, worked = float(later["gpu_wait_s"].sum()), float(later["gpu_s"].sum())
    return waited / (waited + worked) if waited + worked > 0 else math.nan
