"""benchmarks.device_before_after: what counts as slower, between two sweeps that are made up."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from device_before_after import best, compare, rate

from kernels.errors import InputError


def trial(time_us: float | None, second: int, *, selected: bool | None = None, M: int = 1) -> dict[str, Any]:
    ok = time_us is not None
    return {
        "M": M, "N": 64, "K": 64, "outcome": "ok" if ok else "crashed", "time_us": time_us, "predicted_us": None,
        "time_lo_us": time_us and 0.99 * time_us, "time_hi_us": time_us and 1.01 * time_us, "selected": selected,
        "started": f"2026-11-30T10:00:{second:02}+00:00", "duration_s": 2.0,
    }  # fmt: skip


def sweep(*times_us: float | None, final_us: float, seconds: int = 1) -> pd.DataFrame:
    found = [trial(time_us, seconds * number) for number, time_us in enumerate(times_us)]
    return pd.DataFrame([*found, trial(final_us, 50, selected=True), trial(1.5 * final_us, 50, selected=False)])


def test_the_winner_of_the_finals_counts_and_not_a_faster_trial() -> None:
    assert best(sweep(8.0, None, 9.0, final_us=10.0))["us"].to_dict() == {(1, 64, 64): 10.0}


def test_without_finals_the_best_trial_counts() -> None:
    frame = pd.DataFrame([trial(9.0, 0), trial(8.0, 1), trial(5.0, 1, M=2)])
    assert best(frame)["us"].to_dict() == {(1, 64, 64): 8.0, (2, 64, 64): 5.0}


def test_the_rate_is_that_of_the_search_and_failed_trials_count() -> None:
    assert rate(sweep(8.0, None, 9.0, final_us=10.0)) == pytest.approx(3 / 4)  # from 0 s to 2 + 2 s


@pytest.mark.parametrize(("after_us", "slower"), [(9.0, False), (10.3, False), (10.5, True)])
def test_a_winner_is_slower_where_neither_interval_nor_the_grant_explains_it(after_us: float, slower: bool) -> None:
    found = compare(sweep(8.0, 9.0, final_us=10.0), sweep(8.0, 9.0, final_us=after_us))
    assert found.shapes["slower"].tolist() == [slower]  # 0.99 * 10.5 > 1.02 * 1.01 * 10.0 > 0.99 * 10.3
    assert found.is_slower == slower


def test_fewer_trials_a_second_are_slower_too() -> None:
    assert compare(sweep(8.0, 8.0, final_us=8.0), sweep(8.0, 8.0, final_us=8.0, seconds=2)).is_slower


def test_sweeps_without_a_shape_in_common_are_an_error() -> None:
    other = sweep(8.0, final_us=8.0).assign(M=2)
    with pytest.raises(InputError, match="no shape with a winner in common"):
        compare(sweep(8.0, final_us=8.0), other)
