"""Several GPUs of one machine: who measured what, how much faster than one GPU, and what is left running.

Usage: python benchmarks/device_gpus.py --output DIR [--shapes N] [--trials T] [--budget-s S] [--cores C]

Sweeps the first N competition shapes with the same random candidates: on one GPU and on all, both with an empty
compiler cache, then on one and on all with the cache that the first sweep filled, where the GPUs alone limit. With
--cores a sweep on one GPU has only so many, as a machine with one GPU would. Prints, as soon as a sweep has ended, for
every study the GPU that measured it, its baseline and its outcomes; trials a second; what part of their time the GPUs
waited for a candidate; how much faster all GPUs are than one. At the end: whether the winners on one GPU and on several
are the same or within 2 %. Exit code 1 where a study used two GPUs, a GPU no study, a study has no baseline, a process
is left on a GPU, or trials are missing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpu_processes import gpu_processes

from kernels.errors import InputError
from search.device.inventory import local_gpus
from search.report.finals import gpu_wait_share
from search.results import load, save
from search.results.winners import winners
from search.space.shapes import load_shapes
from search.terminal import one_line_errors

ROOT = Path(__file__).resolve().parent.parent
SHAPES = ROOT / "configs" / "shapes" / "gpumode.yaml"
FAMILIES = "fused,fused_splitk_workspace"
CLOSE = 0.02  # winners of two sweeps whose times differ by less are the same within what GPUs of one kind differ


MASKS = ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")  # HIP takes the second where the first is unset


def sweep(
    name: str, shapes: list[str], trials: int, budget_s: float, cache: Path, results: Path, one: bool, cores: int
) -> float:
    """Run a sweep in a process of its own, on one GPU with at most so many cores or on all; its wall time."""
    command = [
        sys.executable, "run_search.py", "sweep", *shapes, "--target", "local", "--families", FAMILIES,
        "--sampler", "random", "--trials", str(trials), "--time-budget", str(budget_s), "--results", str(results),
    ]  # fmt: skip
    environment: dict[str, str] = {**os.environ, "TRITON_CACHE_DIR": str(cache)}
    if one:
        mask = next((name for name in MASKS if os.environ.get(name)), MASKS[-1 if torch.version.hip is None else 0])
        environment[mask] = os.environ.get(mask, "0").partition(",")[0]
        command = ["taskset", "-c", ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores])), *command]
    start_s = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    wall_s = time.monotonic() - start_s
    print(f"== {name}: exit code {done.returncode}, {wall_s:.0f} s", done.stdout[-3000:], sep="\n", flush=True)
    if done.returncode:
        print(done.stderr[-2000:])
    return wall_s


def searched(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of the search; those of the finals say whether they were chosen."""
    return frame[frame["selected"].isna()]


def span(frame: pd.DataFrame) -> tuple[pd.Timestamp, pd.Timestamp]:
    """When the first of the trials began and when the last one ended."""
    started = pd.to_datetime(frame["started"], utc=True)
    return started.min(), (started + pd.to_timedelta(frame["duration_s"].astype(float), unit="s")).max()


def studies(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a study: its GPUs, outcomes, baseline and when it ran, in seconds from the sweep's first trial."""
    found = searched(frame)
    begin, _ = span(found)
    rows = []
    for _, rows_of in found.groupby("study", sort=False):
        first, last = span(rows_of)
        names = ("M", "N", "K")
        rows.append({
            "shape": "x".join(str(rows_of[name].iloc[0]) for name in names),
            "gpus": sorted({int(index) for index in rows_of["gpu_index"].dropna()}),
            "from_s": (first - begin).total_seconds(), "to_s": (last - begin).total_seconds(), "trials": len(rows_of),
            "baseline_us": rows_of["baseline_us"].dropna().astype(float).median(),
            "outcomes": rows_of["outcome"].value_counts().to_dict(),
        })  # fmt: skip
    return pd.DataFrame(rows)


def totals(name: str, frame: pd.DataFrame, wall_s: float) -> dict[str, Any]:
    """Speed of one sweep."""
    found = searched(frame)
    begin, end = span(found)
    seconds = (end - begin).total_seconds()
    measured = found[found["gpu_index"].notna()]
    gpu_s = measured.groupby(measured["gpu_index"].astype(int))["gpu_s"].sum().round(1).to_dict()
    return {
        "sweep": name, "wall_s": round(wall_s, 1), "searched_s": round(seconds, 1), "trials": len(found),
        "trials_per_s": round(len(found) / seconds, 2), "gpu_s": gpu_s,
        "waited": round(gpu_wait_share(frame), 3),
    }  # fmt: skip


def faults(name: str, table: pd.DataFrame, gpus: int, shapes: int, trials: int) -> list[str]:
    """What is not as it should be."""
    found = []
    for _, row in table.iterrows():
        if len(row["gpus"]) != 1:
            found.append(f"{name}: {row['shape']} was measured on GPUs {row['gpus']}")
        if not row["baseline_us"] > 0:
            found.append(f"{name}: {row['shape']} has no baseline")
    used = {index for each in table["gpus"] for index in each}
    if used != set(range(gpus)):
        found.append(f"{name}: GPUs used: {sorted(used)} of {gpus}")
    if len(table) != shapes or (table["trials"] < trials).any():
        found.append(f"{name}: {len(table)} of {shapes} studies, {table['trials'].to_list()} of {trials} trials")
    return found


def agreement(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Time of each shape's winner in each sweep."""
    times = {name: {str(one.shape): one.cost_us for one in winners(frame)} for name, frame in frames.items()}
    table = pd.DataFrame(times)
    table["spread"] = table.max(axis=1) / table.min(axis=1) - 1
    table["verdict"] = ["same" if spread < CLOSE else "differ" for spread in table["spread"]]
    return table


def main(
    output: Annotated[Path, typer.Option(help="Folder of a Parquet file for each sweep.")],
    shapes: Annotated[int, typer.Option(help="How many of the competition shapes.")] = 6,
    trials: Annotated[int, typer.Option(help="Of each shape.")] = 48,
    budget_s: Annotated[float, typer.Option(help="Of each sweep, starting included.")] = 90.0,
    cores: Annotated[int, typer.Option(min=1, help="Of a sweep on one GPU.")] = 1024,
) -> None:
    """Sweep four times and say what each did."""
    gpus = len(local_gpus())
    if gpus < 2:
        raise InputError(f"torch finds {gpus} GPUs here; run this on a machine that has several")
    asked = [str(shape) for shape in load_shapes(SHAPES).shapes[:shapes]]
    output.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    frames: dict[str, pd.DataFrame] = {}
    speeds: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        caches = {"one, empty cache": "a", "all, empty cache": "b", "one, full cache": "a", "all, full cache": "a"}
        for number, (name, cache) in enumerate(caches.items()):
            one = name.startswith("one")
            results = Path(folder) / f"results{number}"
            wall_s = sweep(name, asked, trials, budget_s, Path(folder) / cache, results, one, cores)
            frames[name] = load(results)
            save(frames[name], output / f"{name.replace(', ', '-').replace(' ', '-')}.parquet")
            table = studies(frames[name])
            print(table.round(1).to_string(index=False))
            speeds[name] = totals(name, frames[name], wall_s)
            print(pd.DataFrame([speeds[name]]).to_string(index=False), flush=True)
            if not one:
                faster = speeds[name.replace("all", "one")]["searched_s"] / speeds[name]["searched_s"]
                print(f"{gpus} GPUs, {name.partition(', ')[2]}: {faster:.2f} times as fast as one", flush=True)
            wrong += faults(name, table, 1 if one else gpus, len(asked), trials)
            left = gpu_processes()
            wrong += [f"{name}: left on the GPUs: {left}"] if left else []
    print(pd.DataFrame(speeds.values()).to_string(index=False))
    print(agreement(frames).round(3).to_string())
    print("as it should be" if not wrong else "\n".join(wrong))
    raise typer.Exit(1 if wrong else 0)


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
