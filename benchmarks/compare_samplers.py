"""How near each sampler comes to the best recorded configuration, by trials spent. Needs no GPU.

Usage: python benchmarks/compare_samplers.py [--recorded DIR] [--trials 100] [--repeats 5] [--samplers tpe,random,...]

Trials are served from exhaustively recorded sweeps (results/recorded/*.parquet) over benchmarks/recorded_spaces; they
start from nothing, without seeds. Prints the median over the repeats of how much slower the best found is, in percent.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import optuna
import pandas as pd
import typer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.problem import GemmShape
from search.evaluation import Candidate, Evaluation, Value
from search.evaluators.replay import ReplayEvaluator
from search.results.record import RECORD, make_record
from search.space.legal_set import legal_set
from search.space.space import load_spaces
from search.study.points import LegalPoints, Points
from search.study.study import StudyRun
from search.terminal import one_line_errors

ROOT = Path(__file__).resolve().parent.parent
MARKS = (10, 20, 40, 70, 100, 200)


def recorded_times(replay: ReplayEvaluator, shape: GemmShape) -> dict[Candidate, float]:
    """Measured time of each candidate that is right."""
    verdicts = ((one, replay.submit(one).result()) for one in replay.candidates if one.shape == shape)
    return {one: v.objective_us for one, v in verdicts if v.outcome == "ok" and v.objective_us is not None}


def legal_points(shape: GemmShape, device: DeviceKey) -> dict[str, LegalPoints]:
    """Legal points of the recorded spaces; a family without any at this shape is left out."""
    found: dict[str, LegalPoints] = {}
    for family, space in load_spaces(ROOT / "benchmarks" / "recorded_spaces").items():
        try:
            found[family] = legal_set(space, shape, device)
        except InputError:
            continue
    return found


def best_so_far(replay: ReplayEvaluator, shape: GemmShape, sampler: str, seed: int, trials: int) -> list[float]:
    """Smallest time after each trial; NaN before the first that is right."""

    def record(one: Candidate, evaluation: Evaluation, started: str, seconds: float) -> Mapping[str, Value]:
        return make_record(
            study="compare", device=replay.device, candidate=one, evaluation=evaluation,
            started=started, duration_s=seconds, versions={},
        )  # fmt: skip

    kept = optuna.create_study()
    run = StudyRun(kept, shape, replay, Points(legal_points(shape, replay.device), seed), record)
    run.run(sampler=sampler, seed=seed, trials=trials)
    records = [trial.user_attrs[RECORD] for trial in kept.get_trials(deepcopy=False)]
    times = [record["time_us"] if record["outcome"] == "ok" else np.inf for record in records]
    best = np.minimum.accumulate(times)
    return list(np.where(np.isfinite(best), best, np.nan))


def main(
    recorded: Annotated[Path, typer.Option(help="Folder of recorded sweeps.")] = ROOT / "results" / "recorded",
    trials: Annotated[int, typer.Option(help="Of each search.")] = 100,
    repeats: Annotated[int, typer.Option(help="Seeds.")] = 5,
    samplers: Annotated[str, typer.Option(help="Comma-separated.")] = "tpe,random,grid",
    output: Annotated[Path | None, typer.Option(help="CSV of every search.")] = None,
) -> None:
    """Search every recorded shape with every sampler."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    rows = []
    for path in sorted(recorded.glob("*.parquet")):
        replay = ReplayEvaluator(path)
        for shape in replay.shapes():
            optimum = min(recorded_times(replay, shape).values())
            for sampler in samplers.split(","):
                for seed in range(repeats):
                    curve = best_so_far(replay, shape, sampler, seed, trials)
                    slower = {f"after {n}": 100 * (curve[n - 1] / optimum - 1) for n in MARKS if n <= len(curve)}
                    rows.append({"shape": str(shape), "sampler": sampler, "seed": seed, **slower})
    frame = pd.DataFrame(rows)
    if frame.empty:
        raise typer.BadParameter(f"{recorded} holds no Parquet file", param_hint="--recorded")
    if output is not None:
        frame.to_csv(output, index=False)
    print("percent slower than the best recorded, median over the seeds")
    print(frame.drop(columns="seed").groupby(["shape", "sampler"], sort=False).median().round(1).to_string())


if __name__ == "__main__":
    with one_line_errors():
        typer.run(main)
