"""Searches that were cut short: what serves is the best of what was tried so far, which may be little."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
import pandas as pd

from kernels.problem import GemmShape
from kernels.wording import first_of
from search.results.studies import PUBLISHED, are_replayed

NAMED: Final = 10  # shapes in a line


def unfinished(frame: pd.DataFrame, studies: Iterable[str]) -> dict[str, str]:
    """What each of ``studies`` lacks, in a few words; those that lack nothing, as far as is known, are left out.

    A study is finished when it holds the trials that its last run was to reach, or settled before, and, if it was
    measured, has held its finals since. Among the recorded times of a replay no finals are held.
    """
    ours = [study for study in studies if not study.startswith(PUBLISHED)]
    chosen = frame[frame["study"].isin(ours)].sort_values("trial", na_position="first", kind="stable")
    lacks = {str(study): _lack(rows) for study, rows in chosen.groupby("study", sort=False)}
    return {study: lack for study, lack in lacks.items() if lack}


def unfinished_line(lacks: Mapping[GemmShape, str]) -> str:
    """One line for people, which names the first few."""
    named = first_of([f"{shape} ({lack})" for shape, lack in lacks.items()], NAMED)
    return f"unfinished: {named}; the same sweep goes on"


def _lack(rows: pd.DataFrame) -> str:
    """What the study of ``rows``, oldest first, lacks."""
    searched = rows[rows["selected"].isna()]  # rows of the finals repeat a trial
    wanted = searched["trials_wanted"].dropna()
    if len(wanted) and len(searched) < wanted.iloc[-1] and not settled_line(rows):
        return f"{len(searched)} of {wanted.iloc[-1]} trials"
    right = (rows["outcome"] == "ok") & (rows["evidence"] == "measured") & ~are_replayed(rows["study"])
    if not right.fillna(False).any():
        return ""
    last_trial = np.flatnonzero(rows["selected"].isna()).max(initial=-1)
    last_final = np.flatnonzero(rows["selected"].fillna(False)).max(initial=-1)
    return "no finals" if last_final < last_trial else ""


def settled_line(rows: pd.DataFrame) -> str:
    """How early the search of one study's ``rows`` had done enough, "" where it went on to its last trial.

    Args:
        rows: Of the study, oldest first.
    """
    searched = rows[rows["selected"].isna()]
    if not len(searched) or not searched["settled"].fillna(False).iloc[-1]:
        return ""
    return f"settled after {len(searched)} of {searched['trials_wanted'].iloc[-1]}"
