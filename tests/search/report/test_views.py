"""search.report.view: queries, columns and JSON, and errors that say what to write instead."""

from __future__ import annotations

import json

import pytest
from result_rows import failed, measured, predicted, results

from kernels.errors import InputError
from search.report.view import View, select, to_json

FRAME = results(
    predicted(9.0, trial=0),
    predicted(8.0, trial=1, num_warps=8),
    failed("crashed", trial=2),
    measured(7.0, M=32, trial=3),
)


def trials(view: View) -> list[int]:
    return [int(number) for number in select(FRAME, view)["trial"]]


def test_default_view_is_everything() -> None:
    assert select(FRAME, View()).equals(FRAME)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (View(query="predicted_us < 8.5 and outcome == 'ok'"), [1, 3]),
        (View(query="time_us > 1"), [3]),  # NA is not more than 1
        (View(query="M in [32, 64]"), [3]),
        (View(query="outcome.str.startswith('cr')"), [2]),
        (View(best=True), [1, 3]),
        (View(best=True, query="M == 32"), [3]),
        (View(sort="predicted_us"), [3, 1, 0, 2]),
        (View(sort="-num_warps", limit=2), [1, 0]),
        (View(limit=0), []),
    ],
)
def test_view_chooses_rows(view: View, expected: list[int]) -> None:
    assert trials(view) == expected


def test_columns_are_kept_in_the_order_asked_for() -> None:
    assert list(select(FRAME, View(columns=("K", "M"))).columns) == ["K", "M"]


def test_a_column_that_is_asked_for_twice_is_there_once() -> None:
    assert list(select(FRAME, View(columns=("M", "K", "M"))).columns) == ["M", "K"]


def test_configuration_is_a_column_that_is_shown_and_not_stored() -> None:
    shown = select(FRAME, View(columns=("trial", "configuration"), query="configuration.str.contains('warps 8')"))
    assert shown.values.tolist() == [[1, "16x64x256, warps 8, stages 2"]]
    assert trials(View(sort="-configuration"))[0] == 1
    assert "configuration" not in select(FRAME, View(sort="configuration")).columns


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (View(query="M > ARCH"), "--query 'M > ARCH': unknown column 'ARCH'; did you mean 'arch'?"),
        (View(columns=("config",)), "unknown column 'config'; did you mean 'configuration' or"),
        (View(sort="speed"), "unknown column 'speed'; did you mean 'settled' or 'selected' or 'shape'?"),
        (View(columns=("M", "speed")), "unknown column 'speed'"),
        (View(columns=("moon",)), "is like it; `inspect --columns help` lists them"),
        (View(limit=-1), "--limit -1 is negative"),
    ],
)
def test_wrong_view_is_one_line_with_a_cure(view: View, message: str) -> None:
    with pytest.raises(InputError) as caught:
        select(FRAME, view)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_json_holds_what_is_known() -> None:
    rows = json.loads(to_json(select(FRAME, View(columns=("trial", "time_us", "deterministic", "family")))))
    assert rows[0] == {"trial": 0, "family": "fused"}
    assert rows[3] == {"trial": 3, "time_us": 7.0, "family": "fused"}
