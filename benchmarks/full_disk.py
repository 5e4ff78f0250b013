"""A full disk under the results: what a sweep says, what it keeps, and whether it goes on once there is room.

Usage: python benchmarks/full_disk.py [--target auto|gfx950|local] [--how auto|tmpfs|shim] [--output FILE.json]

For SQLite and for a journal: a sweep fills its disk, the rows are counted, the disk grows, the same command goes on.
The disk is a small tmpfs, which needs root, or else benchmarks/full_disk.c, which needs a C compiler and makes
writes to the folder fail as on a full disk. Exit code 1 where anything was not as it should be.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from search.results import load
from search.terminal import one_line_errors

ROOT = Path(__file__).resolve().parent.parent
SHIM = Path(__file__).with_suffix(".c")
STORAGES = {"studies.db": 224 << 10, "studies.journal": 64 << 10}  # bytes of the disk: 10 to 30 trials
MORE_TRIALS = 10  # once there is room
ENDLESS = 100_000
POINT = (
    "family", "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages", "waves_per_eu",
    "matrix_instr_nonkdim", "cache_modifier", "num_xcds", "quantizer", "a_operand",
)  # fmt: skip
SAYS = ("could not be stored", "No space left", "disk is full", "the same command goes on")


@dataclass
class Disk:
    """A folder with little room.

    Args:
        folder: For the results.
        how: What makes it small.
        environment: For the processes that shall find it full.
    """

    folder: Path
    how: str
    environment: Mapping[str, str]

    def grow(self) -> None:
        """Make room."""
        self.environment = {}
        if self.how == "tmpfs":
            subprocess.run(["mount", "-o", "remount,size=64m", str(self.folder)], check=True)


@contextmanager
def small_disk(size_bytes: int, how: str) -> Iterator[Disk]:
    """A disk of ``size_bytes``; ``how`` is auto, tmpfs or shim."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "results"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
        if how != "shim" and subprocess.run(mount, check=how == "tmpfs", capture_output=True).returncode == 0:
            try:
                yield Disk(folder, "tmpfs", {})
            finally:
                subprocess.run(["umount", "--lazy", str(folder)], check=False)
            return
        library = Path(name) / "full_disk.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SHIM), "-ldl"], check=True)
        full = {"LD_PRELOAD": str(library), "FULL_DISK_FOLDER": str(folder), "FULL_DISK_BYTES": str(size_bytes)}
        yield Disk(folder, "shim", full)


def sweep(disk: Disk, storage: Path, trials: int, target: str, jobs: int) -> subprocess.CompletedProcess[str]:
    """A sweep of one shape on ``disk``."""
    command = [
        sys.executable, "run_search.py", "sweep", "4x2880x512", "--target", target, "--families", "fused",
        "--sampler", "random", "--jobs", str(jobs), "--trials", str(trials), "--storage", str(storage),
    ]  # fmt: skip
    environment = {**os.environ, **disk.environment}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=200)


def fill(name: str, how: str, target: str, jobs: int) -> dict[str, Any]:
    """Fill the disk under the storage ``name``, then go on; one row."""
    with small_disk(STORAGES[name], how) as disk:
        storage = disk.folder / name
        full = sweep(disk, storage, ENDLESS, target, jobs)
        lines = full.stderr.strip().splitlines()
        kept = searched(load(storage))
        disk.grow()
        again = sweep(disk, storage, len(kept) + MORE_TRIALS, target, jobs)
        after = searched(load(storage))
        row: dict[str, Any] = {
            "storage": name, "disk": disk.how, "exit_code": full.returncode,
            "says": lines[-1][-220:] if lines else "", "traceback": "Traceback" in full.stderr,
            "stored": len(kept), "again_exit_code": again.returncode, "stored_after": len(after),
            "kept_as_they_were": bool(after.head(len(kept)).equals(kept)),
            "repeated": int(after.duplicated(list(POINT)).sum()), "again_says": again.stderr.strip()[-220:],
        }  # fmt: skip
    says = row["says"]
    row["ok"] = (
        row["exit_code"] == 2 and not row["traceback"] and SAYS[0] in says and SAYS[3] in says
        and (SAYS[1] in says or SAYS[2] in says) and row["stored"] > 0 and row["again_exit_code"] == 0
        and row["stored_after"] == row["stored"] + MORE_TRIALS and row["kept_as_they_were"] and row["repeated"] == 0
    )  # fmt: skip
    return row


def searched(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the search; those of the finals say whether they were chosen."""
    return frame[frame["selected"].isna()]


def main(
    target: Annotated[str, typer.Option(help="Of the sweeps.")] = "auto",
    how: Annotated[str, typer.Option(help="auto, tmpfs or shim.")] = "auto",
    jobs: Annotated[int, typer.Option(help="Compiling processes.")] = 2,
    output: Annotated[Path | None, typer.Option(help="JSON.")] = None,
) -> None:
    """Fill both."""
    rows = []
    for name in STORAGES:
        rows.append(fill(name, how, target, jobs))
        print(rows[-1], flush=True)
    if output is not None:
        output.write_text(json.dumps(rows, indent=1))
    raise typer.Exit(0 if all(row["ok"] for row in rows) else 1)


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
