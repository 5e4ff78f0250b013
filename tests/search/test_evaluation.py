"""search.evaluation: the M at which a row of a table is what a product gets."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

from kernels.device import GFX950
from kernels.families import FAMILIES
from kernels.tables.rows import Made, TableRow, TunedTable
from search.evaluation import served

MADE = Made(date(2026, 11, 30), "3.9.0", "2.13.0", "0" * 12, "offline", "study")


def row(M: int, first: int | None = None, last: int | None = None, family: str = "fused") -> TableRow:
    kind = FAMILIES[family]
    return TableRow(
        M, 64, 512, family, kind.config({}), "predicted", kind.deterministic, MADE, predicted_us=5.0,
        serves_from=first, serves_to=last,
    )  # fmt: skip


def ends(one: TableRow, *others: TableRow) -> tuple[int, int]:
    candidate = served(one, TunedTable(GFX950, (one, *others)))
    return candidate.lowest_M, candidate.greatest_M


def test_a_row_serves_from_behind_the_row_below_it_to_where_it_ends() -> None:
    assert ends(row(64)) == (1, 64)
    assert ends(row(64), row(16)) == (17, 64)
    assert ends(row(64, last=300), row(16)) == (17, 300)
    assert ends(row(64, last=300), row(128)) == (1, 300)  # beyond 128, whose row ends there
    assert ends(row(64, last=100), row(128, first=90)) == (1, 89)


def test_a_row_serves_again_below_a_row_that_begins_later() -> None:
    assert ends(row(64), row(16, first=8)) == (1, 64)


def test_a_row_serves_below_a_row_whose_result_may_vary_where_that_is_not_wanted() -> None:
    assert ends(row(64), row(16, family="fused_splitk_atomic")) == (1, 64)
    assert ends(row(64), replace(row(16), deterministic=False)) == (1, 64)
