"""A sweep that is killed without a chance to say good-bye: what was stored stays, and the same command ends it."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from search.results import load
from search.results.record import point_of

pytestmark = pytest.mark.slow  # two sweeps each, of which the compiler takes most

ROOT = Path(__file__).resolve().parents[3]
TRIALS = 4
WAIT_S = 240.0


@dataclass(frozen=True)
class Place:
    """Folders of one sweep, of its own."""

    folder: Path

    @property
    def results(self) -> Path:
        """What --results names."""
        return self.folder / "results"

    @property
    def temporary(self) -> Path:
        """Where compilers write their logs."""
        return self.folder / "temporary"

    def begin(self) -> subprocess.Popen[str]:
        """Start the sweep; nothing is compiled yet."""
        self.temporary.mkdir(exist_ok=True)
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "TMPDIR": str(self.temporary)}
        words = ["sweep", "16x128x256", "--families", "fused", "--target", "gfx950", "--until", "0", "--jobs", "1"]
        command = [sys.executable, "run_search.py", *words, "--trials", str(TRIALS), "--results", str(self.results)]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)

    def stored(self) -> int:
        """Trials that are finished, read beside who writes them."""
        try:
            with sqlite3.connect(f"file:{self.results / 'studies.db'}?mode=ro", uri=True) as database:
                return int(database.execute("SELECT count(*) FROM trials WHERE state = 'COMPLETE'").fetchone()[0])
        except sqlite3.OperationalError:  # it is only just being made
            return 0

    def is_compiling(self) -> bool:
        """Whether a compiler writes its log."""
        return any(self.temporary.glob("*/*/*.log"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def kill_when(sweep: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    """End ``sweep`` by SIGKILL, alone, as the kernel does where memory is short."""
    end_s = time.monotonic() + WAIT_S
    while not reached():
        assert sweep.poll() is None and time.monotonic() < end_s
        time.sleep(0.005)
    sweep.send_signal(signal.SIGKILL)
    sweep.communicate()
    assert sweep.returncode == -signal.SIGKILL


def end(place: Place) -> pd.DataFrame:
    """The same command once more, to its end."""
    sweep = place.begin()
    said, _ = sweep.communicate(timeout=WAIT_S)
    assert sweep.returncode == 0, said
    return load(str(place.results))


def points(rows: pd.DataFrame) -> set[str]:
    return {str(point_of({str(name): value for name, value in row.items()})) for row in records(rows)}


def records(rows: pd.DataFrame) -> list[dict[Hashable, Any]]:
    return rows.astype(object).to_dict("records")


def test_a_kill_while_a_candidate_is_compiled_costs_nothing(place: Place) -> None:
    kill_when(place.begin(), place.is_compiling)
    assert place.stored() == 0
    rows = end(place)
    assert len(rows) == len(points(rows)) == TRIALS and set(rows["outcome"]) == {"ok"}


def test_a_kill_right_behind_a_stored_trial_costs_the_running_one_at_most(place: Place) -> None:
    kill_when(place.begin(), lambda: place.stored() > 0)
    before = place.stored()
    kept = load(str(place.results))
    rows = end(place)
    assert 1 <= before == len(kept) < TRIALS
    assert len(rows) == len(points(rows)) == TRIALS and points(kept) < points(rows)
    times = [dict(zip(frame["trial"], frame["predicted_us"], strict=True)) for frame in (kept, rows)]
    assert times[0].items() <= times[1].items()
