"""search.report.finals: what people read of the finals."""

from __future__ import annotations

from io import StringIO

import pandas as pd
from rich.console import Console

from search.report.finals import finals_table, print_finals
from search.results.columns import typed_frame


def frame(*rows: dict[str, object]) -> pd.DataFrame:
    usual = {"study": "s", "arch": "sm_90", "cu_count": 132, "M": 16, "N": 2112, "K": 7168, "family": "fused",
             "outcome": "ok", "evidence": "measured", "time_us": 20.0}  # fmt: skip
    full = [{**usual, **row} for row in rows]
    names = {name for row in full for name in row}
    return typed_frame({name: [row.get(name) for row in full] for name in names})  # type: ignore[misc]


WINNER = {"selected": True, "tie": True, "margin_us": 0.5, "confidence": 0.99, "rank_tau": 1.0, "confirmed_us": 20.3,
          "baseline_us": 41.0}  # fmt: skip


def test_the_latest_winner_of_each_shape_is_shown_with_its_certainty() -> None:
    older = {**WINNER, "time_us": 19.0, "started": "2026-11-29T20:00:00+00:00"}
    newer = {**WINNER, "time_us": 18.5, "confirmed_us": 18.6, "started": "2026-11-29T21:00:00+00:00"}
    rows = finals_table(frame(newer, older, {"time_us": 15.0}, {**WINNER, "M": 4, "tie": False})).rows
    assert rows == (
        ("4x2112x7168", "fused", "20.00", "0.50", "0.990", "1.00", "20.30", "41.00", ""),
        ("16x2112x7168", "fused", "18.50", "0.50", "0.990", "1.00", "18.60", "41.00", "tie"),
    )


def test_a_winner_that_the_dispatcher_cannot_reach_says_so() -> None:
    remarks = [finals_table(frame({**WINNER, "confirmed_us": us})).rows[0][-1] for us in (20.9, 23.0, None)]
    assert remarks == ["tie", "tie, dispatched 15 % slower", "tie"]


def test_a_winner_without_a_time_through_the_dispatcher_says_why() -> None:
    why_not = "not timed through the dispatcher: timed_out: on the GPU: no answer within 300 s"
    (row,) = finals_table(frame({**WINNER, "tie": False, "confirmed_us": None, "reason": why_not})).rows
    assert row[-1] == why_not


def test_a_winner_whose_file_has_lost_its_time_is_shown_without_it() -> None:
    (row,) = finals_table(frame({**WINNER, "time_us": None})).rows
    assert row[2] == "" and row[-1] == "tie"


def printed(results: pd.DataFrame) -> str:
    console = Console(file=StringIO(), width=120)
    print_finals(results, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_share_of_waiting_is_said_after_the_first_trials() -> None:
    work = [{"gpu_s": 0.9, "gpu_wait_s": 0.1}] * 30
    assert printed(frame(*work)) == "the GPU waited 10.0 % of its time for a compiled candidate\n"


def test_nothing_is_printed_where_nothing_was_measured() -> None:
    assert printed(frame({"time_us": None, "evidence": "predicted"})) == ""


def test_a_replay_repeats_how_long_a_gpu_waited_and_is_left_out() -> None:
    study = "sm_90-132cu/16x2112x7168/replay-cold-graph-v1/triton-3.9.0/0123456789ab"
    work = [{"gpu_s": 0.9, "gpu_wait_s": 0.1, "protocol": "cold-graph-v1", "study": study}] * 30
    assert printed(frame(*work)) == ""
