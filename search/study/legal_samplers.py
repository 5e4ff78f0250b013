"""Optuna samplers over the legal points: what they propose is always legal and never tried before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from kernels.families import FAMILIES
from search.evaluation import TIMED
from search.results.record import RECORD
from search.study.points import Points, family_distribution

if TYPE_CHECKING:
    from search.study.surrogate import SurrogateSearch

QUEUED = "fixed_params"  # Optuna's attribute of a trial that was queued with its parameters
Spaces = Mapping[str, Mapping[str, BaseDistribution]]


class LegalSampler(BaseSampler):
    """Base: one whole point a trial, so that no field is ever sampled alone.

    Args:
        points: The legal points and which were tried.
        spaces: Distributions of each family's fields.
    """

    learns = True  # whether what a trial says changes the next proposal
    most_seeds: int | None = None  # points that a sweep may try before it asks; None: all that it has

    def __init__(self, points: Points, spaces: Spaces) -> None:
        self.points = points
        self.spaces = spaces

    @property
    def expected_gain(self) -> float | None:
        """Part of the best time that the last proposal could hope to save; None where the sampler has no opinion."""
        return None

    def infer_relative_search_space(self, study: optuna.Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Every parameter of every family."""
        space: dict[str, BaseDistribution] = {"family": family_distribution()}
        for distributions in self.spaces.values():
            space.update(distributions)
        return space

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """``family`` and the fields of its configuration; nothing for a queued trial, or when every point was tried."""
        if not self.points.untried or QUEUED in trial.system_attrs:
            return {}
        family, config = self.propose(study, trial)
        values = config.to_dict()
        return {"family": family, **{name: values[name] for name in self.spaces[family]}}

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> tuple[str, Any]:
        """An untried point."""
        raise NotImplementedError

    def hopes(self, study: optuna.Study) -> Mapping[int, float]:
        """By the number of a running trial: what it promises, as a part of what the best open point does."""
        return {}

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Never called: :meth:`sample_relative` gives every field."""
        raise RuntimeError(f"{param_name} was not part of the proposed point")


class GridSampler(LegalSampler):
    """All points in their order, the families in turn."""

    learns = False

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> tuple[str, Any]:
        """The first untried point."""
        return self.points.first()


class RandomSampler(LegalSampler):
    """A family at random, then one of its untried points."""

    learns = False

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> tuple[str, Any]:
        """A random untried point."""
        return self.points.random()


class SurrogateSampler(LegalSampler):
    """The point from which a model of the times, over all legal points, expects most; slow trials teach it too.

    Args:
        points: The legal points and which were tried.
        search: Over the points in the numbering of ``points``.
    """

    def __init__(self, points: Points, spaces: Spaces, search: SurrogateSearch) -> None:
        super().__init__(points, spaces)
        self.most_seeds = search.most_seeds
        self.search = search
        self._told: set[int] = set()  # numbers of trials

    @property
    def expected_gain(self) -> float | None:
        """Of the most promising point at the last proposal; None before the model was asked."""
        return self.search.expected_gain

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> tuple[str, Any]:
        """The point that promises most, given what has ended and what is running."""
        return self.points.at(self.search.propose(list(self._learn(study).values())))

    def hopes(self, study: optuna.Study) -> Mapping[int, float]:
        """As the model sees the running trials now."""
        running = self._learn(study)
        return dict(zip(running, self.search.hopes(list(running.values())).tolist(), strict=True))

    def _learn(self, study: optuna.Study) -> dict[int, int]:
        """Tell the search what has ended; points of the trials that are running, by their numbers."""
        running = {}
        for trial in study.get_trials(deepcopy=False):
            if trial.number not in self._told and (point := self._point(trial)) is not None:
                if trial.state.is_finished():
                    self._tell(trial, point)
                elif trial.state == TrialState.RUNNING:
                    running[trial.number] = point
        return running

    def _tell(self, trial: FrozenTrial, point: int) -> None:
        self._told.add(trial.number)
        if trial.state == TrialState.FAIL:  # given up before it began
            self.search.reopen(point)
        else:
            self.search.tell(point, time_of(trial))

    def _point(self, trial: FrozenTrial) -> int | None:
        """Number of the trial's point; None where it has none yet, or one that is not legal any more."""
        family = str(trial.params.get("family"))
        if family not in self.spaces or any(name not in trial.params for name in self.spaces[family]):
            return None
        config = FAMILIES[family].config({name: trial.params[name] for name in self.spaces[family]})
        return self.points.number(family, config)


def time_of(trial: FrozenTrial) -> float | None:
    """Time of an ended trial in microseconds, that of a slow one too; None where it has none."""
    record = trial.user_attrs.get(RECORD)
    if record is None:
        return trial.value
    measured = record.get("evidence") == "measured"
    time_us = record.get("time_us" if measured else "predicted_us") if record["outcome"] in TIMED else None
    return None if time_us is None else float(time_us)


class ModelSampler(LegalSampler):
    """The untried point nearest to what one of Optuna's model-based samplers proposes.

    Args:
        points: The legal points and which were tried.
        startup: Random points before the model is asked.
    """

    def __init__(self, points: Points, spaces: Spaces, inner: BaseSampler, startup: int) -> None:
        super().__init__(points, spaces)
        self.inner = inner
        self.startup = startup

    def propose(self, study: optuna.Study, trial: FrozenTrial) -> tuple[str, Any]:
        """The point nearest to the model's wish."""
        if len(study.get_trials(deepcopy=False)) <= self.startup:
            return self.points.random()
        space = self.inner.infer_relative_search_space(study, trial)
        wish = self.inner.sample_relative(study, trial, space)
        family = self._wish(wish, study, trial, "family", family_distribution())
        if family not in self.spaces:
            return self.points.random()
        fields = self.spaces[family].items()
        return self.points.nearest(family, {name: self._wish(wish, study, trial, name, d) for name, d in fields})

    def _wish(
        self, wish: Mapping[str, Any], study: optuna.Study, trial: FrozenTrial, name: str, of: BaseDistribution
    ) -> Any:
        return wish[name] if name in wish else self.inner.sample_independent(study, trial, name, of)

    def after_trial(self, study: optuna.Study, trial: FrozenTrial, state: Any, values: Any) -> None:
        """Let the model see the end of the trial."""
        self.inner.after_trial(study, trial, state, values)
