"""The search's own sampler: a Gaussian process over the legal points, told of every trial, asked for the next.

Source: Jones, Schonlau, Welch, Efficient global optimization of expensive black-box functions (1998), for expected
improvement; Ginsbourger, Le Riche, Carraro, Kriging is well-suited to parallelize optimization (2010), for trials that
are under way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from search.study.covariance import SHARP, Parameters, fit, prior, slowness, standardised
from search.study.features import Floats, PointSpace, Rows
from search.study.outlook import Model, Outlook, Pool

# What they do for a search, benchmarks/compare_samplers.py shows; what they cost, benchmarks/suggestion_time.py.
START = 8  # trials before the model is asked: what a sweep tries first, or points far from each other
SPREAD_OVER = 200  # random points of which the farthest from what was tried is taken; one: a tenth more trials to 5 %
FIRST_TIMES = 4  # trials with times before the model is asked, as it learns from nothing else
GROWTH = 1.2  # of the trials, between two fits, which are most of a search's cost
FITTED = 160  # trials in a fit, at most: its cost grows with their pairs
REMEMBERED = 512  # trials that the model holds, at most: a suggestion's cost and memory grow with them, and with
POOL = 16_000  # points that the model looks at; of more, those that look best, near the best, and a random part
NEAR = 5  # best trials whose neighbours are in the pool
NEIGHBOUR_SHARE = 0.4  # of the proposals: next to the best point; none: a tenth more trials to 1 %
OTHERS_SHARE = 0.25  # of the proposals, at most: in another family than the best point's, while that is about as fast
STUCK = 16  # trials without a better one, until the model is doubted; never: where it ends late, a tenth later to 1 %


class SurrogateSearch:
    """Proposes the point with the largest expected improvement, weighed with the chance that it works.

    The largest of all open points, or at times of those next to the best one, or at times of another family, as an
    improvement on that family's own best.

    Args:
        last: Points that are left until no other is [points].
    """

    most_seeds = START  # more delay the model: with 20 of them, it came to 5 % of the H200's spaces a quarter later

    def __init__(self, space: PointSpace, seed: int, last: npt.NDArray[np.bool_] | None = None) -> None:
        self.space = space
        self._random = np.random.default_rng(seed)
        self._open = np.ones(len(space), np.bool_)
        self._last = np.zeros(len(space), np.bool_) if last is None else last
        self._times: dict[int, float] = {}  # by point, in the order of the trials
        self._failed: list[int] = []
        self._fastest: dict[int, int] = {}  # point of each family that has a time
        self._waited = 0  # trials since the best one
        self._parameters: Parameters | None = None
        self._next_fit = 0
        self._begun = 0  # points that were proposed without the model
        self._pool: Pool | None = None
        self._model: Model | None = None
        self.expected_gain: float | None = None  # of the last proposal's time that the best open point may save

    def tell(self, point: int, time_us: float | None) -> None:
        """A trial of ``point`` ended.

        Args:
            time_us: Its time, certain or not; None where it has none.
        """
        self._open[point] = False
        self._waited += 1
        if time_us is None:
            self._failed.append(point)
        else:
            self._time(point, time_us)
        if self._model is not None:
            self._model.learn(point, worked=time_us is not None)

    def _time(self, point: int, time_us: float) -> None:
        if not self._times or time_us < self._times[self._best]:
            self._waited = 0
        self._times[point] = time_us
        own = self._fastest.setdefault(self._family(point), point)
        if time_us < self._times[own]:
            self._fastest[self._family(point)] = point

    def reopen(self, point: int) -> None:
        """The trial of ``point`` was given up before it began."""
        self._open[point] = True

    def hopes(self, running: Sequence[int]) -> Floats:
        """What each running point promises, as a part of what the best open one does; 1 where nothing is known.

        Args:
            running: Points whose trials have not ended.
        """
        hopes = np.ones(len(running))
        if self._model is None:
            return hopes
        pool = self._model.pool
        outlook = self._outlook(self._model, ()).doubted(self._doubt)
        free, rows = pool.rows(self._choice()), pool.rows(running)
        known = np.isin(running, pool.points)
        hopes[known] = _parts(outlook.promise(self._target(self._best)), rows, free)
        for family in self._fastest.keys() & pool.families[rows].tolist():  # what is poor may be its family's best
            mine = pool.families[rows] == family
            promise = outlook.promise(self._target(self._fastest[family]))
            own = _parts(promise, rows[mine], free[pool.families[free] == family])
            hopes[np.flatnonzero(known)[mine]] = np.maximum(hopes[known][mine], own)
        return hopes

    def propose(self, running: Sequence[int] = ()) -> int:
        """An open point to try next.

        Args:
            running: Points whose trials have not ended.
        """
        self._open[list(running)] = False
        choice = self._choice()
        if len(self._times) < FIRST_TIMES or len(self._times) + len(self._failed) + len(running) < START:
            return self._first(choice, [*self._times, *self._failed, *running])
        model = self._current_model(running)
        free = model.pool.rows(choice)
        if not len(free):
            return int(self._random.choice(choice))
        outlook = self._outlook(model, running)
        gain = outlook.promise(self._target(self._best))[free].max()
        self.expected_gain = SHARP * float(gain)  # near the best, targets are SHARP times as steep
        outlook = outlook.doubted(self._doubt)
        family = self._other_family(model.pool, free)
        if family is None:
            rows, beaten = self._near_or_all(model.pool, free), self._best
        else:
            rows, beaten = free[model.pool.families[free] == family], self._fastest.get(family, self._best)
        promise = outlook.promise(self._target(beaten))[rows]
        return int(model.pool.points[self._random.choice(rows[promise >= promise.max()])])

    @property
    def _best(self) -> int:
        """The fastest point."""
        return min(self._fastest.values(), key=self._times.__getitem__)

    @property
    def _doubt(self) -> float:
        """Of the model: from 1 to 2 while no trial is better, so that a search leaves the place where it is stuck.

        It begins late: a search that refines waits too, and with an earlier doubt it needs more trials to 1 %.
        """
        return 1 + min(max(self._waited / STUCK - 1, 0.0), 1.0)

    def _family(self, point: int) -> int:
        return int(self.space.families[point])

    def _near_or_all(self, pool: Pool, free: Rows) -> Rows:
        """Rows to choose from: at times those next to the best point only."""
        near = free[pool.next_to(self._best)[free]]
        return near if len(near) and self._random.random() < NEIGHBOUR_SHARE else free

    def _other_family(self, pool: Pool, free: Rows) -> int | None:
        """At times another family than the best point's, the more often the closer its own best is.

        A family is a kernel of its own. Left to the largest improvement, the search refines whichever had the better
        first trials: on an H200 for 60 trials, while the winner was of the other.
        """
        others = np.setdiff1d(pool.families[free], self._family(self._best))
        if not len(others):
            return None
        family = int(self._random.choice(others))
        return family if self._random.random() < OTHERS_SHARE * self._speed(family) ** 2 else None

    def _speed(self, family: int) -> float:
        """Of a family's best, as a part of the best's; of one without a time, the less the more of it failed."""
        if family in self._fastest:
            return self._times[self._best] / self._times[self._fastest[family]]
        return 1 / (1 + sum(self._family(point) == family for point in self._failed))

    def _first(self, choice: Rows, tried: Sequence[int]) -> int:
        """Before the model is asked: in turn what other shapes' trials make expect most of, and what is far away."""
        expected = None if self.space.expected is None else self.space.expected[choice]
        self._begun += 1
        if expected is None or not np.isfinite(expected).any() or self._begun % 2 == 0:
            return self._far(choice, tried)
        return int(choice[np.nanargmin(expected)])

    def _far(self, choice: Rows, tried: Sequence[int]) -> int:
        """Of some points at random, the one that is farthest from the tried ones."""
        some = self._random.choice(choice, min(len(choice), SPREAD_OVER), replace=False)
        if not tried:
            return int(some[0])
        features = self.space.describe(np.concatenate([some, np.asarray(tried, np.intp)])).features
        distance = cdist(features[: len(some)], features[len(some) :], "cityblock").min(axis=1)
        return int(some[distance.argmax()])

    def _choice(self) -> Rows:
        """Open points, the doubtful ones only where there is no other."""
        promising = np.flatnonzero(self._open & ~self._last)
        return promising if len(promising) else np.flatnonzero(self._open)

    def _targets(self, trials: Sequence[int]) -> Floats:
        """What the model learns of each trial."""
        return slowness(np.array([self._times[point] for point in trials]), self._times[self._best])

    def _target(self, trial: int) -> float:
        return float(self._targets([trial])[0])

    def _outlook(self, model: Model, running: Sequence[int]) -> Outlook:
        return model.outlook(self._targets(model.trials), running)

    def _current_model(self, running: Sequence[int]) -> Model:
        """The model, with its parameters fitted anew where the trials have grown enough."""
        if self._model is None or len(self._times) >= self._next_fit:
            pool = self._current_pool(running)
            start = self._parameters or prior(pool.table.width)[0]
            fitted = self._remembered(FITTED)
            targets = standardised(self._targets(fitted))
            self._parameters = fit(pool.table, pool.rows(fitted), targets, start)
            self._next_fit = math.ceil(max(len(self._times) + 1, len(self._times) * GROWTH))
            self._model = Model(pool, self._parameters, self._remembered(REMEMBERED), self._failed)
        return self._model

    def _remembered(self, limit: int) -> list[int]:
        """Trials with times, in their order: of more than ``limit`` the best half of it and a random rest."""
        trials = list(self._times)
        if len(trials) <= limit:
            return trials
        order = np.argsort(list(self._times.values()))
        rest = self._random.choice(order[limit // 2 :], limit - limit // 2, replace=False)
        return [trials[i] for i in sorted([*order[: limit // 2], *rest])]

    def _current_pool(self, running: Sequence[int]) -> Pool:
        """Every point, or those that the model shall look at until its next fit."""
        if len(self.space) <= POOL:
            self._pool = self._pool or Pool(self.space, np.arange(len(self.space)))
            return self._pool
        choice = self._choice()
        liked = self._liked(choice)
        chance = self._random.choice(len(choice), min(len(choice), POOL // 2), replace=False)
        best = sorted(self._times, key=self._times.__getitem__)[:NEAR]
        near = [self.space.neighbours(point) for point in best]
        tried = [*self._times, *self._failed, *running]
        return Pool(self.space, np.unique(np.concatenate([liked, choice[chance], *near, tried]).astype(np.intp)))

    def _liked(self, choice: Rows) -> Rows:
        """Of the points to choose from, those with the smallest estimates."""
        if self.space.estimate_us is None:
            return choice[:0]
        return choice[np.argsort(self.space.estimate_us[choice])[: POOL // 2]]


def _parts(promise: Floats, rows: Rows, free: Rows) -> Floats:
    """What ``rows`` promise as a part of the most that ``free`` do; 1 where these promise nothing [rows]."""
    most = float(promise[free].max(initial=0.0))
    return promise[rows] / most if most > 0 else np.ones(len(rows))
