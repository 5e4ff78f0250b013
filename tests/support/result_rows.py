"""Results made by hand for tests."""

from __future__ import annotations

from typing import Any

import pandas as pd

from kernels.families import FAMILIES
from kernels.families.fused import SplitKAtomicConfig, TileConfig
from search.evaluation import Value
from search.results.columns import COLUMNS, typed_frame

ATOMIC: dict[str, Value] = {"family": "fused_splitk_atomic", **SplitKAtomicConfig().to_dict()}


def predicted(us: float, **changes: Value) -> dict[str, Value]:
    """An ok trial of ``fused`` at 16x2112x7168 on gfx950, predicted."""
    return {
        "study": "study", "trial": 0, "arch": "gfx950", "cu_count": 256, "M": 16, "N": 2112, "K": 7168,
        "family": "fused", **TileConfig().to_dict(), "outcome": "ok", "evidence": "predicted", "predicted_us": us,
        "model": "t1", "triton": "3.9.0", "torch": "2.13.0", "source_hash": FAMILIES["fused"].source_hash,
        "started": "2026-11-30T10:00:00+00:00", **changes,
    }  # fmt: skip


def measured(us: float, spread_us: float = 0.0, **changes: Value) -> dict[str, Value]:
    """An ok trial of ``fused`` at 16x2112x7168 on gfx950, measured."""
    times: dict[str, Value] = {"time_us": us, "time_lo_us": us - spread_us / 2, "time_hi_us": us + spread_us / 2}
    return predicted(1.0) | {"evidence": "measured", "protocol": "cold-v1", **times, **changes}


def failed(outcome: str, **changes: Value) -> dict[str, Value]:
    """A trial that ended in ``outcome``."""
    return predicted(0.1) | {"outcome": outcome, "predicted_us": None, "evidence": None, **changes}


def results(*trials: dict[str, Value]) -> pd.DataFrame:
    """DataFrame of the trials."""
    return typed_frame({name: [trial.get(name) for trial in trials] for name in COLUMNS})


def only(values: list[Any]) -> Any:
    """The one member."""
    (value,) = values
    return value
