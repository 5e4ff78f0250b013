"""How a sweep divides its time."""

from __future__ import annotations

import pytest
from result_rows import predicted, results

from kernels.device import GFX950
from kernels.problem import GemmShape
from search.commands.budget import LEAST, shares, worths

OFTEN, RARE = GemmShape(16, 2112, 7168), GemmShape(32, 2112, 7168)


def test_equal_worths_take_equal_parts_of_what_is_left() -> None:
    assert shares([1.0, 1.0, 1.0], lanes=1) == [3.0, 2.0, 1.0]
    assert shares([1.0, 1.0, 1.0], lanes=2) == [1.5, 1.0, 1.0]


def test_a_shape_takes_the_part_of_the_time_that_its_worth_is() -> None:
    # 6 of 8 at first; of the rest 1 of 2, then all.
    assert shares([6.0, 1.0, 1.0], lanes=1) == pytest.approx([8 / 6, 2.0, 1.0])


def test_worth_is_calls_times_the_time_above_the_roofline() -> None:
    frame = results(predicted(10.0), predicted(10.0, M=32))
    often, rare = worths([OFTEN, RARE], {OFTEN: 8.0, RARE: 2.0}, frame, GFX950)
    # The least time at 8 TB/s: 8,340,736 bytes take 1.0426 us at M = 16, 8,637,696 take 1.0797 us at M = 32.
    assert often == pytest.approx(8 * (10 - OFTEN.unique_bytes / 8e6), rel=1e-6)
    assert rare == pytest.approx(2 * (10 - RARE.unique_bytes / 8e6), rel=1e-6)


def test_without_calls_all_are_alike_and_nobody_is_left_out() -> None:
    assert worths([OFTEN, RARE], {}, results(predicted(10.0)), GFX950) == [1.0, 1.0]
    often, rare = worths([OFTEN, RARE], {OFTEN: 8.0}, results(predicted(10.0)), GFX950)
    assert rare == pytest.approx(LEAST * often / 2)


def test_before_the_first_trial_the_estimate_of_the_default_stands_in() -> None:
    untried, tuned = worths([OFTEN, RARE], {OFTEN: 1.0, RARE: 1.0}, results(predicted(2.0, M=32)), GFX950)
    assert untried > tuned
