"""Searches that were cut short: what serves is the best of what was tried so far, which may be little."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from kernels.problem import GemmShape
from kernels.wording import counted, first_of
from search.results.studies import PUBLISHED, are_replayed

COLUMNS: Final = ["study", "trial", "selected", "trials_wanted", "settled", "outcome", "evidence"]  # that tell
NAMED: Final = 10  # shapes in a line
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Study:
    """The trials of one study, oldest first [trials].

    Args:
        searched: Whether each is one of the search; those of the finals repeat a trial.
        selected: Whether it won the finals.
        wanted: Trials that its run was to reach; NaN where unknown.
        settled: Whether the search had done enough with it.
        right: Whether it has a measured time.
        replayed: Whether the times were recorded earlier.
    """

    searched: Flags
    selected: Flags
    wanted: npt.NDArray[np.float64]
    settled: Flags
    right: Flags
    replayed: bool

    @property
    def settled_early(self) -> str:
        """How early its search had done enough, "" where it went on to its last trial."""
        trials = np.flatnonzero(self.searched)
        if not len(trials) or not self.settled[trials[-1]]:
            return ""
        return f"settled after {len(trials)} of {self.wanted[trials[-1]]:.0f}"

    @property
    def lack(self) -> str:
        """What it lacks."""
        wanted = self.wanted[self.searched & ~np.isnan(self.wanted)]
        searched = int(self.searched.sum())
        if len(wanted) and searched < wanted[-1] and not self.settled_early:
            return f"{searched} of {wanted[-1]:.0f} trials"
        if self.replayed or not self.right.any():
            return ""
        last_trial = np.flatnonzero(self.searched).max(initial=-1)
        last_final = np.flatnonzero(self.selected).max(initial=-1)
        return "no finals" if last_final < last_trial else ""


def _studies(frame: pd.DataFrame, names: Iterable[str]) -> Iterator[tuple[str, _Study]]:
    chosen = frame.loc[frame["study"].isin(list(names)), COLUMNS]
    rows = chosen.sort_values("trial", na_position="first", kind="stable")
    columns = {name: rows[name].fillna(False).to_numpy(bool) for name in ("selected", "settled")}
    columns["searched"] = rows["selected"].isna().to_numpy(bool)
    columns["right"] = ((rows["outcome"] == "ok") & (rows["evidence"] == "measured")).fillna(False).to_numpy(bool)
    wanted = rows["trials_wanted"].to_numpy(float, na_value=np.nan)
    groups: dict[Any, Any] = dict(rows.groupby("study", sort=False).indices)
    replayed = are_replayed(pd.Series(list(groups), dtype="string"))
    for (name, members), recorded in zip(groups.items(), replayed, strict=True):
        mine = {column: values[members] for column, values in columns.items()}
        yield str(name), _Study(wanted=wanted[members], replayed=bool(recorded), **mine)


def unfinished(frame: pd.DataFrame, studies: Iterable[str]) -> dict[str, str]:
    """What each of ``studies`` lacks, in a few words; those that lack nothing, as far as is known, are left out.

    A study is finished when it holds the trials that its last run was to reach, or settled before, and, if it was
    measured, has held its finals since. Among the recorded times of a replay no finals are held.
    """
    ours = [study for study in studies if not study.startswith(PUBLISHED)]
    return {name: study.lack for name, study in _studies(frame, ours) if study.lack}


def settled_early(frame: pd.DataFrame, studies: Iterable[str]) -> dict[str, str]:
    """How early the search of each of ``studies`` had done enough, in a few words; the others are left out."""
    return {name: study.settled_early for name, study in _studies(frame, studies) if study.settled_early}


def unfinished_line(lacks: Mapping[GemmShape, str]) -> str:
    """One line for people, which names the first few."""
    named = first_of([f"{shape} ({lack})" for shape, lack in lacks.items()], NAMED)
    return f"unfinished: {named}; the same sweep goes on"


def never_begun_lines(frame: pd.DataFrame, asked: Iterable[str]) -> list[str]:
    """A line for people about the shapes that a sweep was ``asked`` for and that have no trial; none without any."""
    begun = set(frame["shape"])
    missing = [shape for shape in asked if shape not in begun]
    named = first_of(missing, NAMED)
    return [f"{counted(len(missing), 'shape')} never begun: {named}; the same sweep begins them"] if missing else []
