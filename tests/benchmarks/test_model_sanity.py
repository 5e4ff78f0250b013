"""benchmarks/model_sanity.py: laws of every prediction, over a small sample, and that it sees what breaks them."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
from model_sanity import faults, ladders, predicted

from kernels.problem import GemmShape

SHAPES = [GemmShape(m, 2880, 512) for m in (16, 32, 48)]


def test_a_time_that_is_no_number_below_the_roofline_or_falls_is_a_fault() -> None:
    assert list(faults([(SHAPES[0], 3.0), (SHAPES[1], 3.0), (SHAPES[2], 3.1)])) == []
    assert list(faults([(SHAPES[0], float("nan"))])) == ["16x2880x512: nan us"]
    assert "is below the roofline" in next(faults([(SHAPES[0], 0.01)]))
    assert "a tile fewer takes 3.000 us" in next(faults([(SHAPES[0], 3.0), (SHAPES[1], 2.9)]))


@pytest.mark.parametrize("index", range(4))
def test_predictions_of_random_candidates_keep_the_laws(index: int) -> None:
    (ladder,) = islice(ladders(index + 1, 3, seed=3), index, None)
    times = list(predicted(replace(ladder, shapes=ladder.shapes[:3])))
    assert list(faults(times)) == []
