"""How much each knob decides about the time, as Optuna judges it."""

from __future__ import annotations

import math
from typing import Any

import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import create_trial

from search.results.columns import CONFIG

LEAST_TRIALS = 16  # fewer say nothing about a knob


def importances(rows: pd.DataFrame) -> dict[str, float]:
    """Share of each knob that varies, by PED-ANOVA; empty where too few trials or knobs vary.

    Args:
        rows: Trials of one family at one shape, all with a time.
    """
    varying = [name for name in CONFIG if rows[name].nunique() > 1]
    times = rows["time_us"].fillna(rows["predicted_us"])
    if len(rows) < LEAST_TRIALS or not varying or times.nunique() < 2:
        return {}
    spaces = {name: _space(rows[name]) for name in varying}
    study = optuna.create_study()
    for time_us, (_, row) in zip(times, rows.iterrows(), strict=True):
        params = {name: row[name] if isinstance(row[name], str) else int(row[name]) for name in varying}
        study.add_trial(create_trial(params=params, distributions=spaces, value=float(time_us)))
    parts = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return {name: part for name, part in parts.items() if math.isfinite(part)}


def _space(values: pd.Series[Any]) -> BaseDistribution:
    """The values that occur, each as far from the next as any other."""
    known = sorted(values.dropna().unique())
    return CategoricalDistribution([value if isinstance(value, str) else int(value) for value in known])
