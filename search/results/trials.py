"""The trials of one study as they are kept: a record each, without what Optuna would add to propose the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState, create_trial

from search.evaluation import Value
from search.results.columns import COLUMNS
from search.results.record import COLUMNS_OF, FINAL, RECORD, Listed, Record, columns_version, packed, unpacked


@dataclass(frozen=True)
class KeptTrial:
    """One trial.

    Args:
        number: Of it within the study.
        final: Whether it repeats another in the finals of the study.
    """

    number: int
    record: Record
    final: bool


class KeptTrials:
    """The trials of a study in a storage.

    A trial keeps its value, its state and its record. Parameters and their distributions, which take twice as much
    room, follow from the record; ``inspect --to FILE.db`` writes a storage that has them.
    """

    def __init__(self, study: optuna.Study) -> None:
        self.study = study
        key = f"{COLUMNS_OF}{columns_version()}"
        if key not in study.user_attrs:
            study.set_user_attr(key, list(COLUMNS))

    def read(self) -> list[KeptTrial]:
        """Those that have a record, oldest first."""
        trials = self.study.get_trials(deepcopy=False)
        return list(kept_trials(trials, listed(self.study.user_attrs)))

    def add(self, record: Mapping[str, Value], *, final: bool = False) -> None:
        """Add a trial, whole and in one transaction."""
        self.study.add_trial(kept_as(record, final=final))


def kept_as(record: Mapping[str, Value], *, final: bool) -> FrozenTrial:
    """Optuna's trial that holds ``record`` and no more."""
    return frozen_trial(record, {RECORD: packed(record)} | ({FINAL: True} if final else {}))


def listed(attributes: Mapping[str, Any]) -> Listed:
    """Columns by version, as the attributes of a study list them."""
    return {key.removeprefix(COLUMNS_OF): names for key, names in attributes.items() if key.startswith(COLUMNS_OF)}


def kept_trials(trials: Iterable[FrozenTrial], columns: Listed) -> Iterable[KeptTrial]:
    """Those of Optuna's trials that have a record."""
    for trial in trials:
        if RECORD in trial.user_attrs:
            record = unpacked(trial.user_attrs[RECORD], columns)
            yield KeptTrial(trial.number, record, FINAL in trial.user_attrs)


def objective_us(record: Mapping[str, Value]) -> float | None:
    """What the search minimised, in microseconds; None of a trial that is not ``ok``."""
    time_us = record.get("time_us" if record.get("evidence") == "measured" else "predicted_us")
    return float(time_us) if record["outcome"] == "ok" and isinstance(time_us, (int, float)) else None


def frozen_trial(record: Mapping[str, Value], attributes: Mapping[str, Any], **parameters: Any) -> FrozenTrial:
    """Optuna's view of a record: complete with its objective, else pruned, which samplers learn from too.

    Args:
        attributes: Of the user.
        parameters: ``params`` and ``distributions``, where there are any.
    """
    value = objective_us(record)
    state = TrialState.PRUNED if value is None else TrialState.COMPLETE
    return create_trial(state=state, value=value, user_attrs=dict(attributes), **parameters)
