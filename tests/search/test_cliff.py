"""search.cliff: what an untuned shape, and the library's own choice, cost beside the winner."""

from __future__ import annotations

from typing import Any

import pytest
from result_rows import measured, predicted, results

from kernels.defaults import default_choice
from kernels.device import GFX950
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from search.cliff import CHOSEN, UNTUNED, Cliff, cliffs
from search.winners import winners

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


def test_the_line_gives_the_range_and_the_worst_shape() -> None:
    several = Cliff(UNTUNED, {SMALL: 2.5, LARGE: 1.0})
    assert several.line() == f"{UNTUNED} 1.00 to 2.50 times as long as the winner, most at 16x2112x7168"
    assert Cliff(CHOSEN, {SMALL: 1.25}).line() == f"{CHOSEN} 1.25 times as long as the winner"
