"""search.results.comparisons: what the row of a bucket costs at the other M of the bucket."""

from __future__ import annotations

from typing import Any

import pytest
from result_rows import failed, measured, only, predicted, results

from kernels.device import GFX950
from kernels.tables.rows import TunedTable
from search.commands.export import table_rows
from search.results.comparisons import Regret, regrets

WIDE: dict[str, Any] = {"num_warps": 8}  # the configuration of the row for M = 64


def table(*M_and_knobs: tuple[int, dict[str, Any]]) -> TunedTable:
    trials = [predicted(9.0, M=M, **knobs) for M, knobs in M_and_knobs]
    return TunedTable(GFX950, tuple(table_rows(results(*trials))))


def by_row(found: list[Regret]) -> dict[int, dict[int, float]]:
    return {regret.row.M: dict(regret.slower) for regret in found}


def test_a_row_is_compared_with_the_best_at_each_smaller_m_of_its_bucket() -> None:
    frame = results(
        predicted(8.0, M=40), predicted(10.0, M=40, **WIDE), predicted(8.0, M=48, **WIDE), predicted(9.0, M=48),
        predicted(9.0, M=64, **WIDE), predicted(5.0, M=80), predicted(9.0, M=80, **WIDE),
    )  # fmt: skip
    found = regrets(frame, table((16, {}), (64, WIDE)))
    assert by_row(found) == {64: {40: pytest.approx(0.25), 48: 0.0}}  # M = 80 is above it, 64 its own
    assert only(found).most == pytest.approx(0.25)
    line = "64x2112x7168 fused: below its M it is 25.0 % slower than the best at M = 40, 0.0 % at M = 48"
    assert only(found).line() == line


def test_the_beginning_of_a_bucket_is_judged_by_the_next_smaller_row() -> None:
    frame = results(predicted(8.0, M=16), predicted(12.0, M=16, **WIDE), predicted(8.0, M=4, **WIDE))
    found = regrets(frame, table((4, {}), (16, {}), (64, WIDE)))
    assert by_row(found) == {64: {16: pytest.approx(0.5)}}
    line = "it serves between M = 16 and 64, 50.0 % slower than the best at M = 16; sweep an M in between"
    assert only(found).line() == f"64x2112x7168 fused: {line}"


def test_a_row_that_serves_its_own_m_alone_regrets_nothing() -> None:
    frame = results(predicted(8.0, M=63), predicted(12.0, M=63, **WIDE))
    assert regrets(frame, table((63, {}), (64, WIDE))) == []
    assert by_row(regrets(frame, table((62, {}), (64, WIDE)))) == {64: {63: pytest.approx(0.5)}}


def test_what_the_results_do_not_hold_both_of_is_left_out() -> None:
    bucket = table((64, WIDE))
    assert regrets(results(predicted(8.0, M=40)), bucket) == []
    assert regrets(results(predicted(8.0, M=40), failed("crashed", M=40, **WIDE)), bucket) == []
    assert regrets(results(measured(8.0, M=40), predicted(9.0, M=40, **WIDE)), bucket) == []  # not comparable
    assert regrets(results(predicted(8.0, M=40, N=4096), predicted(9.0, M=40, N=4096, **WIDE)), bucket) == []
    assert regrets(results(), TunedTable(GFX950)) == []


def test_another_devices_trials_say_nothing_of_the_row() -> None:
    frame = results(predicted(8.0, M=40, cu_count=128), predicted(9.0, M=40, cu_count=128, **WIDE))
    assert regrets(frame, table((64, WIDE))) == []
