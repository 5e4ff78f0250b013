"""One candidate of the results executed again, to see where its predicted time goes."""

from __future__ import annotations

import tempfile
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
from search.results.columns import cost_us
from search.results.winners import config_of


def timeline(frame: pd.DataFrame, trial: str, to: Path | None) -> tuple[list[str], list[Path]]:
    """Draw the compute unit of a trial; what bounds it in words, and the files.

    Args:
        trial: Row of the results, or ``MxNxK`` for the shape's best trial.
        to: Path of the files without their endings; default: named by shape and row, in the current folder.

    Raises:
        InputError: No such trial, one that does not compile here, or a file that cannot be written.
    """
    row = _chosen(frame, trial)
    shape = GemmShape(int(row["M"]), int(row["N"]), int(row["K"]))
    device = DeviceKey(str(row["arch"]), int(row["cu_count"]))
    candidate = Candidate(shape, str(row["family"]), config_of(row))
    model = model_of(device)
    if model is None:
        raise InputError(f"trial {trial}: is for {device}, which has no model; choose one for {GFX950.arch}")
    try:
        with tempfile.TemporaryDirectory() as logs:
            cache = ArtifactCache(writable_cache(default_cache()))
            executed = execute_candidate(candidate, device, cache, Path(logs) / "compile")
    except KernelError as error:
        raise InputError(f"trial {trial}: {error}; choose a trial whose outcome is ok") from error
    machine = model.machine
    works = executed.works(machine)
    prediction = predict_works(works, shape, machine, model.constants)
    times = times_of(works, shape, machine, model.constants, watch=True)
    title = (
        f"{device}  {shape}  {candidate.family}  {compact(candidate.config)}\n"
        f"predicted {prediction.predicted_us:.2f} us ({machine.harness.name}, {prediction.model}), "
        f"bound: {prediction.bound}"
    )
    path = to or Path(f"timeline-{shape}-{row.name}")
    names = [work.name for work in works]
    return title.splitlines(), write_timeline(names, times, title, machine.clock_mhz, path)


def _chosen(frame: pd.DataFrame, trial: str) -> pd.Series[Any]:
    if trial.isdecimal():
        if int(trial) < len(frame):
            return frame.iloc[int(trial)]
        raise InputError(f"--timeline {trial}: the results have rows 0 to {len(frame) - 1}")
    try:
        shape = GemmShape.parse(trial)
    except ValueError as error:
        raise InputError(f"--timeline {trial}: {error}; name a row of the results or a shape MxNxK") from error
    mine = frame[(frame["outcome"] == "ok").fillna(False)]
    mine = mine[(mine["M"] == shape.M) & (mine["N"] == shape.N) & (mine["K"] == shape.K)]
    if not len(mine):
        raise InputError(f"--timeline {trial}: the results have no ok trial of that shape")
    return mine.iloc[int(cost_us(mine).to_numpy(float).argmin())]
