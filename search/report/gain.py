"""What a model gains: the time of all GEMMs of a step with the winners, beside that of the untuned default."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from kernels.device import DeviceKey
from kernels.families.defaults import default_choice
from kernels.wording import counted
from search.results.comparisons import untuned_factor
from search.results.winners import Competition
from search.space.shapes import Layer, ShapeSet

LEAST_KNOWN = 0.5  # part of a model's layers below which nothing is said about it


@dataclass(frozen=True)
class Gain:
    """A step of one deployment of a model.

    Args:
        tp: Ranks that share it.
        evidence: Whether the times were measured or predicted.
        before_us: GEMMs of a step with the untuned default, averaged over the steps of the set.
        after_us: The same with the winners.
        known: Layers whose times are known.
        layers: All that a step runs.
    """

    model: str
    tp: int
    device: DeviceKey
    evidence: str
    before_us: float
    after_us: float
    known: int
    layers: int

    def line(self) -> str:
        """One line for people."""
        part = self.after_us / self.before_us - 1
        cover = "" if self.known == self.layers else f", {self.known} of {counted(self.layers, 'layer')}"
        return (
            f"{self.model}, tp {self.tp}: GEMMs of a step take {self.before_us / 1e3:.3f} ms untuned, "
            f"{self.after_us / 1e3:.3f} ms tuned ({100 * part:+.1f} %; {self.evidence}{cover})"
        )


@dataclass(frozen=True)
class _Times:
    """Winner and default of one (N, K) by M, microseconds."""

    by_M: Mapping[int, tuple[float, float]]

    def at(self, rows: int) -> tuple[float, float] | None:
        """Times of the row that serves so many rows: the next larger M."""
        M = min((M for M in self.by_M if rows <= M), default=None)
        return None if M is None else self.by_M[M]


def gains(frame: pd.DataFrame, sets: Iterable[ShapeSet], competition: Competition | None = None) -> list[Gain]:
    """What each deployment of each model gains, where the results know at least half of its layers.

    A layer counts where the winner and the default of every step of the set are known, at the M that would serve it
    and with one kind of time.

    Args:
        competition: Of ``frame``; made if not given.
    """
    trials = competition or Competition.of(frame)
    best = trials.winners()
    known = trials.slowdowns(lambda device, shape: (default_choice(shape, device),))
    times: dict[tuple[DeviceKey, str], dict[tuple[int, int], dict[int, tuple[float, float]]]] = {}
    for winner in best:
        factor = untuned_factor(frame, winner, known.get((winner.device, winner.shape), {}))
        if factor is not None:
            rows = times.setdefault((winner.device, winner.evidence), defaultdict(dict))
            rows[winner.shape.N, winner.shape.K][winner.shape.M] = (factor * winner.cost_us, winner.cost_us)
    return [
        gain
        for (device, evidence), shapes in times.items()
        for model in sets
        for gain in _of_model(model, device, evidence, {key: _Times(by_M) for key, by_M in shapes.items()})
    ]


def _of_model(
    model: ShapeSet, device: DeviceKey, evidence: str, times: Mapping[tuple[int, int], _Times]
) -> Iterator[Gain]:
    for tp in sorted({tp for layer in model.layers for tp in layer.tp}):
        layers = [layer for layer in model.layers if tp in layer.tp]
        steps = [found for layer in layers if (found := _step_us(layer, model.steps, times)) is not None]
        if len(steps) >= max(1.0, LEAST_KNOWN * len(layers)):
            before_us, after_us = (sum(side) for side in zip(*steps, strict=True))
            yield Gain(model.name, tp, device, evidence, before_us, after_us, len(steps), len(layers))


def _step_us(
    layer: Layer, steps: Mapping[int, int], times: Mapping[tuple[int, int], _Times]
) -> tuple[float, float] | None:
    """Microseconds of a layer in an average step: untuned, tuned; None where a time is unknown."""
    known = times.get((layer.N, layer.K))
    if known is None:
        return None
    total = [0.0, 0.0]
    for tokens, occurs in steps.items():
        rows, number = layer.products(tokens)
        pair = known.at(rows)
        if pair is None:
            return None
        total = [sum_us + us * number * occurs / sum(steps.values()) for sum_us, us in zip(total, pair, strict=True)]
    return total[0], total[1]


def gain_lines(frame: pd.DataFrame, sets: Iterable[ShapeSet], competition: Competition | None = None) -> list[str]:
    """A line for each of :func:`gains`."""
    return [gain.line() for gain in gains(frame, sets, competition)]
