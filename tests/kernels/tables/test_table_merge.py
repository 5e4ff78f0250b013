"""kernels.tables.merging: better evidenced, then faster beyond doubt; pure, idempotent, with a reason a row."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.device import GFX950, DeviceKey
from kernels.families.fused import SplitKAtomicConfig, TileConfig
from kernels.tables.merging import Change, merge
from kernels.tables.rows import Made, TableRow, TunedTable

MADE = Made(date(2026, 11, 30), "3.9.0", "2.13.0", "0123456789ab", "v1", "study")


def row(us: float, evidence: str = "measured", *, M: int = 16, spread_us: float | None = None) -> TableRow:
    base = TableRow(
        M, 128, 256, "fused", TileConfig(num_warps=int(us) % 2 + 1), "predicted", True, MADE, predicted_us=us
    )
    if evidence == "predicted":
        return base
    return replace(base, evidence="measured", predicted_us=None, time_us=us, spread_us=spread_us)


def atomic(us: float) -> TableRow:
    config = SplitKAtomicConfig()
    return TableRow(16, 128, 256, "fused_splitk_atomic", config, "measured", False, MADE, time_us=us)


def table(*rows: TableRow) -> TunedTable:
    return TunedTable(GFX950, rows)


def only_change(old: TableRow, new: TableRow, min_gain: float = 0.0) -> Change:
    report = merge(table(old), table(new), min_gain=min_gain)
    assert len(report.changes) == 1
    return report.changes[0]


def test_new_shape_is_added_and_the_rest_kept() -> None:
    report = merge(table(row(9.0)), table(row(5.0, M=32)), min_gain=0.01)
    assert [(c.action, c.row.M, c.reason) for c in report.changes] == [
        ("kept", 16, "no new result"),
        ("added", 32, "no row before"),
    ]
    assert report.table == table(row(9.0), row(5.0, M=32))
    assert (report.count("added"), report.count("kept"), report.count("replaced")) == (1, 1, 0)


@pytest.mark.parametrize(
    ("old", "new", "min_gain", "action", "reason"),
    [
        (row(10.0), row(9.0), 0.0, "replaced", "10.00 % faster"),
        (row(10.0), row(11.0), 0.0, "kept", "10.00 % slower"),
        (row(10.0), row(9.0, spread_us=1.0), 0.0, "kept", "within the noise of 1 us"),
        (row(10.0, spread_us=1.5), row(9.0, spread_us=0.1), 0.0, "kept", "within the noise of 1.5 us"),
        (row(10.0, spread_us=0.9), row(9.0, spread_us=0.1), 0.0, "replaced", "10.00 % faster"),
        (row(10.0), row(9.0), 0.10, "kept", "10.00 % faster, 10 % are needed"),
        (row(10.0), row(9.0), 0.09, "replaced", "10.00 % faster"),
        (row(10.0, "predicted"), row(20.0), 0.5, "replaced", "measured replaces predicted"),
        (row(20.0), row(10.0, "predicted"), 0.0, "kept", "never replaces a measurement"),
        (row(10.0), row(10.0), 0.0, "kept", "unchanged"),
        (row(10.0, "predicted"), row(9.5, "predicted"), 0.01, "replaced", "5.00 % faster"),
    ],
)
def test_decision_and_reason(old: TableRow, new: TableRow, min_gain: float, action: str, reason: str) -> None:
    change = only_change(old, new, min_gain)
    assert change.action == action
    assert reason in change.reason
    assert change.row == (new if action == "replaced" else old)
    assert change.previous == (old if action == "replaced" else None)


def test_times_of_other_kernels_or_protocols_are_not_compared_but_the_later_row_wins() -> None:
    slower_later = replace(row(12.0), made=replace(MADE, source_hash="ffffffffffff", date=date(2026, 12, 1)))
    change = only_change(row(10.0), slower_later)
    assert (change.action, change.reason) == ("replaced", "the kernels changed since 2026-11-30, time_us 10 -> 12")
    assert only_change(slower_later, row(10.0)).action == "kept"
    other_protocol = replace(row(12.0), made=replace(MADE, protocol="v2"))
    assert only_change(row(10.0), other_protocol).reason == "the protocol changed since 2026-11-30"


def test_a_slower_prediction_of_other_kernels_replaces_only_a_row_whose_configuration_was_tried() -> None:
    old = row(8.67, "predicted")
    slower, faster, unlike = (
        replace(row(us, "predicted"), made=replace(MADE, source_hash="ffffffffffff", protocol=protocol))
        for us, protocol in ((10.65, "v1"), (8.0, "v1"), (10.65, "v2"))
    )
    words = "the kernels changed since 2026-11-30"

    def change(incumbent: TableRow, new: TableRow, *untried: TableRow) -> tuple[str, str]:
        keys = {one.key for one in untried}
        (found,) = merge(table(incumbent), table(new), min_gain=0.0, untried=keys).changes
        return found.action, found.reason

    assert change(old, slower) == ("replaced", f"{words}, predicted_us 8.67 -> 10.65")
    assert change(old, slower, old) == (
        "kept", f"{words}, predicted_us 8.67 -> 10.65 is slower, but its configuration was not tried since; "
        "sweep again with more trials",
    )  # fmt: skip
    assert change(old, faster, old) == ("replaced", f"{words}, predicted_us 8.67 -> 8")
    assert change(old, unlike, old) == ("replaced", words)  # times of two models are not compared
    assert change(old, row(20.0), old)[0] == "replaced"  # a measurement is better evidence
    measured = replace(row(12.0), made=replace(MADE, source_hash="ffffffffffff"))
    assert change(row(10.0), measured, row(10.0))[0] == "replaced"


def test_nondeterministic_row_stays_only_while_it_is_faster() -> None:
    both = merge(table(row(10.0)), table(atomic(8.0)), min_gain=0.01).table
    assert both == table(row(10.0), atomic(8.0))
    report = merge(both, table(row(7.0)), min_gain=0.01)
    assert report.table == table(row(7.0))
    assert [c.reason for c in report.changes if c.action == "dropped"] == ["a deterministic row is as good"]


def test_other_device_and_senseless_gain_are_rejected() -> None:
    with pytest.raises(ValueError, match="cannot merge rows of gfx950-128cu into a table of gfx950-256cu"):
        merge(table(), TunedTable(DeviceKey("gfx950", 128)), min_gain=0.0)
    with pytest.raises(ValueError, match="min_gain = 5"):
        merge(table(), table(), min_gain=5)


@st.composite
def any_row(draw: st.DrawFn) -> TableRow:
    made = replace(
        MADE,
        protocol=draw(st.sampled_from(["v1", "v2"])),
        source_hash=draw(st.sampled_from(["a", "b"])),
        date=draw(st.dates(date(2026, 1, 1), date(2026, 1, 3))),
    )
    us = float(draw(st.integers(8, 12)))
    if draw(st.booleans()):
        return replace(atomic(us), made=made, M=draw(st.sampled_from([16, 32])))
    kind = draw(st.sampled_from(["measured", "predicted"]))
    spread_us = draw(st.sampled_from([None, 0.5, 2.0])) if kind == "measured" else None
    return replace(row(us, kind, M=draw(st.sampled_from([16, 32]))), made=made, spread_us=spread_us)


tables = st.lists(any_row(), unique_by=lambda r: r.key, max_size=4).map(lambda rows: table(*rows))
gains = st.sampled_from([0.0, 0.01, 0.2])


@given(tables, tables, gains)
def test_merging_again_changes_nothing(old: TunedTable, new: TunedTable, min_gain: float) -> None:
    once = merge(old, new, min_gain=min_gain).table
    assert merge(once, new, min_gain=min_gain).table == once


@given(tables, tables, gains)
def test_every_shape_keeps_its_best_evidence(old: TunedTable, new: TunedTable, min_gain: float) -> None:
    merged = merge(old, new, min_gain=min_gain).table
    for incumbent in old.rows:
        same = [r for r in merged.rows if (r.M, r.N, r.K) == (incumbent.M, incumbent.N, incumbent.K)]
        assert same, "a shape was lost"
        if incumbent.evidence == "measured":
            assert any(r.evidence == "measured" for r in same)


@given(tables, tables, gains)
def test_every_key_has_one_change_and_every_row_comes_from_a_side(
    old: TunedTable, new: TunedTable, min_gain: float
) -> None:
    report = merge(old, new, min_gain=min_gain)
    assert sorted(c.row.key for c in report.changes) == sorted({r.key for r in (*old.rows, *new.rows)})
    assert set(report.table.rows) <= {*old.rows, *new.rows}
    assert tuple(c.row for c in report.changes if c.action != "dropped") == report.table.rows


def test_a_row_that_is_replaced_hands_on_the_users_choice_of_graph_replay() -> None:
    change = only_change(replace(row(10.0), graph=True), row(5.0))
    assert change.action == "replaced"
    assert (change.row.graph, change.row.time_us) == (True, 5.0)
    assert only_change(replace(row(10.0), graph=True), row(10.0)).reason == "unchanged"
