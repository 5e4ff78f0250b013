"""compare_samplers and device_samplers: what is counted, on a space small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from compare_samplers import Setting, evaluations, searched
from device_samplers import comparison
from kernel_tuner_searches import STRATEGIES, KernelTunerSearch
from recorded_searches import SEARCHES, recordings
from result_rows import failed, measured, results

from kernels.errors import InputError
from kernels.problem import GemmShape


def recorded(folder: Path) -> Path:
    """64 points, each 0.8 % of the best slower than the one before; one has no time."""
    x, y = np.meshgrid(2 ** np.arange(8), 2 ** np.arange(8), indexing="ij")
    frame = pd.DataFrame({"x": x.ravel(), "y": y.ravel(), "time_ms": 1 + np.arange(64) / 125})
    frame.loc[5, "time_ms"] = np.nan
    frame.to_csv(folder / "made.csv.gz", index=False)
    return folder / "made.csv.gz"


class InOrder:
    """Proposes the points backwards, and remembers what was in flight."""

    most_seeds = 2

    def __init__(self) -> None:
        self.next = 63
        self.running: list[int] = []

    def propose(self, running: list[int]) -> int:
        self.running.append(len(running))
        self.next -= 1
        return self.next + 1

    def tell(self, point: int, time_us: float | None) -> None:
        assert (time_us is None) == (point == 5)


def test_counts_evaluations_to_each_part_of_the_best(tmp_path: Path) -> None:
    (recording,) = recordings(recorded(tmp_path))
    assert recording.name == "made" and recording.best == 1.0
    needed, _ = evaluations(recording, InOrder(), Setting(trials=64))
    assert needed == [58, 63]  # backwards, 1.048 is the 58th and 1.008 the 63rd
    assert evaluations(recording, InOrder(), Setting(trials=61))[0] == [58, 122]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_of_kernel_tuner_asks_for_each_point_once_and_hears_its_time(tmp_path: Path, strategy: str) -> None:
    pytest.importorskip("kernel_tuner", reason="the extra bench is not installed")
    (recording,) = recordings(recorded(tmp_path))
    asked = list(searched(recording, KernelTunerSearch(recording.space, 0, strategy), Setting(trials=64)))
    assert sorted(asked) == list(range(64))
    again = list(searched(recording, KernelTunerSearch(recording.space, 0, strategy), Setting(trials=64)))
    assert again == asked
    with pytest.raises(InputError, match="one point at a time"):
        list(searched(recording, KernelTunerSearch(recording.space, 0, strategy), Setting(trials=64, capacity=4)))


def test_as_many_are_in_flight_as_a_study_would_allow(tmp_path: Path) -> None:
    (recording,) = recordings(recorded(tmp_path))
    search = InOrder()
    assert list(searched(recording, search, Setting(trials=40, capacity=64))) == list(range(63, 23, -1))
    assert max(search.running[:8]) == 7 and max(search.running) < 20


def test_a_search_begins_with_as_many_seeds_as_it_wants(tmp_path: Path) -> None:
    (recording,) = recordings(recorded(tmp_path))
    begun = list(searched(replace(recording, seeds=(7, 9, 11)), InOrder(), Setting(trials=4, seeded=True)))
    assert begun == [7, 9, 63, 62]


@pytest.mark.parametrize("name", SEARCHES)
def test_every_search_proposes_every_point_once(name: str, tmp_path: Path) -> None:
    (recording,) = recordings(recorded(tmp_path))
    found = list(searched(recording, SEARCHES[name](recording.space, 0), Setting(trials=64, capacity=4)))
    assert sorted(found) == list(range(64))


def test_a_csv_without_times_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("x,y\n1,2\n")
    with pytest.raises(InputError, match=r"bad\.csv: has no column time_ms"):
        recordings(tmp_path / "bad.csv")


def test_samplers_are_compared_by_trials_to_the_best_of_all() -> None:
    slow = [failed("crashed", trial=0), measured(9.0, trial=1), measured(8.05, trial=2), measured(9.5, trial=3)]
    fast = [measured(8.0, trial=0), measured(7.99, trial=1)]
    table = comparison({"a": results(*slow), "b": results(*fast)}, (GemmShape(16, 2112, 7168),))
    assert table["best us"].tolist() == [8.05, 7.99]
    assert table["to the best"].tolist() == [3, 1]  # within 1 % of 7.99
    assert table["to a's"].tolist() == [3, 1]  # within 1 % of 8.05
