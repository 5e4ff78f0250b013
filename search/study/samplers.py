"""The samplers by name; each is loaded when it is made, so that ``--help`` names them without Optuna."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels.errors import InputError
from kernels.wording import instead_of

if TYPE_CHECKING:
    from kernels.device import DeviceKey
    from kernels.problem import GemmShape
    from search.study.earlier import OtherShape
    from search.study.features import PointSpace
    from search.study.legal_samplers import LegalSampler, Spaces
    from search.study.points import Points

GRID = "grid"  # name of the sampler that takes the points in their order


@dataclass(frozen=True)
class SamplerTask:
    """What a sampler may know.

    Args:
        points: The legal points and which were tried.
        shape: Problem; with ``device`` it lets the surrogate reason about tiles, waves and the formula's estimate.
        others: Reads trials of other shapes there, from which the surrogate learns before its first.
    """

    points: Points
    spaces: Spaces
    seed: int
    budget: int
    shape: GemmShape | None = None
    device: DeviceKey | None = None
    others: Callable[[], Sequence[OtherShape]] = tuple


def _auto(task: SamplerTask) -> LegalSampler:
    """Every point where the budget covers them all, else the surrogate."""
    return (_grid if task.budget >= task.points.untried else _surrogate)(task)


def _surrogate(task: SamplerTask) -> LegalSampler:
    from search.study.legal_samplers import SurrogateSampler
    from search.study.surrogate import SurrogateSearch  # loads SciPy, and some sweeps have nothing to search

    return SurrogateSampler(task.points, task.spaces, SurrogateSearch(_space(task), task.seed, task.points.last))


def _tpe(task: SamplerTask) -> LegalSampler:
    from optuna.samplers import TPESampler

    from search.study.legal_samplers import ModelSampler

    return ModelSampler(task.points, task.spaces, TPESampler(multivariate=True, seed=task.seed), startup=10)


def _random(task: SamplerTask) -> LegalSampler:
    from search.study.legal_samplers import RandomSampler

    return RandomSampler(task.points, task.spaces)


def _grid(task: SamplerTask) -> LegalSampler:
    from search.study.legal_samplers import GridSampler

    return GridSampler(task.points, task.spaces)


SAMPLERS: Mapping[str, Callable[[SamplerTask], LegalSampler]] = {
    "auto": _auto,
    "surrogate": _surrogate,
    "tpe": _tpe,
    "random": _random,
    GRID: _grid,
}


def check_sampler(name: str) -> None:
    """Refuse a name that is none of :data:`SAMPLERS`.

    Raises:
        InputError: Unknown name.
    """
    if name not in SAMPLERS:
        raise InputError(f"unknown sampler {name!r}; {instead_of(name, SAMPLERS)}")


def make_sampler(name: str, task: SamplerTask) -> LegalSampler:
    """The sampler called ``name``.

    Raises:
        InputError: Unknown name.
    """
    check_sampler(name)
    return SAMPLERS[name](task)


def _space(task: SamplerTask) -> PointSpace:
    """The points with what is known of them before any trial."""
    from search.study.features import PointSpace
    from search.study.priors import estimates_us
    from search.study.transfer import expected_by

    legal, shape, device = task.points.legal, task.shape, task.device
    frames = {family: one.frame for family, one in legal.items()}
    if shape is None or device is None:
        return PointSpace(frames)
    estimate_us = estimates_us(legal, shape, device)
    others = task.others()
    expected = expected_by(others, frames, shape, device.cu_count, estimate_us) if others else None
    return PointSpace(frames, shape=shape, cu_count=device.cu_count, estimate_us=estimate_us, expected=expected)
