"""How much of a sweep its GPU spent waiting for a compiled candidate."""

from __future__ import annotations

import math

import pandas as pd

WARM_UP = 20  # trials of a study until the compiler is ahead


def gpu_wait_share(frame: pd.DataFrame, *, warm_up: int = WARM_UP) -> float:
    """Waiting over waiting and working, from the columns ``gpu_wait_s`` and ``gpu_s``; NaN without measured trials.

    Args:
        frame: Results of one or several studies.
        warm_up: First trials of each study that do not count.
    """
    measured = frame[frame["gpu_s"].notna()]
    later = measured[measured.groupby("study").cumcount() >= warm_up]
    waited, worked = float(later["gpu_wait_s"].sum()), float(later["gpu_s"].sum())
    return waited / (waited + worked) if waited + worked > 0 else math.nan
