"""search.device.timing: when sampling stops, and what an interval is. No GPU: the clock is a script."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.device.measure import host_launch_us
from search.device.timing import (
    COLD,
    WARM,
    BrokenMeasurementError,
    Timing,
    check_floor,
    median_interval,
    sample_until_sure,
)

LAUNCHES = 10
MB = 1 << 20


class Clock:
    """Seconds that pass only where the script says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def replays(clock: Clock, noise: Callable[[int], Sequence[float]]) -> Callable[[int], list[float]]:
    """Replays of ``LAUNCHES`` launches each whose time per launch is ``noise``; the clock advances by them."""

    def replay_us(count: int) -> list[float]:
        times = [LAUNCHES * value for value in noise(count)]
        clock.now_s += sum(times) * 1e-6
        return times

    return replay_us


def normal(mean: float, sigma: float, seed: int = 0) -> Callable[[int], Sequence[float]]:
    random = np.random.default_rng(seed)
    return lambda count: list(random.normal(mean, sigma, count))


def test_a_quiet_kernel_needs_the_least_samples_and_gives_its_time_per_launch() -> None:
    clock = Clock()
    timing = sample_until_sure(replays(clock, lambda n: [20.0] * n), COLD, LAUNCHES, clock=clock)
    assert (timing.median_us, timing.lo_us, timing.hi_us) == (20.0, 20.0, 20.0)
    assert timing.samples == COLD.min_samples
    assert timing.protocol == "cold-graph-v1"


def test_a_noisy_kernel_is_sampled_until_the_interval_is_below_two_percent() -> None:
    clock = Clock()
    timing = sample_until_sure(replays(clock, normal(20.0, 1.0)), COLD, LAUNCHES, clock=clock)
    assert timing.samples > COLD.min_samples
    assert timing.hi_us - timing.lo_us <= 0.02 * timing.median_us
    assert timing.median_us == pytest.approx(20.0, rel=0.02)


def test_the_budget_ends_a_kernel_that_never_settles() -> None:
    clock = Clock()
    protocol = replace(COLD, half_width=1e-6, budget_s=0.01)
    timing = sample_until_sure(replays(clock, normal(20.0, 5.0)), protocol, LAUNCHES, clock=clock)
    assert clock.now_s < 0.02
    assert timing.samples < COLD.max_samples


def test_the_budget_bounds_the_first_batch_too() -> None:
    clock = Clock()
    sample_until_sure(replays(clock, lambda n: [30_000.0] * n), COLD, LAUNCHES, clock=clock)  # 0.3 s a replay
    assert clock.now_s <= 2 * COLD.budget_s


def test_a_clearly_slower_kernel_stops_after_one_batch_and_says_so() -> None:
    clock = Clock()
    timing = sample_until_sure(replays(clock, normal(40.0, 1.0)), COLD, LAUNCHES, best_us=20.0, clock=clock)
    assert timing.slow
    assert timing.samples == COLD.batch


def test_a_kernel_near_the_best_is_not_called_slow() -> None:
    clock = Clock()
    timing = sample_until_sure(replays(clock, normal(25.0, 0.1)), COLD, LAUNCHES, best_us=20.0, clock=clock)
    assert not timing.slow


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_time_that_cannot_be_is_a_broken_measurement(value: float) -> None:
    with pytest.raises(BrokenMeasurementError, match="broken measurement"):
        sample_until_sure(lambda count: [value] * count, COLD, LAUNCHES)


def test_a_time_below_the_floor_is_a_broken_measurement() -> None:
    timing = Timing(0.6, 0.6, 0.6, 24, LAUNCHES)
    check_floor(timing, 0.59)
    with pytest.raises(BrokenMeasurementError, match=r"0\.600 us is below the floor of 0\.610 us"):
        check_floor(timing, 0.61)


@pytest.mark.parametrize(
    "count, skipped",
    # Tables of the sign test: the largest k with P(binomial(n, 1/2) < k) <= 0.025, less one.
    [(6, 0), (9, 1), (10, 1), (20, 5), (30, 9), (50, 17)],
)
def test_the_interval_ends_at_the_order_statistics_of_the_sign_test(count: int, skipped: int) -> None:
    lo, median, hi = median_interval(list(range(count)))
    assert (lo, hi) == (skipped, count - 1 - skipped)
    assert median == (count - 1) / 2


def test_the_interval_holds_the_true_median_in_about_95_of_100_cases() -> None:
    random = np.random.default_rng(3)
    hits = 0
    for _ in range(1000):
        lo, _, hi = median_interval(list(random.exponential(size=40)))
        hits += lo <= math.log(2) <= hi
    assert 930 <= hits <= 990


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=60))
def test_the_median_lies_in_its_interval_and_the_interval_in_the_samples(samples: list[float]) -> None:
    lo, median, hi = median_interval(samples)
    assert min(samples) <= lo <= median <= hi <= max(samples)


def test_cold_copies_exceed_twice_the_cache_and_warm_is_one_copy() -> None:
    assert COLD.copies(8 * MB, 60 * MB) == 15
    assert COLD.copies(1024 * MB, 60 * MB) == 1
    assert WARM.copies(8 * MB, 60 * MB) == 1


@given(st.integers(1, 1 << 34), st.integers(1 << 20, 1 << 28))
def test_a_sample_goes_round_all_copies_the_same_number_of_times(set_bytes: int, cache_bytes: int) -> None:
    copies = COLD.copies(set_bytes, cache_bytes)
    launches = COLD.launches_per_sample(set_bytes, copies)
    assert launches % copies == 0
    assert launches >= copies
    assert copies * set_bytes >= 2 * cache_bytes or (copies == 1 and set_bytes >= 2 * cache_bytes)


def test_a_changed_parameter_shows_in_the_protocol_that_is_recorded() -> None:
    assert str(COLD) == "cold-graph-v1"
    assert str(replace(WARM, budget_s=2.0)) == "warm-graph-v1[budget_s=2.0]"


def test_the_host_cost_is_the_median_of_launches_that_start_on_an_idle_device() -> None:
    clock, order = Clock(), []

    class Device:
        def synchronize(self) -> None:
            order.append("wait")

    def launch() -> None:
        order.append("launch")
        clock.now_s += 5e-6 if len(order) < 50 else 9e-6

    assert host_launch_us(Device(), launch, count=40, clock=clock) == pytest.approx(7.0, abs=2.1)  # type: ignore[arg-type]
    assert order[:4] == ["wait", "launch", "wait", "launch"]
