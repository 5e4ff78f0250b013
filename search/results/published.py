"""Trials of neighbouring projects as results, and results as trials that their formats can hold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from kernels.device import DeviceKey
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.wording import counted
from search.evaluation import Value
from search.formats.format import Reading, Trial, grouped
from search.results.columns import COLUMNS, protocol_of, typed_frame
from search.results.studies import PUBLISHED
from search.results.winners import config_of

LEFT_OUT = "left_out"  # key of DataFrame.attrs: lines about what a file holds and the results do not


def frame_of(reading: Reading, path: Path) -> pd.DataFrame:
    """Results of a published file; what was left out of it is in ``attrs["left_out"]``, as lines.

    A time in it was measured by others with their protocol, so its rows have no source hash, versions or date of ours.
    """
    records = [_record(trial, f"{PUBLISHED}{path.name}", number) for number, trial in enumerate(reading.trials)]
    frame = typed_frame({name: [record.get(name) for record in records] for name in COLUMNS})
    if reading.left_out:
        files = (
            "" if not path.is_dir() else f"{counted(reading.files, 'file')} read, {reading.others} of no format here; "
        )
        counts = f"{path}: {files}{len(reading.trials)} taken, {len(reading.left_out)} left out"
        frame.attrs[LEFT_OUT] = [counts, *(f"  {line}" for line in grouped(reading.left_out))]
    return frame


def _record(trial: Trial, study: str, number: int) -> dict[str, Value]:
    shape, device = trial.shape, trial.device
    timed = "measured" if trial.time_us is not None else "predicted" if trial.predicted_us is not None else None
    record: dict[str, Value] = {
        "study": study, "trial": number, "target": study, "arch": device.arch, "cu_count": device.cu_count,
        "M": shape.M, "N": shape.N, "K": shape.K, "family": trial.family, **trial.config.to_dict(),
        "outcome": trial.outcome, "reason": trial.reason or None, "evidence": timed, "time_us": trial.time_us,
        "predicted_us": trial.predicted_us, "started": trial.started or None, "compile_s": trial.compile_s,
        "model" if timed == "predicted" else "protocol": trial.protocol or None,
    }  # fmt: skip
    if trial.time_us is not None:
        record |= {
            "tflops": shape.flops / trial.time_us * 1e-6,
            "bandwidth_gbs": shape.unique_bytes / trial.time_us * 1e-3,
        }
    return record


def trials_of(frame: pd.DataFrame) -> Iterator[Trial]:
    """Every row of the results whose family is known, without those of finals, which repeat a trial."""
    for _, row in frame[frame["selected"].isna() & frame["family"].isin(list(FAMILIES))].iterrows():
        yield Trial(
            DeviceKey(str(row["arch"]), int(row["cu_count"])), GemmShape(*(int(row[name]) for name in "MNK")),
            str(row["family"]), config_of(row), str(row["outcome"]), _known(row["time_us"]),
            _known(row["predicted_us"]), _text(row["reason"]), protocol_of(row), _text(row["started"]),
            _known(row["compile_s"]),
        )  # fmt: skip


def _known(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _text(value: Any) -> str:
    return "" if pd.isna(value) else str(value)
