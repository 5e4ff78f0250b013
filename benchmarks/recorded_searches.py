"""Recorded spaces as tables of points with times, and the searches that are compared on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import optuna
import pandas as pd
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from kernels.errors import InputError
from kernels.families.defaults import default_choice
from kernels.problem import GemmShape
from search.evaluation import Candidate
from search.evaluators.replay import ReplayEvaluator
from search.space.space import load_spaces
from search.study.earlier import SHAPES, OtherShape
from search.study.features import PointSpace
from search.study.priors import distance, estimates_us, favourites
from search.study.surrogate import SurrogateSearch
from search.study.transfer import expected_by

SPACES = Path(__file__).resolve().parent / "recorded_spaces"
CSV_TIME = "time_ms"
OTHER_TRIALS = 96  # at random, of each other shape: as many as a sweep makes by default


@dataclass(frozen=True, eq=False)
class Recording:
    """Every point of a space with what it took.

    Args:
        name: For people.
        space: The points.
        times: Of each point [points], in any unit; NaN where it has none.
        right: Whether each point may win [points].
        seeds: Points that a sweep tries first, in order.
        frames: By family, one row a point, where the points are GEMM configurations.
    """

    name: str
    space: PointSpace
    times: npt.NDArray[np.float64]
    right: npt.NDArray[np.bool_]
    seeds: tuple[int, ...] = ()
    frames: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    @cached_property
    def best(self) -> float:
        """The shortest time."""
        return float(self.times[self.right].min())


def recordings(path: Path) -> list[Recording]:
    """What ``path`` holds: a results file with sweeps of one device, or a CSV with a column of times for each knob.

    Raises:
        InputError: Neither.
    """
    if path.suffix == ".parquet":
        return _swept(path)
    frame = pd.read_csv(path)
    if CSV_TIME not in frame.columns:
        raise InputError(
            f"{path}: has no column {CSV_TIME}; name a CSV of knobs and {CSV_TIME}, or a Parquet file of results"
        )
    times = frame.pop(CSV_TIME).to_numpy(np.float64)
    return [Recording(path.name.partition(".")[0], PointSpace({"": frame}), times, np.isfinite(times))]


def _swept(path: Path) -> list[Recording]:
    replay = ReplayEvaluator(path)
    found = []
    for shape in replay.shapes():
        legal, _ = replay.legal({}, shape)
        points = [(family, config) for family, one in legal.items() for config in one.configs]
        verdicts = [replay.submit(Candidate(shape, *point)).result() for point in points]
        times = np.array([np.nan if v.objective_us is None else v.objective_us for v in verdicts])
        right = np.array([v.outcome == "ok" for v in verdicts])
        frames = {family: one.frame for family, one in legal.items()}
        estimate_us = estimates_us(legal, shape, replay.device)
        space = PointSpace(frames, shape=shape, cu_count=replay.device.cu_count, estimate_us=estimate_us)
        liked = favourites(legal, shape, replay.device)
        defaults = [(family, config) for family, one in load_spaces(SPACES).items() for config in one.defaults]
        # As a sweep begins, without the table's row, which such a search found.
        first = [default_choice(shape, replay.device), *liked.first, *defaults, *liked.others]
        numbers = {point: number for number, point in enumerate(points)}
        seeds = tuple(numbers[point] for point in dict.fromkeys(first) if point in numbers)
        found.append(Recording(str(shape), space, times, right, seeds, frames))
    return found


def informed(spaces: Sequence[Recording]) -> list[Recording]:
    """Those of ``spaces`` that are GEMM shapes, each knowing trials of the nearest others on its device."""
    found = []
    for one in spaces:
        others = [_trials(other, shape) for other in spaces if (shape := other.space.shape) is not None]
        others = [other for other in others if other.shape != one.space.shape]
        if one.space.shape is not None and others:
            found.append(replace(one, space=_informed(one, one.space.shape, others)))
    return found


def _informed(one: Recording, shape: GemmShape, others: Sequence[OtherShape]) -> PointSpace:
    """The points of ``one`` with what the trials of ``others`` make expect of them."""
    near = sorted(others, key=lambda other: distance(shape, other.shape))[:SHAPES]
    known = one.space
    expected = expected_by(near, one.frames, shape, known.cu_count, known.estimate_us)
    return PointSpace(
        one.frames, shape=shape, cu_count=known.cu_count, estimate_us=known.estimate_us, expected=expected
    )


def _trials(other: Recording, shape: GemmShape) -> OtherShape:
    """Some points of ``other`` at random, those with times."""
    timed = np.flatnonzero(np.isfinite(other.times))
    drawn = np.sort(np.random.default_rng(0).choice(timed, min(OTHER_TRIALS, len(timed)), replace=False))
    begins = np.cumsum([0, *map(len, other.frames.values())])
    frames = {
        family: frame.iloc[drawn[(drawn >= begin) & (drawn < begin + len(frame))] - begin].reset_index(drop=True)
        for begin, (family, frame) in zip(begins, other.frames.items(), strict=False)
    }
    return OtherShape(shape, {family: frame for family, frame in frames.items() if len(frame)}, other.times[drawn])


class Search(Protocol):
    """Proposes points; ``SurrogateSearch`` is one."""

    @property
    def most_seeds(self) -> int | None:
        """Points that are tried before it is asked; None: all that there are."""
        ...

    def propose(self, running: Sequence[int]) -> int:
        """A point that was not tried."""
        ...

    def tell(self, point: int, time_us: float | None) -> None:
        """The time of a point; None where it has none."""
        ...


class RandomSearch:
    """Points in random order."""

    most_seeds: int | None = None

    def __init__(self, space: PointSpace, seed: int) -> None:
        self.space = space
        self.random = np.random.default_rng(seed)
        self.open = np.ones(len(space), np.bool_)

    def propose(self, running: Sequence[int]) -> int:
        """A random open point."""
        self.open[list(running)] = False
        return int(self.random.choice(np.flatnonzero(self.open)))

    def tell(self, point: int, time_us: float | None) -> None:
        """The point is not open any more."""
        self.open[point] = False


class LocalSearch(RandomSearch):
    """First improvement among the neighbours in one knob; restarts from a random point two knobs away."""

    def __init__(self, space: PointSpace, seed: int) -> None:
        super().__init__(space, seed)
        self.here: tuple[float, int] | None = None

    def propose(self, running: Sequence[int]) -> int:
        """An open neighbour of the best point since the last restart; else a point to restart from."""
        self.open[list(running)] = False
        if self.here is None:
            return super().propose(running)
        near = self._open_neighbours(self.here[1])
        if not len(near):
            beyond = self.random.choice(self.space.neighbours(self.here[1]))
            near, self.here = self._open_neighbours(int(beyond)), None
        return int(self.random.choice(near)) if len(near) else super().propose(running)

    def _open_neighbours(self, point: int) -> npt.NDArray[np.intp]:
        near = self.space.neighbours(point)
        return near[self.open[near]]

    def tell(self, point: int, time_us: float | None) -> None:
        """Move there where it is faster."""
        super().tell(point, time_us)
        if time_us is not None and (self.here is None or time_us < self.here[0]):
            self.here = time_us, point


class TpeSearch(RandomSearch):
    """Optuna's TPE over the places of numbers in their lists, and over texts; a wish becomes the nearest open point."""

    def __init__(self, space: PointSpace, seed: int) -> None:
        super().__init__(space, seed)
        self.study = optuna.create_study(sampler=optuna.samplers.TPESampler(multivariate=True, seed=seed))
        self.trials: dict[int, optuna.Trial] = {}
        self.texts = np.array([values.dtype == object for values in space.values.values()])
        self.spans = np.array([len(values) - 1 for values in space.values.values()])
        self.known: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(range(span + 1)) if text else IntDistribution(0, span)
            for name, span, text in zip(space.values, self.spans.tolist(), self.texts, strict=True)
        }

    def _distance(self, rows: npt.NDArray[np.intp], wish: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Sum over the knobs [rows]: of numbers as parts of their span, of texts whether they differ."""
        apart = np.abs(self.space.codes[rows] - wish)
        return np.asarray(np.where(self.texts, apart > 0, apart / self.spans).sum(axis=1), np.float64)

    def propose(self, running: Sequence[int]) -> int:
        """The open point nearest to what TPE wishes for."""
        self.open[list(running)] = False
        trial = self.study.ask()
        for name, span, text in zip(self.known, self.spans.tolist(), self.texts, strict=True):
            _ = trial.suggest_categorical(name, range(span + 1)) if text else trial.suggest_int(name, 0, span)
        rows = np.flatnonzero(self.open)
        distance = self._distance(rows, np.array([trial.params[name] for name in self.known]))
        point = int(self.random.choice(rows[distance <= distance.min() + 1e-9]))
        self.trials[point] = trial
        return point

    def tell(self, point: int, time_us: float | None) -> None:
        """Tell TPE, of a point without a time that it was pruned."""
        super().tell(point, time_us)
        trial = self.trials.pop(point, None)
        if trial is None:
            self.study.add_trial(self._seeded(point, time_us))
        elif time_us is None:
            self.study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            self.study.tell(trial, time_us)

    def _seeded(self, point: int, time_us: float | None) -> optuna.trial.FrozenTrial:
        codes = np.maximum(self.space.codes[point], 0)
        params: dict[str, Any] = {name: int(code) for name, code in zip(self.known, codes, strict=True)}
        state = optuna.trial.TrialState.PRUNED if time_us is None else optuna.trial.TrialState.COMPLETE
        return optuna.trial.create_trial(state=state, params=params, distributions=self.known, value=time_us)


SEARCHES: Mapping[str, type[RandomSearch] | type[SurrogateSearch]] = {
    "auto": SurrogateSearch,
    "tpe": TpeSearch,
    "local": LocalSearch,
    "random": RandomSearch,
}
