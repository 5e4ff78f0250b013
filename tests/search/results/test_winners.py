"""search.results.winners: the best evidenced, then fastest, and inside the noise the safest trial."""

from __future__ import annotations

import pytest
from result_rows import ATOMIC, failed, measured, only, predicted, results

from kernels.device import GFX950, DeviceKey
from kernels.families.fused import SplitKAtomicConfig, TileConfig
from kernels.problem import GemmShape
from kernels.tables.rows import TunedTable
from search.commands.export import table_rows
from search.results.winners import shapes_of, winners


def test_fastest_ok_trial_wins_with_its_margin() -> None:
    frame = results(predicted(10.0), predicted(8.0, num_warps=8, roofline_fraction=0.5), predicted(12.0, num_warps=2))
    winner = only(winners(frame))
    assert (winner.device, winner.shape, winner.family) == (GFX950, GemmShape(16, 2112, 7168), "fused")
    assert winner.config == TileConfig(num_warps=8)
    assert (winner.cost_us, winner.evidence, winner.roofline_fraction) == (8.0, "predicted", 0.5)
    assert winner.margin == pytest.approx(0.25)  # 10 / 8 - 1
    assert frame["predicted_us"][winner.row] == 8.0


@pytest.mark.parametrize("outcome", ["wrong_result", "slow", "resource_limit", "crashed", "timed_out"])
def test_trial_that_is_not_ok_never_wins_however_fast(outcome: str) -> None:
    fast = predicted(0.5, num_warps=8) | {"outcome": outcome}
    assert only(winners(results(predicted(10.0), fast))).cost_us == 10.0
    assert winners(results(fast)) == []


def test_measured_trial_beats_a_faster_prediction() -> None:
    assert only(winners(results(predicted(5.0, num_warps=8), measured(9.0)))).evidence == "measured"


def test_trials_of_older_kernels_and_models_do_not_compete_with_present_ones() -> None:
    old_kernels = predicted(5.0, source_hash="000000000000")
    old_model = predicted(6.0, model="t0", started="2026-11-29T10:00:00+00:00", num_warps=2)
    now = predicted(9.0, num_warps=8)
    assert only(winners(results(old_kernels, old_model, now))).cost_us == 9.0
    assert only(winners(results(old_kernels))).cost_us == 5.0  # better than none


def test_repeated_trial_counts_with_its_latest_time() -> None:
    first = measured(5.0, started="2026-11-29T10:00:00+00:00")
    again = measured(9.0, started="2026-11-30T10:00:00+00:00")
    assert only(winners(results(again, first, measured(8.0, num_warps=8)))).cost_us == 8.0


def test_inside_the_noise_the_incumbent_then_determinism_then_fewer_resources_decide() -> None:
    fastest = measured(10.0, 0.5, vgprs=256, deterministic=False, num_warps=2)
    safe_big = measured(10.3, 0.1, vgprs=200, num_warps=4)
    safe_small = measured(10.4, 0.1, vgprs=100, num_warps=8)
    beyond = measured(10.6, 0.1, vgprs=10, num_warps=16)
    frame = results(fastest, safe_big, safe_small, beyond)
    assert only(winners(frame)).config.num_warps == 8
    incumbents = TunedTable(GFX950, tuple(table_rows(results(safe_big))))
    assert only(winners(frame, incumbents)).config.num_warps == 4
    loser = TunedTable(GFX950, tuple(table_rows(results(beyond))))
    assert only(winners(frame, loser)).config.num_warps == 8


def test_winner_of_the_latest_finals_wins_against_a_faster_single_time() -> None:
    lucky = measured(7.0, num_warps=2)
    earlier = measured(8.0, selected=True, num_warps=4, started="2026-11-30T11:00:00+00:00")
    final = measured(9.0, selected=True, num_warps=8, started="2026-11-30T12:00:00+00:00")
    beaten = measured(8.9, selected=False, num_warps=16, started="2026-11-30T12:00:00+00:00")
    winner = only(winners(results(lucky, earlier, final, beaten)))
    assert winner.config.num_warps == 8
    assert winner.margin == pytest.approx(7.0 / 9.0 - 1)


def test_margin_of_finals_is_that_of_their_paired_differences() -> None:
    final = measured(8.0, selected=True, margin_us=0.4)
    assert only(winners(results(final, measured(7.0, num_warps=8)))).margin == pytest.approx(0.05)


def test_margin_is_negative_where_a_slower_trial_wins_a_tie() -> None:
    frame = results(measured(10.0, 1.0, vgprs=256), measured(10.5, 0.1, vgprs=100, num_warps=8))
    winner = only(winners(frame))
    assert winner.cost_us == 10.5
    assert winner.margin == pytest.approx(10.0 / 10.5 - 1)


def test_equal_predictions_are_ties_and_unequal_ones_are_not() -> None:
    tie = results(predicted(10.0, vgprs=200, num_warps=2), predicted(10.0, vgprs=100, num_warps=8))
    assert only(winners(tie)).config.num_warps == 8
    faster = results(predicted(9.999, vgprs=200), predicted(10.0, vgprs=100, num_warps=8))
    assert only(winners(faster)).config.num_warps == 4


def test_atomic_family_is_left_out_where_determinism_is_asked_for() -> None:
    frame = results(predicted(9.0, **ATOMIC, deterministic=True), predicted(10.0))
    assert only(winners(frame)).config == SplitKAtomicConfig()
    assert not only(winners(frame)).deterministic  # whatever the trial says
    assert only(winners(frame, deterministic_only=True)).family == "fused"


def test_configuration_that_todays_rules_forbid_does_not_win() -> None:
    illegal = predicted(1.0, BLOCK_N=48)
    assert only(winners(results(illegal, predicted(9.0)))).cost_us == 9.0
    assert winners(results(illegal)) == []


def test_devices_and_shapes_compete_apart_in_the_order_of_n_k_m() -> None:
    frame = results(
        predicted(1.0, N=4096),
        predicted(2.0, M=32),
        predicted(3.0),
        predicted(4.0, cu_count=128),
        failed("crashed", M=1),
    )
    keys = [(w.device.cu_count, str(w.shape)) for w in winners(frame)]
    assert keys == [(128, "16x2112x7168"), (256, "16x2112x7168"), (256, "32x2112x7168"), (256, "16x4096x7168")]
    assert shapes_of(frame)[1] == (DeviceKey("gfx950", 256), GemmShape(1, 2112, 7168))


def test_field_that_an_older_version_did_not_record_has_its_default() -> None:
    assert only(winners(results(predicted(9.0, num_xcds=None)))).config == TileConfig()


def test_no_results_no_winners() -> None:
    assert winners(results()) == [] and shapes_of(results()) == []


def test_predictions_that_the_model_does_not_tell_apart_are_ties_and_the_most_usual_one_wins() -> None:
    default = predicted(10.2, predicted_tie=0.03)
    fast = predicted(10.0, num_warps=8, num_stages=3, predicted_tie=0.03, vgprs=1)
    slow = predicted(10.4, num_warps=2, predicted_tie=0.03)
    frame = results(fast, default, slow)
    winner = only(winners(frame))
    assert winner.config == TileConfig()
    assert [float(frame["predicted_us"][row]) for row in winner.equals] == [10.0, 10.2]
    assert winner.margin == pytest.approx(10.0 / 10.2 - 1)


def test_measured_ties_go_by_resources_and_not_by_what_is_usual() -> None:
    frame = results(measured(10.0, 0.5, vgprs=200), measured(10.1, 0.5, num_warps=8, num_stages=3, vgprs=100))
    assert only(winners(frame)).config == TileConfig(num_warps=8, num_stages=3)
