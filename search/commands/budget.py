"""How a sweep divides its time: by what each shape can still gain in a step of the model that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from kernels.device import DeviceKey
from kernels.families.defaults import default_choice
from kernels.problem import GemmShape
from search.device.peaks import roofline_us
from search.gfx950.machine import machine_of
from search.gfx950.model.families import estimate_us, is_modelled
from search.results.winners import winners

LEAST = 0.05  # part of the mean worth that every shape gets, so that none is left out


def worths(
    shapes: Sequence[GemmShape], weights: Mapping[GemmShape, float], results: pd.DataFrame, device: DeviceKey
) -> list[float]:
    """What a step can still gain by each of ``shapes``, relative; all alike where nothing is known about calls.

    It is the number of calls times what the best known time exceeds the roofline by. Before the first trial of a shape
    the model's estimate of its default stands in for a time, or twice the roofline on a device without a model.
    """
    if not any(weights.get(shape) for shape in shapes):
        return [1.0] * len(shapes)
    best = {winner.shape: winner.cost_us for winner in winners(results) if winner.device == device}
    found = [weights.get(shape, 0.0) * _gap_us(shape, best.get(shape), device) for shape in shapes]
    least = LEAST * sum(found) / len(found)
    return [max(worth, least) for worth in found]


def _gap_us(shape: GemmShape, best_us: float | None, device: DeviceKey) -> float:
    floor_us = roofline_us(shape, device) or 1.0
    known_us = _default_us(shape, device) if best_us is None else best_us
    return floor_us if known_us is None else max(0.0, known_us - floor_us)


def _default_us(shape: GemmShape, device: DeviceKey) -> float | None:
    """Estimated time of the untuned default, by its knobs alone; None where nothing models it."""
    family, config = default_choice(shape, device)
    machine = machine_of(device)
    if machine is None or not is_modelled(family):
        return None
    return float(estimate_us(family, pd.DataFrame([config.to_dict()]), shape, machine)[0])


def shares(worth: Sequence[float], lanes: int) -> list[float]:
    """Into how many parts the time that is left is cut when each shape begins: it takes one of them.

    Args:
        worth: Of the shapes that are to be searched, in their order.
    """
    return [max(1.0, sum(worth[i:]) / worth[i] / lanes) for i in range(len(worth))]
