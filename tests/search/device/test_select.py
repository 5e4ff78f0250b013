"""search.device.selection: ties are called ties, and inside the noise the safe candidate wins."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.device.selection import Finalist, choose_finalists, finalist, select
from search.evaluation import Candidate

SHAPE = GemmShape(16, 2112, 7168)


def one(index: int, time_us: float, width: float = 0.2, **rest: object) -> Finalist:
    candidate = Candidate(SHAPE, "fused", TileConfig(GROUP_M=index + 1))
    given = {"deterministic": True, **rest}
    return Finalist(candidate, time_us, time_us - width / 2, time_us + width / 2, **given)  # type: ignore[arg-type]


def noisy(
    means: Sequence[float], sigma: float, rounds: int = 40, drift: float = 0.0, seed: int = 0
) -> list[list[float]]:
    """Times of finalists with these means; ``drift`` moves a whole round, as a clock that sinks does."""
    random = np.random.default_rng(seed)
    common = np.linspace(0, drift, rounds)[:, None]
    return (np.asarray(means) + common + random.normal(0, sigma, (rounds, len(means)))).tolist()


def test_finalists_are_those_within_the_noise_of_the_fastest() -> None:
    measured = [one(0, 20.0), one(1, 20.1), one(2, 20.15), one(3, 20.19), one(4, 20.3), one(5, 30.0)]
    assert [f.time_us for f in choose_finalists(measured)] == [20.0, 20.1, 20.15, 20.19]


def test_at_least_three_are_finalists_and_at_most_eight() -> None:
    assert len(choose_finalists([one(i, 20.0 + 5 * i) for i in range(6)])) == 3
    assert len(choose_finalists([one(i, 20.0) for i in range(20)])) == 8
    assert len(choose_finalists([one(0, 20.0)])) == 1
    assert choose_finalists([]) == []


def test_the_incumbent_always_defends_its_place() -> None:
    measured = [one(i, 20.0 + 5 * i) for i in range(6)] + [one(9, 80.0, incumbent=True)]
    assert [f.time_us for f in choose_finalists(measured)] == [20.0, 25.0, 30.0, 80.0]


def test_the_faster_finalist_wins_although_the_search_ranked_it_behind() -> None:
    finalists = [one(0, 20.0), one(1, 20.1), one(2, 20.2)]
    chosen = select(finalists, noisy([20.6, 19.8, 20.9], sigma=0.2))
    assert chosen.winner.finalist is finalists[1]
    assert not chosen.tie
    assert chosen.margin_us == pytest.approx(0.8, abs=0.15)
    assert chosen.confidence is not None and chosen.confidence > 0.99
    assert chosen.rank_tau == pytest.approx(1 / 3)  # of three pairs one changed its order


def test_paired_differences_see_through_a_drift_larger_than_the_gap() -> None:
    finalists = [one(0, 20.0), one(1, 20.5)]
    chosen = select(finalists, noisy([20.0, 20.5], sigma=0.1, drift=10.0))
    assert chosen.winner.finalist is finalists[0]
    assert not chosen.tie


@pytest.mark.parametrize(
    "better",
    [{"incumbent": True, "deterministic": False, "resources": (99.0,)}, {"resources": (10.0,)}],
)
def test_inside_the_noise_the_incumbent_then_fewer_resources_win(better: dict[str, object]) -> None:
    usual: dict[str, object] = {"resources": (20.0,)}
    finalists = [one(0, 20.0, **usual), one(1, 20.0, **{**usual, **better}), one(2, 25.0, **usual)]
    chosen = select(finalists, noisy([20.0, 20.05, 25.0], sigma=0.3))
    assert chosen.winner.finalist is finalists[1]
    assert chosen.tie
    assert chosen.margin_us == pytest.approx(5.0, abs=0.5)  # to the first that is no tie


def test_inside_the_noise_a_deterministic_one_beats_one_with_fewer_resources() -> None:
    finalists = [one(0, 20.0, deterministic=False, resources=(1.0,)), one(1, 20.0, resources=(99.0,))]
    assert select(finalists, noisy([20.0, 20.0], sigma=0.2)).winner.finalist is finalists[1]


def test_a_difference_below_one_percent_is_a_tie_however_sure() -> None:
    finalists = [one(0, 20.0), one(1, 20.1, incumbent=True)]
    chosen = select(finalists, noisy([20.0, 20.1], sigma=0.001))
    assert chosen.tie and chosen.winner.finalist is finalists[1]


def test_a_clear_gap_beats_the_incumbent() -> None:
    finalists = [one(0, 20.0), one(1, 21.0, incumbent=True)]
    assert select(finalists, noisy([20.0, 21.0], sigma=0.1)).winner.finalist is finalists[0]


def test_two_sweeps_of_one_shape_agree_or_call_it_a_tie() -> None:
    finalists = [one(i, 20.0) for i in range(5)]
    means = [20.0, 20.05, 20.1, 20.6, 23.0]
    for seed in range(20):
        first, second = (select(finalists, noisy(means, 0.15, seed=2 * seed + i)) for i in (0, 1))
        assert first.winner.finalist is second.winner.finalist or (first.tie and second.tie)
        assert first.winner.finalist in finalists[:3]


def test_a_single_finalist_wins_without_margin_or_ranks() -> None:
    chosen = select([one(0, 20.0)], noisy([20.0], 0.1))
    assert (chosen.margin_us, chosen.confidence, chosen.rank_tau, chosen.tie) == (None, None, None, False)
    assert choose_finalists([]) == []


def test_rounds_of_another_width_are_refused() -> None:
    with pytest.raises(ValueError, match="2 finalists"):
        select([one(0, 1.0), one(1, 1.0)], [[1.0], [2.0]])


def test_a_results_row_becomes_a_finalist() -> None:
    candidate = Candidate(SHAPE, "fused", TileConfig())
    row = {"time_us": 20.0, "time_lo_us": 19.5, "deterministic": True, "vgprs": 128, "lds_bytes": 4096}
    made = finalist(candidate, row)
    assert (made.lo_us, made.hi_us, made.deterministic) == (19.5, 20.0, True)
    assert made.resources == (128.0, 4096.0, float("inf"))
