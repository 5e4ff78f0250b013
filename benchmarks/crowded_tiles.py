"""Points whose tiles crowd the registers, which a search tries last: the compilers' time, how near the best.

Usage: python benchmarks/crowded_tiles.py [FILE.parquet ...]

FILE: results of an exhaustive sweep on a device without an FP4 matrix unit; default: those in results/recorded. Printed
for each file and for all: the crowded points, their part of the compilers' seconds, the part of them that spills, and
the least of their times by the best of all. Exit code 1 where that is less than 1.4.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.device import DeviceKey
from search.study.priors import decoded_tiles_overflow
from search.terminal import one_line_errors

RECORDED = Path(__file__).resolve().parent.parent / "results" / "recorded"
CLEAR = 1.4  # a point that takes so many times the best time is no loss


def judged(frame: pd.DataFrame) -> pd.DataFrame:
    """The measured trials of one sweep: whether they are ``crowded``, ``compile_s``, ``spills``, time by the best."""
    rows = frame[frame["selected"].isna() & frame["time_us"].notna()]
    device = DeviceKey(str(rows["arch"].iloc[0]), int(rows["cu_count"].iloc[0]))
    crowded = np.zeros(len(rows), np.bool_)
    for family, places in rows.reset_index(drop=True).groupby("family").indices.items():
        crowded[places] = decoded_tiles_overflow(str(family), rows.iloc[places], device)
    times = rows["time_us"].astype(float)
    return pd.DataFrame({
        "crowded": crowded, "compile_s": rows["compile_s"].astype(float), "spills": rows["spills"] > 0,
        "by_best": times / times.min(),
    })  # fmt: skip


def summary(rows: pd.DataFrame) -> dict[str, float]:
    """One line of the table."""
    crowded = rows[rows["crowded"]]
    return {
        "points": len(rows), "crowded": len(crowded), "compile_s": rows["compile_s"].sum(),
        "crowded_s": crowded["compile_s"].sum(), "spilling": crowded["spills"].mean(),
        "least_by_best": crowded["by_best"].min(),
    }  # fmt: skip


def main(files: Annotated[list[Path] | None, typer.Argument(help="Default: the recorded sweeps.")] = None) -> None:
    """Print the table."""
    paths = files or sorted(RECORDED.glob("sm_90-*.parquet"))
    sweeps = {path.stem: judged(pd.read_parquet(path)) for path in paths}
    table = pd.DataFrame({name: summary(rows) for name, rows in (*sweeps.items(), ("all", pd.concat(sweeps.values())))})
    print(table.T.round(2).to_string())
    raise typer.Exit(int(table["all"]["least_by_best"] < CLEAR))


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
