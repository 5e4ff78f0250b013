"""The configurations that the timing model would try first, judged from their knobs alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from kernels.config import KernelConfig
from kernels.device import DeviceKey
from kernels.problem import GemmShape
from search.gfx950.family_work import FAMILY_WORK, estimate_calls
from search.gfx950.machine import Machine
from search.gfx950.timing_model import total_us
from search.points import LegalPoints

EACH = 3  # favourites of every family
OVERALL = 12


@dataclass(frozen=True)
class Favourites:
    """What the timing model likes, by estimated time.

    Args:
        first: The best point of every family.
        others: The next few of every family, then the best of the rest.
    """

    first: tuple[tuple[str, KernelConfig], ...]
    others: tuple[tuple[str, KernelConfig], ...]


def favourites(legal: Mapping[str, LegalPoints], shape: GemmShape, device: DeviceKey) -> Favourites:
    """The best few points of every family, and the best of all.

    Points that the estimate cannot tell apart (it knows no GROUP_M, waves_per_eu or cache_modifier) count once.
    """
    machine = Machine(cu_count=device.cu_count)
    first: list[tuple[float, str, int]] = []
    each: list[tuple[float, str, int]] = []
    rest: list[tuple[float, str, int]] = []
    for family, points in legal.items():
        if family in FAMILY_WORK:
            times, indices = np.unique(estimate_us(family, points.frame, shape, machine).round(4), return_index=True)
            ranked = [(float(time), family, int(index)) for time, index in zip(times, indices, strict=True)]
            first += ranked[:1]
            each += ranked[1:EACH]
            rest += ranked[EACH:OVERALL]

    def picked(chosen: list[tuple[float, str, int]]) -> tuple[tuple[str, KernelConfig], ...]:
        return tuple((family, legal[family].config(index)) for _, family, index in chosen)

    return Favourites(picked(sorted(first)), picked([*sorted(each), *sorted(rest)[:OVERALL]]))


def estimate_us(family: str, frame: pd.DataFrame, shape: GemmShape, machine: Machine) -> npt.NDArray[np.float64]:
    """Estimated time [points] of each configuration in ``frame``."""
    columns = {
        str(name): frame[name].to_numpy(np.float64 if pd.api.types.is_numeric_dtype(frame[name]) else object)
        for name in frame.columns
    }
    times = total_us(estimate_calls(family, columns, shape, machine), machine)
    return np.broadcast_to(np.asarray(times, np.float64), len(frame))
