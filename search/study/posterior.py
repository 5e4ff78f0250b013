"""What trials say about all points: mean and deviation of a Gaussian process, kept up to date trial by trial."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from search.study.covariance import Covariance
from search.study.features import Floats, Rows, Singles

ROOM = 64  # trials by which the arrays grow
SMALLEST = 1e-9  # variance


class Posterior:
    """The process over the points of a covariance, given the points that were tried.

    A trial adds one row to the Cholesky factor of the trials' covariance, and one to its product with the covariance of
    all points: work and memory are linear in trials times points.

    Args:
        rows: Points that were tried so far [trials], in order.
    """

    def __init__(self, covariance: Covariance, rows: Rows) -> None:
        self.covariance = covariance
        self.trials = len(rows)
        size = self.trials + ROOM
        self._factor: Floats = np.zeros((size, size))
        self._projected: Singles = np.zeros((size, len(covariance)), np.float32)
        self.variance: Floats = np.full(len(covariance), covariance.parameters.variance)
        if self.trials:
            self._factorise(rows)

    def _factorise(self, rows: Rows) -> None:
        between, n = self.covariance.between(rows), self.trials
        matrix = between[:, rows].astype(np.float64)
        matrix[np.diag_indices(n)] = self.covariance.parameters.variance + self.covariance.parameters.noise
        self._factor[:n, :n] = cholesky(matrix, lower=True)
        self._projected[:n] = solve_triangular(self._factor[:n, :n].astype(np.float32), between, lower=True)
        self.variance -= np.einsum("ij,ij->j", self._projected[:n], self._projected[:n], dtype=np.float64)

    def add(self, row: int) -> None:
        """Point ``row`` is tried too."""
        if self.trials == len(self._factor):
            self._grow()
        n, p = self.trials, self.covariance.parameters
        explained = self._projected[:n, row].copy()
        between = self.covariance.of(row)
        left = max(p.variance - float(explained @ explained.astype(np.float64)), 0.0)
        pivot = np.sqrt(left + p.noise)
        self._factor[n, :n], self._factor[n, n] = explained, pivot
        self._projected[n] = (between - self._combined(explained)) / np.float32(pivot)
        self.variance -= self._projected[n].astype(np.float64) ** 2
        self.trials += 1

    def _grow(self) -> None:
        self._factor = np.pad(self._factor, (0, ROOM))
        self._projected = np.pad(self._projected, ((0, ROOM), (0, 0)))

    def remove(self, count: int) -> None:
        """Take back the last ``count`` points that were added."""
        for _ in range(count):
            self.trials -= 1
            self.variance += self._projected[self.trials].astype(np.float64) ** 2

    def mean(self, targets: Floats) -> Floats:
        """Expected target of every point [points], from those of the first trials."""
        n = len(targets)
        solved = solve_triangular(self._factor[:n, :n], targets, lower=True)
        return self._combined(solved.astype(np.float32)).astype(np.float64)

    def _combined(self, weights: Singles) -> Singles:
        """Sum of the first trials' rows over all points [points]; not by the BLAS, as for the pairs of a fit."""
        return np.asarray(np.einsum("t,tp->p", weights, self._projected[: len(weights)]), np.float32)

    def deviation(self) -> Floats:
        """Of every point's time [points], without the noise of a measurement."""
        return np.sqrt(np.maximum(self.variance, SMALLEST))
