"""One candidate of the results executed again, to see where its predicted time goes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.device import GFX950, DeviceKey
from kernels.disk import default_cache, writable_cache
from kernels.errors import InputError, KernelError
from kernels.problem import GemmShape
from search.evaluation import Candidate
from search.evaluators.execution import execute_candidate
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.model.calibrated import model_of
from search.gfx950.model.executed import predict_works, times_of
from search.report.closing import compact
from search.report.timeline import write_timeline
from search.results.winners import config_of, winners

SHOWN_US = 0.005  # least term that is not shown as 0.00


def timeline(frame: pd.DataFrame, trial: str, to: Path | None) -> tuple[list[str], list[Path]]:
    """Draw the compute unit of a trial; what bounds it in words, and the files.

    Args:
        frame: Results; rows are counted and winners chosen among those that are there.
        trial: Row of the results, or ``MxNxK`` for the shape's winner.
        to: Path of the files without their endings; default: named by shape and row, in the current folder.

    Raises:
        InputError: No such trial, one that does not compile here, or a file that cannot be written.
    """
    row, standing = _chosen(frame, trial)
    shape = GemmShape(int(row["M"]), int(row["N"]), int(row["K"]))
    device = DeviceKey(str(row["arch"]), int(row["cu_count"]))
    candidate = Candidate(shape, str(row["family"]), config_of(row))
    model = model_of(device)
    if model is None:
        raise InputError(f"--timeline {trial}: is for {device}, which has no model; choose one for {GFX950.arch}")
    try:
        with tempfile.TemporaryDirectory() as logs:
            cache = ArtifactCache(writable_cache(default_cache()))
            executed = execute_candidate(candidate, device, cache, Path(logs) / "compile")
    except KernelError as error:
        raise InputError(f"--timeline {trial}: {error}; choose a trial whose outcome is ok") from error
    machine = model.machine
    works = executed.works(machine)
    prediction = predict_works(works, shape, machine, model.constants)
    times = times_of(works, shape, machine, model.constants, watch=True)
    title = (
        f"{device}  {shape}  {candidate.family}  {compact(candidate.config)}\n"
        f"predicted {prediction.predicted_us:.2f} us ({prediction.model}), bound: {prediction.bound}"
    )
    path = to or Path(f"timeline-{shape}-{row.name}")
    lines = [f"row {row.name}: {standing}", *title.splitlines(), _terms_line(prediction.terms)]
    return lines, write_timeline([work.name for work in works], times, title, machine.clock_mhz, path)


def _terms_line(terms: Mapping[str, float]) -> str:
    """What each limit would take alone, the largest first."""
    ordered = sorted(terms.items(), key=lambda term: -term[1])
    return "alone, in us: " + ", ".join(
        f"{name.removesuffix('_us')} {us:.2f}" for name, us in ordered if us >= SHOWN_US
    )


def _chosen(frame: pd.DataFrame, trial: str) -> tuple[pd.Series[Any], str]:
    """The row, and what it is to its shape."""
    if trial.isdecimal():
        if not len(frame):
            raise InputError(f"--timeline {trial}: there are no rows; sweep first, or choose some with --query")
        if int(trial) < len(frame):
            row = frame.iloc[int(trial)]
            return row, "of no study" if pd.isna(row["trial"]) else f"trial {row['trial']} of its study"
        raise InputError(f"--timeline {trial}: the results have rows 0 to {len(frame) - 1}")
    try:
        shape = GemmShape.parse(trial)
    except ValueError as error:
        raise InputError(f"--timeline {trial}: {error}; name a row of the results or a shape MxNxK") from error
    best = winners(frame[(frame["M"] == shape.M) & (frame["N"] == shape.N) & (frame["K"] == shape.K)])
    if not best:
        raise InputError(f"--timeline {trial}: the results have no winner for that shape")
    winner = max(best, key=lambda one: model_of(one.device) is not None)  # of those that can be drawn, where there are
    equals = len(winner.equals)
    tie = f", one of {equals} that cannot be told apart" if equals > 1 else ""
    return frame.loc[winner.row], f"the winner of {shape}{tie}"
