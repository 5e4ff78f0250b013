"""Rows that a replay of results made by hand wrote."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from result_rows import results
from rich.console import Console

from kernels.problem import GemmShape
from search.commands.sweep import SweepRequest, run_sweep
from search.evaluation import Value
from search.report.progress import TerminalReporter
from search.results import load, save


def replayed(folder: Path, *trials: dict[str, Value]) -> pd.DataFrame:
    """Results of the sweep of 16x2112x7168 over a recording of ``trials``, all of them, in a new ``folder/replay``."""
    save(results(*trials), folder / "recorded.parquet")
    asked = SweepRequest(
        (GemmShape(16, 2112, 7168),), f"replay:{folder / 'recorded.parquet'}", trials=len(trials), jobs=1,
        results=folder / "replay",
    )  # fmt: skip
    run_sweep(asked, TerminalReporter(Console(quiet=True)))
    return load(folder / "replay")
