"""What a model gains: the time of all GEMMs of a step with the winners, beside the untuned default and AITER's rows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import pandas as pd

from kernels.device import DeviceKey
from kernels.families.defaults import default_choice
from kernels.problem import GemmShape
from kernels.wording import counted
from search.evaluation import Point
from search.formats.aiter_json import incumbents
from search.results.comparisons import published_factor, untuned_factor
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
        published_us: The same with AITER's rows where they were tried, the default elsewhere; None where none were.
        after_us: The same with the winners.
        known: Layers whose times are known.
        layers: All that a step runs.
    """

    model: str
    tp: int
    device: DeviceKey
    evidence: str
    before_us: float
    published_us: float | None
    after_us: float
    known: int
    layers: int

    def line(self) -> str:
        """One line for people."""
        changes = [f"{100 * (self.after_us / us - 1):+.1f} %" for us in (self.before_us, self.published_us) if us]
        published = "" if self.published_us is None else f"{self.published_us / 1e3:.3f} ms with AITER's rows, "
        cover = "" if self.known == self.layers else f", {self.known} of {counted(self.layers, 'layer')}"
        return (
            f"{self.model}, tp {self.tp}: GEMMs of a step take {self.before_us / 1e3:.3f} ms untuned, "
            f"{published}{self.after_us / 1e3:.3f} ms tuned ({' and '.join(changes)}; {self.evidence}{cover})"
        )


Sides = tuple[float, float, float]  # microseconds with the default, the published row (NaN: there is none), the winner
ByM = dict[int, Sides]
Published = Callable[[GemmShape], Collection[Point]]


def gains(
    frame: pd.DataFrame,
    sets: Iterable[ShapeSet],
    competition: Competition | None = None,
    published: Published = incumbents,
) -> list[Gain]:
    """What each deployment of each model gains, where the results know at least half of its layers.

    A layer counts where the winner and the default of every step of the set are known, at the M that would serve it
    and with one kind of time.

    Args:
        competition: Of ``frame``; made if not given.
        published: Rows of AITER's for a shape; their time is that of the trials here.
    """
    trials = competition or Competition.of(frame)
    published = cache(published)  # which reads files
    known = trials.slowdowns(lambda device, shape: (default_choice(shape, device), *published(shape)))
    times: dict[tuple[DeviceKey, str], dict[tuple[int, int], ByM]] = {}
    for winner in trials.winners():
        slower = known.get((winner.device, winner.shape), {})
        factor = untuned_factor(frame, winner, slower)
        if factor is not None:
            theirs = published_factor(published(winner.shape), slower) or math.nan
            rows = times.setdefault((winner.device, winner.evidence), defaultdict(dict))
            factors = (factor, theirs, 1.0)
            before_us, theirs_us, after_us = (winner.cost_us * one for one in factors)
            rows[winner.shape.N, winner.shape.K][winner.shape.M] = (before_us, theirs_us, after_us)
    return [
        gain
        for (device, evidence), shapes in times.items()
        for model in sets
        for gain in _of_model(model, device, evidence, shapes)
    ]


def _of_model(
    model: ShapeSet, device: DeviceKey, evidence: str, times: Mapping[tuple[int, int], ByM]
) -> Iterator[Gain]:
    for tp in sorted({tp for layer in model.layers for tp in layer.tp}):
        layers = [layer for layer in model.layers if tp in layer.tp]
        steps = [found for layer in layers if (found := _step_us(layer, model.steps, times)) is not None]
        if len(steps) >= max(1.0, LEAST_KNOWN * len(layers)):
            before_us, published_us, after_us = (sum(side) for side in zip(*steps, strict=True))
            theirs_us = None if published_us == before_us else published_us
            yield Gain(model.name, tp, device, evidence, before_us, theirs_us, after_us, len(steps), len(layers))


def _step_us(layer: Layer, steps: Mapping[int, int], times: Mapping[tuple[int, int], ByM]) -> Sides | None:
    """Microseconds of a layer in an average step: untuned, published, tuned; None where a time is unknown."""
    known = times.get((layer.N, layer.K))
    if known is None:
        return None
    total = [0.0, 0.0, 0.0]
    for tokens, occurs in steps.items():
        rows, number = layer.products(tokens)
        M = min((M for M in known if rows <= M), default=None)  # the row that serves so many
        if M is None:
            return None
        before_us, theirs_us, after_us = known[M]
        filled = (before_us, before_us if math.isnan(theirs_us) else theirs_us, after_us)
        total = [sum_us + us * number * occurs / sum(steps.values()) for sum_us, us in zip(total, filled, strict=True)]
    return total[0], total[1], total[2]
