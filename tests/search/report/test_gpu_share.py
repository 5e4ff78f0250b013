"""search.report.finals: the time without work over all of the GPU's time."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from search.report.finals import gpu_wait_share


def frame(**columns: list[float | str | None]) -> pd.DataFrame:
    return pd.DataFrame(columns).convert_dtypes()


def test_the_share_counts_each_study_after_its_first_trials_only() -> None:
    rows = frame(
        study=["a", "a", "a", "b", "b", "b"],
        gpu_s=[1.0, 2.0, 3.0, 1.0, 4.0, None],  # the last never reached the GPU
        gpu_wait_s=[None, 0.5, 0.5, 9.0, 0.0, None],
    )
    assert gpu_wait_share(rows, warm_up=1) == pytest.approx(1.0 / 10.0)
    assert gpu_wait_share(rows, warm_up=0) == pytest.approx(10.0 / 21.0)


def test_without_measured_trials_there_is_no_share() -> None:
    assert math.isnan(gpu_wait_share(frame(study=["a"], gpu_s=[None], gpu_wait_s=[None])))
