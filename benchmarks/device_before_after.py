"""The sweep of another checkout against that of this one, one after the other on one machine: did anything get slower?

Usage: python benchmarks/device_before_after.py OTHER [--seconds 130] [--shapes FILE] [--target local] [--sampler auto]
       [--trials 400] [--output DIR]

Both start from empty caches and search the same shapes for as long, or until each shape has its trials; with random
the same candidates. Printed: trials a second and wall time of each; and each shape's winner, with how much longer this
checkout's takes. Two times of one configuration in two processes differ by more than the interval of either, so that
2 % are granted on top. Exit code 1 where a winner or the rate is slower than that.
OTHER is a folder: mkdir -p build/before && git archive COMMIT | tar -x -C build/before
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.errors import InputError
from search.terminal import one_line_errors

ROOT = Path(__file__).resolve().parent.parent
SHAPE = ["M", "N", "K"]
GRANTED = 0.02  # of a time, between processes
GRANTED_RATE = 0.1  # of the trials a second
ENDING_S = 100.0  # for the start and the finals, beyond the search's own time
EXIT_SLOWER = 1


@dataclass(frozen=True)
class Comparison:
    """Two sweeps of the same shapes.

    Args:
        rates: Trials a second, before and after.
        shapes: By shape: ``before_us``, ``after_us``, ``ratio``, and whether it is ``slower`` than the noise explains.
    """

    rates: tuple[float, float]
    shapes: pd.DataFrame

    @property
    def is_slower(self) -> bool:
        """Whether anything got slower."""
        before, after = self.rates
        return after < (1 - GRANTED_RATE) * before or bool(self.shapes["slower"].any())


def compare(before: pd.DataFrame, after: pd.DataFrame) -> Comparison:
    """Results of two sweeps, side by side.

    Raises:
        InputError: They have no shape with a winner in common.
    """
    both = pd.concat([best(before).add_suffix("_before"), best(after).add_suffix("_after")], axis=1, join="inner")
    if both.empty:
        raise InputError("the two sweeps have no shape with a winner in common; give them more --seconds")
    rows = pd.DataFrame({"before_us": both["us_before"], "after_us": both["us_after"]})
    rows["ratio"] = rows["after_us"] / rows["before_us"]
    rows["slower"] = both["lo_after"] > (1 + GRANTED) * both["hi_before"]
    return Comparison((rate(before), rate(after)), rows)


def best(frame: pd.DataFrame) -> pd.DataFrame:
    """Time of each shape's winner with its interval, in microseconds: that of the finals, or of the best trial."""
    measured = bool(frame["time_us"].notna().any())
    # A model's interval is no noise.
    us, lo, hi = ("time_us", "time_lo_us", "time_hi_us") if measured else ("predicted_us",) * 3
    ok = frame[frame["outcome"].eq("ok") & frame[us].notna()]
    final = ok["selected"].fillna(False).astype(bool)
    ordered = ok.assign(final=final).sort_values(["final", us], ascending=[False, True], kind="stable")
    chosen = ordered.drop_duplicates(SHAPE).set_index(SHAPE)
    return chosen[[us, lo, hi]].set_axis(["us", "lo", "hi"], axis="columns").astype(float)


def rate(frame: pd.DataFrame) -> float:
    """Trials a second, from the first start to the last end; finals do not count."""
    searched = frame[frame["selected"].isna()]
    started = pd.to_datetime(searched["started"], utc=True)
    ended = started + pd.to_timedelta(searched["duration_s"].astype(float), unit="s")
    return len(searched) / float((ended.max() - started.min()).total_seconds())


def swept(checkout: Path, folder: Path, options: Sequence[str], seconds: int) -> pd.DataFrame:
    """Results of a sweep of ``checkout``, which starts with empty caches in ``folder``.

    Raises:
        InputError: It fails, or does not end.
    """
    caches = {name: str(folder / name) for name in ("TRITON_CACHE_DIR", "XDG_CACHE_HOME")}
    paths = filter(None, (str(checkout), os.environ.get("PYTHONPATH")))
    environment = {**os.environ, **caches, "PYTHONPATH": os.pathsep.join(paths)}
    results, table = folder / "results", folder / "results.parquet"
    sweep = ["sweep", *options, "--time-budget", str(seconds), "--results", str(results)]
    for command, limit_s in ((sweep, seconds + ENDING_S), (["inspect", "--results", str(results), "--to", table], 30)):
        try:
            subprocess.run(
                [sys.executable, "run_search.py", *command], cwd=checkout, env=environment, check=True, timeout=limit_s
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise InputError(f"{checkout}: {error}") from error
    return pd.read_parquet(table)


def main(
    other: Annotated[Path, typer.Argument(help="Folder of the other checkout.")],
    seconds: Annotated[int, typer.Option(help="Of each search; both end within 520 s at the default.")] = 130,
    shapes: Annotated[Path, typer.Option(help="Shapes file.")] = ROOT / "configs/shapes/gpumode.yaml",
    target: Annotated[str, typer.Option(help="As of sweep.")] = "local",
    trials: Annotated[int, typer.Option(help="Of each shape, at most.")] = 400,
    sampler: Annotated[str, typer.Option(help="As of sweep.")] = "auto",
    output: Annotated[Path | None, typer.Option(help="Folder for the results of both, as Parquet.")] = None,
) -> None:
    """Sweep with both, and compare."""
    options = ["--shapes", str(shapes.resolve()), "--target", target, "--trials", str(trials), "--sampler", sampler]
    frames, walls = [], []
    for name, checkout in (("before", other.resolve()), ("after", ROOT)):
        with tempfile.TemporaryDirectory() as folder:
            print(f"== {name}: {checkout.name}", flush=True)
            start_s = time.monotonic()
            frames.append(swept(checkout, Path(folder), options, seconds))
            walls.append(time.monotonic() - start_s)
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            frames[-1].to_parquet(output / f"{name}.parquet")
    found = compare(*frames)
    print(found.shapes.round(3).to_string())
    print("trials a second: {:.2f} before, {:.2f} after".format(*found.rates))
    print("wall time: {:.0f} s before, {:.0f} s after".format(*walls))
    print(f"winners: {found.shapes['ratio'].mean():.3f} of the time before, on average")
    print("slower" if found.is_slower else "nothing got slower")
    raise typer.Exit(EXIT_SLOWER if found.is_slower else 0)


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
