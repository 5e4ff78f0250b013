"""What the trials say of the points that a search looks at: the time to expect of each, and whether it works at all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from search.study.covariance import Covariance, Parameters, PointTable, spread, standardised
from search.study.features import Floats, PointSpace, Rows, one_step_away
from search.study.posterior import Posterior

FAILURE_RANGE = 0.3  # how far a failure reaches, in coordinates of the knobs that span 0 to 1


class Pool:
    """Points that the model looks at, ascending, as it sees them."""

    def __init__(self, space: PointSpace, points: Rows) -> None:
        self.points = points
        self.codes = space.codes[points]
        self.families = space.families[points]
        described = space.describe(points)
        self.knobs = described.knobs
        self.table = PointTable(described.features)

    def rows(self, points: Iterable[int]) -> Rows:
        """Rows of those of ``points`` that are in the pool, in their order."""
        wanted = np.asarray(points, np.intp)
        rows = np.minimum(np.searchsorted(self.points, wanted), len(self.points) - 1)
        return np.asarray(rows[self.points[rows] == wanted], np.intp)

    def next_to(self, point: int) -> npt.NDArray[np.bool_]:
        """Which points of the pool differ from ``point`` in one of the knobs that both have [pool]."""
        return one_step_away(self.codes, self.codes[self.rows([point])[0]])

    def nearness(self, row: int) -> Floats:
        """1 for the point in ``row``, less the more knobs differ and the further [pool]."""
        distance = np.abs(self.knobs - self.knobs[row]).sum(axis=1, dtype=np.float64)
        return np.asarray(np.exp(-distance / FAILURE_RANGE), np.float64)


class Model:
    """What the trials say about the points of a pool, until the parameters are fitted anew."""

    def __init__(self, pool: Pool, parameters: Parameters, trials: Sequence[int], failed: Sequence[int]) -> None:
        self.pool = pool
        self.trials = list(trials)
        self._posterior = Posterior(Covariance(pool.table, parameters), pool.rows(trials))
        self._worked = np.ones(len(pool.points))  # weighted votes near each point, and one for "works"
        self._votes = np.ones(len(pool.points))
        for point in trials:
            self._vote(point, worked=True)
        for point in failed:
            self._vote(point, worked=False)

    def learn(self, point: int, *, worked: bool) -> None:
        """A trial of ``point`` ended."""
        if len(rows := self.pool.rows([point])):
            self._vote(point, worked=worked)
            if worked:
                self._posterior.add(int(rows[0]))
                self.trials.append(point)

    def _vote(self, point: int, *, worked: bool) -> None:
        near = self.pool.nearness(int(self.pool.rows([point])[0]))
        self._votes += near
        self._worked += near * worked

    def outlook(self, targets: Floats, running: Sequence[int]) -> Outlook:
        """What to expect of the points.

        Args:
            targets: Of :attr:`trials`.
            running: Points whose trials have not ended: what they will say narrows the deviation.
        """
        pending = self.pool.rows(running)
        for row in pending:
            self._posterior.add(int(row))
        mean, deviation = self._posterior.mean(standardised(targets)), self._posterior.deviation()
        self._posterior.remove(len(pending))
        return Outlook(targets.mean() + spread(targets) * mean, spread(targets) * deviation, self._worked / self._votes)


@dataclass(frozen=True, eq=False)
class Outlook:
    """What a model expects of the points of its pool.

    Args:
        mean: Of the targets [pool].
        deviation: Of the targets [pool].
        works: Chance that a point has a time at all [pool].
    """

    mean: Floats
    deviation: Floats
    works: Floats

    def promise(self, best: float) -> Floats:
        """Expected improvement on the target ``best`` by each point, weighed with the chance that it works [pool]."""
        return expected_improvement(best, self.mean, self.deviation) * self.works

    def doubted(self, factor: float) -> Outlook:
        """The same by a model whose deviations are ``factor`` times as large."""
        return replace(self, deviation=factor * self.deviation)


def expected_improvement(best: float, mean: Floats, deviation: Floats) -> Floats:
    """Mean of what normally distributed values fall below ``best``, where they do [points]."""
    z = (best - mean) / deviation
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    return np.asarray(deviation * (z * ndtr(z) + density), np.float64)
