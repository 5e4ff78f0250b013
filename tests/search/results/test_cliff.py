"""search.results.comparisons: what an untuned shape, and the library's own choice, cost beside the winner."""

from __future__ import annotations

from typing import Any

import pytest
from result_rows import measured, predicted, results

from kernels.device import GFX950
from kernels.families import FAMILIES
from kernels.families.defaults import default_choice
from kernels.problem import GemmShape
from search.results.comparisons import CHOSEN, UNTUNED, Cliff, cliffs
from search.results.winners import winners

SMALL, LARGE = GemmShape(16, 2112, 7168), GemmShape(64, 3072, 1536)


def default(shape: GemmShape) -> dict[str, Any]:
    """Columns of the configuration that serves ``shape`` untuned."""
    family, config = default_choice(shape, GFX950)
    origin = {"family": family, "source_hash": FAMILIES[family].source_hash}
    return {**origin, **config.to_dict(), "M": shape.M, "N": shape.N, "K": shape.K}


def other(shape: GemmShape, **knobs: Any) -> dict[str, Any]:
    return {"M": shape.M, "N": shape.N, "K": shape.K, **knobs}


def factors(*trials: dict[str, Any]) -> dict[str, dict[GemmShape, float]]:
    frame = results(*trials)
    return {cliff.subject: dict(cliff.factors) for cliff in cliffs(frame, winners(frame))}


def test_the_default_is_set_beside_each_winner() -> None:
    found = factors(
        predicted(8.0, **other(SMALL, num_warps=8)), predicted(20.0, **default(SMALL)),
        predicted(6.0, **default(LARGE)), predicted(9.0, **other(LARGE, num_warps=8)),
    )  # fmt: skip
    assert found == {UNTUNED: {SMALL: pytest.approx(2.5), LARGE: 1.0}}


def test_a_prediction_of_the_default_is_not_set_beside_a_measured_winner_but_its_measured_time_is() -> None:
    trials = (measured(8.0, num_warps=8), predicted(20.0, **default(SMALL)))
    assert factors(*trials) == {}
    assert factors(trials[0] | {"baseline_us": 12.0}, trials[1]) == {UNTUNED: {SMALL: pytest.approx(1.5)}}


def test_the_librarys_own_choice_is_set_beside_where_it_was_measured() -> None:
    library = measured(10.0, family="aiter", source_hash=FAMILIES["aiter"].source_hash)
    assert factors(measured(8.0, num_warps=8), library) == {CHOSEN: {SMALL: pytest.approx(1.25)}}


def test_without_a_winner_or_a_default_nothing_is_said() -> None:
    assert factors() == {} and factors(predicted(8.0, num_warps=8)) == {}


def test_of_several_devices_each_has_its_own() -> None:
    found = factors(
        predicted(8.0, num_warps=8), predicted(20.0, **default(SMALL)),
        measured(8.0, num_warps=8, cu_count=32, baseline_us=12.0),
    )  # fmt: skip
    assert found == {
        f"gfx950-256cu: {UNTUNED}": {SMALL: pytest.approx(2.5)}, f"gfx950-32cu: {UNTUNED}": {SMALL: pytest.approx(1.5)},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("factors", "shapes", "words"),
    [
        ({SMALL: 2.5, LARGE: 1.0}, 2, "takes 1.00 to 2.50 times as long as the winner, most at 16x2112x7168"),
        ({SMALL: 2.5, LARGE: 1.2}, 3,
         "takes 1.20 to 2.50 times as long as the winner (at 2 of 3 shapes), most at 16x2112x7168"),
        ({SMALL: 1.25}, 1, "takes 1.25 times as long as the winner"),
        ({SMALL: 1.25}, 2, "takes 1.25 times as long as the winner (at 1 of 2 shapes)"),
        ({SMALL: 1.251, LARGE: 1.249}, 2, "takes 1.25 times as long as the winner"),
        ({SMALL: 1.0, LARGE: 1.004}, 2, "is as good as the winner"),
        ({SMALL: 1.0}, 2, "is as good as the winner (at 1 of 2 shapes)"),
    ],
)  # fmt: skip
def test_the_line_gives_the_range_the_worst_shape_and_how_many_it_speaks_of(
    factors: dict[GemmShape, float], shapes: int, words: str
) -> None:
    assert Cliff(UNTUNED, factors, shapes).line() == f"without a row the default {words}"
    assert Cliff(CHOSEN, factors, shapes).line() == f"AITER's own choice {words}"


def test_shapes_without_the_default_are_counted_where_they_have_a_winner_of_the_same_device() -> None:
    trials = [predicted(8.0, **other(SMALL, num_warps=8)), predicted(20.0, **default(SMALL)),
              predicted(6.0, **other(LARGE, num_warps=8)), predicted(6.0, cu_count=32, num_warps=8)]  # fmt: skip
    frame = results(*trials)
    assert [cliff.shapes for cliff in cliffs(frame, winners(frame))] == [2]
