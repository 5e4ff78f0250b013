"""The timing protocol: how long the caller waits for one product. Sweeps, benchmarks and the dispatcher use this one.

A sample is one replay of a captured graph that holds many launches of the whole program (quantise, GEMM,
reduction, zeroing), divided by their number. Cold launches go round copies of A, the weight and the output that
together exceed the last-level cache, so that nothing of one launch's operands survives until their next use.
Workspaces are shared, as a caller's allocator would.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from scipy.special import bdtr

from kernels.errors import KernelError

Launch = Callable[[], None]
CONFIDENCE = 0.95
GRAPH_BYTES = 1 << 30  # a graph of more launches than this touches bytes takes too long for one sample


class BrokenMeasurementError(KernelError):
    """The clock gave a time that cannot be: not positive, or below what the hardware can do. It is not recorded."""


@dataclass(frozen=True)
class TimingProtocol:
    """How a time is obtained.

    Args:
        name: With its version; part of a study's key.
        cold: Whether launches go round more copies of the operands than the last-level cache holds.
        rotation: Bytes of the copies over those of the cache.
        launches: Least launches in one sample.
        batch: Samples between two looks at the clock.
        min_samples: Before an interval is trusted.
        max_samples: At most.
        half_width: Wanted half width of the median's 95 % interval over the median.
        budget_s: Seconds of sampling after which the interval is taken as it is.
        slow_ratio: Sampling stops once the interval's lower end exceeds this multiple of the best time.
    """

    name: str
    cold: bool
    rotation: float = 2.0
    launches: int = 16
    batch: int = 12
    min_samples: int = 24
    max_samples: int = 480
    half_width: float = 0.01
    budget_s: float = 0.5
    slow_ratio: float = 1.5

    def __str__(self) -> str:
        """The name, with every parameter that differs from those that the name stands for."""
        usual = asdict(PROTOCOLS[self.name])
        changed = [f"{name}={value}" for name, value in asdict(self).items() if value != usual[name]]
        return self.name + (f"[{','.join(changed)}]" if changed else "")

    def copies(self, set_bytes: int, cache_bytes: int) -> int:
        """How many sets of operands of ``set_bytes`` each to go round."""
        return max(1, math.ceil(self.rotation * cache_bytes / set_bytes)) if self.cold else 1

    def launches_per_sample(self, set_bytes: int, copies: int) -> int:
        """Launches in a graph: whole rounds over the copies, short enough for a sample."""
        wanted = max(copies, min(self.launches, GRAPH_BYTES // set_bytes), 1)
        return math.ceil(wanted / copies) * copies


COLD = TimingProtocol("cold-graph-v1", cold=True)
WARM = TimingProtocol("warm-graph-v1", cold=False)
PROTOCOLS: Mapping[str, TimingProtocol] = {protocol.name: protocol for protocol in (COLD, WARM)}


@dataclass(frozen=True)
class Timing:
    """The time of one launch of a program.

    Args:
        slow: Whether sampling stopped because it was clearly slower than the best.
        rotated_bytes: Bytes of the copies that the launches went round; 0 if warm.
        host_launch_us: Time the host takes to launch it outside of a graph.
    """

    median_us: float
    lo_us: float
    hi_us: float
    samples: int
    launches: int
    slow: bool = False
    rotated_bytes: int = 0
    host_launch_us: float = 0.0
    protocol: str = ""


def median_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """Lower end, median and upper end of the median's 95 % interval.

    The ends are order statistics: of n samples, the number below the true median is binomial(n, 1/2). Fewer than 6
    samples hold no 95 % interval; then the ends are the extremes.
    """
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    below = bdtr(np.arange(len(ordered) + 1), len(ordered), 0.5)  # chance that so many samples are under the median
    skipped = max(0, int(np.searchsorted(below, (1 - CONFIDENCE) / 2)) - 1)
    return float(ordered[skipped]), float(np.median(ordered)), float(ordered[-1 - skipped])


def sample_until_sure(
    replay_us: Callable[[int], Sequence[float]],
    protocol: TimingProtocol,
    launches: int,
    *,
    best_us: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Timing:
    """Sample until the interval is narrow, the candidate clearly slow, or the budget spent.

    Args:
        replay_us: Device times of the asked number of replays.
        best_us: Time of the best candidate so far.

    Raises:
        BrokenMeasurementError: A replay took no time, or none that is a number.
    """
    start_s = clock()
    first_us = _sane(replay_us(1))[0]  # warms up, and says how many fit the budget
    batch = max(1, min(protocol.batch, int(protocol.budget_s * 1e6 / 2 / first_us)))
    samples: list[float] = []
    slow = False
    while True:
        samples += [value / launches for value in _sane(replay_us(batch))]
        lo_us, median_us, hi_us = median_interval(samples)
        slow = best_us is not None and lo_us > protocol.slow_ratio * best_us
        sure = len(samples) >= protocol.min_samples and hi_us - lo_us <= 2 * protocol.half_width * median_us
        if slow or sure or len(samples) >= protocol.max_samples or clock() - start_s >= protocol.budget_s:
            return Timing(median_us, lo_us, hi_us, len(samples), launches, slow, protocol=str(protocol))


def _sane(values: Sequence[float]) -> Sequence[float]:
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise BrokenMeasurementError(f"broken measurement: a replay took {value} us")
    return values


def check_floor(timing: Timing, least_us: float) -> None:
    """Reject a time that the hardware cannot reach.

    Raises:
        BrokenMeasurementError: The median is below ``least_us``.
    """
    if timing.median_us < least_us:
        raise BrokenMeasurementError(
            f"broken measurement: {timing.median_us:.3f} us is below the floor of {least_us:.3f} us"
        )
