"""The configurations that the timing model would try first, judged from their knobs alone."""

from __future__ import annotations

from collections.abc import Mapping

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


def favourites(
    legal: Mapping[str, LegalPoints], shape: GemmShape, device: DeviceKey
) -> list[tuple[str, KernelConfig]]:
    """The best few points of every family, then the best of all, by estimated time.

    Points that the estimate cannot tell apart (it knows no GROUP_M, waves_per_eu or cache_modifier) count once.
    """
    machine = Machine(cu_count=device.cu_count)
    each: list[tuple[float, str, int]] = []
    rest: list[tuple[float, str, int]] = []
    for family, points in legal.items():
        if family in FAMILY_WORK:
            times, first = np.unique(estimate_us(family, points.frame, shape, machine).round(4), return_index=True)
            ranked = [(float(time), family, int(index)) for time, index in zip(times, first, strict=True)]
            each += ranked[:EACH]
            rest += ranked[EACH:OVERALL]
    chosen = [*sorted(each), *sorted(rest)[:OVERALL]]
    return [(family, legal[family].config(index)) for _, family, index in chosen]


def estimate_us(family: str, frame: pd.DataFrame, shape: GemmShape, machine: Machine) -> npt.NDArray[np.float64]:
    """Estimated time [points] of each configuration in ``frame``."""
    columns = {
        str(name): frame[name].to_numpy(np.float64 if pd.api.types.is_numeric_dtype(frame[name]) else object)
        for name in frame.columns
    }
    times = total_us(estimate_calls(family, columns, shape, machine), machine)
    return np.broadcast_to(np.asarray(times, np.float64), len(frame))
