"""How alike the times of two points are: the covariance of the search's Gaussian process, and its fit to trials.

The covariance is a sum of one exponential a feature and one Matern 5/2 over all features. The first part learns from a
few trials which features matter, whatever the others are; the second learns how they work together.
Source: Rasmussen, Williams, Gaussian Processes for Machine Learning (2006), chapters 4 and 5; Duvenaud, Nickisch,
Rasmussen, Additive Gaussian Processes (2011).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import LinAlgError, cho_solve, cholesky
from scipy.optimize import minimize

from search.study.features import Floats, Rows, Singles

SHARP = 0.2  # times within this fraction of the best are told apart best, as the logarithm begins there
LOWEST_SPREAD = 0.05  # of the targets: a few trials that took the same are not told apart by their noise
LEVELS = 24  # values of a feature that the exponentials tell apart
JITTER = 1e-8  # keeps the covariance of trials at nearly the same point positive definite
LOWEST_NOISE = 1e-3  # of the variance of the targets: single precision is exact enough above it
ITERATIONS = 30  # of a fit, at most
RANGE = 4.0  # deviations of the prior that a parameter may go


def slowness(times: Floats, best: float) -> Floats:
    """Targets of a model: how much slower than ``best``, as a logarithm that is compressed far from it [times]."""
    return np.asarray(np.log1p(np.log(times / best) / SHARP), np.float64)


def spread(targets: Floats) -> float:
    """Standard deviation of ``targets``, or what is the least of it."""
    return max(float(targets.std()), LOWEST_SPREAD)


def standardised(targets: Floats) -> Floats:
    """``targets`` with mean 0 and variance 1."""
    return np.asarray((targets - targets.mean()) / spread(targets), np.float64)


@dataclass(frozen=True)
class Parameters:
    """Parameters of the covariance; variances are fractions of the variance of the targets.

    Args:
        weights: Variance of the exponential of each feature [features].
        lengths: Length scale of each feature in the Matern part [features].
        joint: Variance of the Matern part.
        noise: Variance of a measurement.
    """

    weights: Floats
    lengths: Floats
    joint: float
    noise: float

    @property
    def variance(self) -> float:
        """Of the time of a point, before any trial."""
        return float(self.weights.sum() + self.joint)

    @property
    def logs(self) -> Floats:
        """All parameters as one vector [2 * features + 2] of logarithms."""
        return np.asarray(np.log(np.concatenate([self.weights, self.lengths, [self.joint, self.noise]])), np.float64)

    @classmethod
    def of_logs(cls, logs: Floats) -> Parameters:
        """The parameters in a vector of :attr:`logs`."""
        values, features = np.exp(logs), (len(logs) - 2) // 2
        return cls(values[:features], values[features:-2], float(values[-2]), float(values[-1]))


def prior(features: int) -> tuple[Parameters, Floats]:
    """Median of each parameter before any trial, and the deviations of their logarithms [2 * features + 2]."""
    median = Parameters(np.full(features, 0.5 / features), np.ones(features), joint=0.5, noise=0.01)
    return median, np.concatenate([np.full(features, 1.5), np.ones(features), [1.0, 1.5]])


class PointTable:
    """Points of a search as the covariance reads them.

    Args:
        features: Features of each point [points, features], each within 0 and 1.
    """

    def __init__(self, features: npt.NDArray[np.floating]) -> None:
        self.features = np.ascontiguousarray(features, np.float32)
        columns = [_levels(column) for column in self.features.T]
        self.levels = [levels for levels, _ in columns]
        self.codes = np.stack([codes for _, codes in columns], axis=1)  # [points, features]
        self._roots = [_exponential_root(levels) for levels in self.levels]

    def __len__(self) -> int:
        return len(self.features)

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.features.shape[1])

    def rounded(self, rows: Rows) -> Floats:
        """Features of some points, each rounded to its level [rows, features]."""
        return np.stack([levels[codes] for levels, codes in zip(self.levels, self.codes[rows].T, strict=True)], axis=1)

    def exponential_map(self, weights: Floats) -> Singles:
        """Vectors [points, levels of all features] whose products are the sum of the exponentials."""
        parts = [
            np.sqrt(weight) * root[codes]
            for weight, root, codes in zip(weights, self._roots, self.codes.T, strict=True)
        ]
        return np.concatenate(parts, axis=1, dtype=np.float32)


def _levels(column: Singles) -> tuple[Floats, npt.NDArray[np.int8]]:
    """At most LEVELS values that stand for a feature, and which one stands for each point."""
    levels = np.unique(column).astype(np.float64)
    if len(levels) > LEVELS:
        levels = np.unique(np.quantile(column, np.linspace(0, 1, LEVELS)))
    return levels, np.searchsorted((levels[1:] + levels[:-1]) / 2, column).astype(np.int8)


def _exponential_root(levels: Floats) -> Floats:
    """Square root of the covariance exp(-distance) between the levels of a feature [levels, levels]."""
    covariance = np.exp(-np.abs(levels[:, None] - levels[None]))
    return np.asarray(cholesky(covariance + JITTER * np.eye(len(levels)), lower=True), np.float64)


class Covariance:
    """The covariance with given parameters, over the points of a table."""

    def __init__(self, table: PointTable, parameters: Parameters) -> None:
        self.parameters = parameters
        self._map = table.exponential_map(parameters.weights)
        self._scaled = (table.features / parameters.lengths).astype(np.float32)
        self._squares = np.einsum("ij,ij->i", self._scaled, self._scaled)

    def __len__(self) -> int:
        return len(self._scaled)

    def between(self, rows: Rows) -> Singles:
        """Covariance of some points with all points [rows, points]."""
        products = self._scaled[rows] @ self._scaled.T
        return self._covariance(self._squares[rows][:, None], products, self._map[rows] @ self._map.T)

    def of(self, row: int) -> Singles:
        """Covariance of one point with all points [points]; not by the BLAS, as for the pairs of a fit."""
        products = np.einsum("pj,j->p", self._scaled, self._scaled[row])
        return self._covariance(self._squares[row], products, np.einsum("pj,j->p", self._map, self._map[row]))

    def _covariance(self, squares: Singles, products: Singles, exponentials: Singles) -> Singles:
        """From the products of scaled features and of maps, and the squares of the former's left sides."""
        r = np.sqrt(5 * np.maximum(squares + self._squares - 2 * products, 0))
        joint = np.float32(self.parameters.joint) * ((1 + r + r * r / 3) * np.exp(-r))
        return np.asarray(exponentials + joint, np.float32)


def fit(table: PointTable, rows: Rows, targets: Floats, start: Parameters) -> Parameters:
    """The likeliest parameters after some trials, found from ``start``.

    Args:
        rows: Points that were tried [trials].
        targets: What was measured there [trials], with mean 0 and variance 1.
        start: Where the search for the parameters begins.
    """
    median, deviations = prior(table.width)
    lowest, highest = median.logs - RANGE * deviations, median.logs + RANGE * deviations
    lowest[-1] = np.log(LOWEST_NOISE)
    pairs = _Pairs(table, rows, targets)

    def loss(logs: Floats) -> tuple[float, Floats]:
        offset = (logs - median.logs) / deviations
        value, gradient = pairs.negative_log_likelihood(Parameters.of_logs(logs))
        return value + 0.5 * float(offset @ offset), gradient + offset / deviations

    bounds = list(zip(lowest, highest, strict=True))
    found = minimize(loss, start.logs, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": ITERATIONS})
    return Parameters.of_logs(found.x)


def _weighted(weights: Floats, columns: Floats) -> Floats:
    """Sum of the columns of each pair [pairs]; not by the BLAS, whose threads would wait for busy compilers' cores."""
    return np.asarray(np.einsum("f,fp->p", weights, columns), np.float64)


def _summed(columns: Floats, pull: Floats) -> Floats:
    """Sum over the pairs [features]."""
    return np.asarray(np.einsum("fp,p->f", columns, pull), np.float64)


class _Pairs:
    """Pairs of trials: what the likelihood needs that does not depend on the parameters."""

    def __init__(self, table: PointTable, rows: Rows, targets: Floats) -> None:
        self.targets = targets
        self.i, self.j = np.tril_indices(len(rows), -1)
        rounded, exact = table.rounded(rows), table.features[rows].astype(np.float64)
        self.exponentials = np.exp(-np.abs(rounded[self.i] - rounded[self.j])).T.copy()  # [features, pairs]
        self.squares = ((exact[self.i] - exact[self.j]) ** 2).T.copy()  # [features, pairs]

    def negative_log_likelihood(self, p: Parameters) -> tuple[float, Floats]:
        """Its value, less a constant, and its gradient by the logarithms of the parameters [2 * features + 2]."""
        r = np.sqrt(5 * _weighted(p.lengths**-2, self.squares))
        decay = np.exp(-r)
        matern = (1 + r + r * r / 3) * decay
        try:
            factor = cholesky(self._matrix(p, _weighted(p.weights, self.exponentials) + p.joint * matern), lower=True)
        except LinAlgError:  # rounding; the line search steps back
            return 1e10, np.zeros(2 * len(p.weights) + 2)
        solved = cho_solve((factor, True), self.targets)
        inverse = cho_solve((factor, True), np.eye(len(factor)))
        pull = inverse[self.i, self.j] - solved[self.i] * solved[self.j]  # derivative by each pair's covariance
        own = 0.5 * float((np.diag(inverse) - solved**2).sum())  # by the variance of all trials
        by_weight = p.weights * (_summed(self.exponentials, pull) + own)
        by_length = _summed(self.squares, pull * (5 / 3) * p.joint * (1 + r) * decay) / p.lengths**2
        by_joint = p.joint * (float(np.einsum("p,p", matern, pull)) + own)
        value = 0.5 * float(self.targets @ solved) + float(np.log(np.diag(factor)).sum())
        return value, np.concatenate([by_weight, by_length, [by_joint, p.noise * own]])

    def _matrix(self, p: Parameters, pairs: Floats) -> Floats:
        matrix = np.zeros((len(self.targets),) * 2)
        matrix[self.i, self.j] = pairs
        np.fill_diagonal(matrix, p.variance + p.noise + JITTER)
        return matrix
