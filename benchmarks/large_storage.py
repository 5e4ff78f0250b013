"""How a storage of many trials is read, resumed and started, and what room a trial takes.

Usage: python benchmarks/large_storage.py [--base RESULTS] [--trials 100000] [--before CHECKOUT] [--output FILE.json]

The first trials of a recorded sweep are stored by a sweep of this checkout, then copied with other N. Of that storage:
`sweep` of one shape that holds its trials, `inspect` without and with the Parquet file that it leaves, and `sweep` of
1,000 new shapes whose time is over at once. --before does the same with another checkout of this project.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.problem import GemmShape
from search.evaluators.replay import ReplayEvaluator
from search.results.record import RECORD, packed, unpacked
from search.results.studies import STUDIES_FILE
from search.results.trials import listed
from search.terminal import one_line_errors

ROOT = Path(__file__).resolve().parent.parent
BASE = ROOT / "results" / "recorded" / "sm_90-132cu-16x2112x7168.parquet"
EACH = 96  # trials of a shape
NEW_SHAPES = 1000
OF_STUDY = ("study_directions", "study_user_attributes", "study_system_attributes", "trials")
OF_TRIAL = ("trial_values", "trial_params", "trial_user_attributes", "trial_system_attributes")


def run(tree: Path, words: list[str]) -> dict[str, Any]:
    """Seconds, those of the CPU, and peak memory of a command of the checkout ``tree``."""
    command = [sys.executable, str(tree / "run_search.py"), *words]
    start_s = time.monotonic()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, cwd=tree, stdout=said, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode()
    wall_s = time.monotonic() - start_s
    if process.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(words)}: exit code {process.returncode}\n{text[-2000:]}")
    return {"wall_s": round(wall_s, 1), "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
            "peak_gb": round(usage.ru_maxrss / 1e6, 2)}  # fmt: skip


def rows(connection: sqlite3.Connection, table: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Columns and rows of ``table``."""
    cursor = connection.execute(f"SELECT * FROM {table}")
    return [column[0] for column in cursor.description], cursor.fetchall()


class Copier:
    """Copies the one study of a storage to other N, with new keys."""

    def __init__(self, connection: sqlite3.Connection, shape: GemmShape) -> None:
        self.connection = connection
        self.shape = shape
        self.tables = {name: rows(connection, name) for name in ("studies", *OF_STUDY, *OF_TRIAL)}
        columns, attributes = self.tables["study_user_attributes"]
        keyed = [dict(zip(columns, row, strict=True)) for row in attributes]
        self.listed = listed({row["key"]: json.loads(row["value_json"]) for row in keyed})
        self.trials = len(self.tables["trials"][1])

    def copy(self, number: int) -> None:
        """Add the copy ``number``, from 1."""
        for table, (columns, members) in self.tables.items():
            marks = ", ".join("?" * len(columns))
            changed = [self._changed(dict(zip(columns, row, strict=True)), columns[0], number, len(members))
                       for row in members]  # fmt: skip
            self.connection.executemany(
                f"INSERT INTO {table} VALUES ({marks})", [tuple(row.values()) for row in changed]
            )

    def _changed(self, row: dict[str, Any], key: str, number: int, count: int) -> dict[str, Any]:
        row[key] += number * count
        if key != "study_id":
            if row.get("study_id") is not None:
                row["study_id"] += number
            if key != "trial_id" and row.get("trial_id") is not None:
                row["trial_id"] += number * self.trials
        shape = GemmShape(self.shape.M, self.shape.N + 64 * number, self.shape.K)
        if "study_name" in row:
            row["study_name"] = row["study_name"].replace(str(self.shape), str(shape))
        if row.get("key") == RECORD:
            row["value_json"] = json.dumps(self._record(json.loads(row["value_json"]), shape))
        elif row.get("key") in ("shape", "N"):
            row["value_json"] = json.dumps(str(shape) if row["key"] == "shape" else shape.N)
        return row

    def _record(self, stored: Any, shape: GemmShape) -> Any:
        record = unpacked(stored, self.listed)
        record |= {"N": shape.N, "study": str(record["study"]).replace(str(self.shape), str(shape))}
        return record if isinstance(stored, dict) else packed(record)


def measured(tree: Path, base: Path, trials: int, folder: Path) -> Iterator[tuple[str, Any]]:
    """Names and figures of one checkout."""
    shape = ReplayEvaluator(base).shapes()[0]
    results = folder / "results"
    resume = ["sweep", str(shape), "--target", f"replay:{base}", "--results", str(results), "--sampler", "grid"]
    resume += ["--until", "0", "--trials", str(EACH)]
    run(tree, resume)
    file = results / STUDIES_FILE
    with sqlite3.connect(file) as connection:
        copier = Copier(connection, shape)
        for number in range(1, max(1, trials // copier.trials)):
            copier.copy(number)
        stored = connection.execute("SELECT count(*) FROM trials").fetchone()[0]
    connection.close()
    yield "trials", stored
    yield "bytes a trial", file.stat().st_size // stored
    yield "resume of one shape", run(tree, resume)
    yield "inspect", run(tree, ["inspect", "--results", str(results)])
    yield "inspect again", run(tree, ["inspect", "--results", str(results)])
    shapes = folder / "shapes.txt"
    shapes.write_text("".join(f"16x{64 * n}x1024\n" for n in range(1, NEW_SHAPES + 1)))
    start = ["sweep", "--shapes", str(shapes), "--target", "gfx950", "--families", "fused", "--jobs", "1"]
    start += ["--time-budget", "0.01", "--results", str(folder / "new")]
    yield f"start of {NEW_SHAPES} shapes", run(tree, start)


def main(
    base: Annotated[Path, typer.Option(help="A recorded sweep.")] = BASE,
    trials: Annotated[int, typer.Option(min=EACH)] = 100_000,
    before: Annotated[Path | None, typer.Option(metavar="CHECKOUT", help="Another checkout, measured first.")] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="JSON.")] = None,
) -> None:
    """Measure, and print one line a figure."""
    figures: dict[str, dict[str, Any]] = {}
    for name, tree in {"before": before, "now": ROOT}.items():
        if tree is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            for what, figure in measured(tree.resolve(), base.resolve(), trials, Path(folder)):
                figures.setdefault(name, {})[what] = figure
                print(f"{name:8}{what:24}{figure}", flush=True)
    if output is not None:
        output.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
