"""search.report.view: expressions choose rows; everything that is no statement about a row is one line of error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_rows import failed, measured, predicted, results

from kernels.errors import InputError
from search.report.view import matching_rows

FRAME = results(
    predicted(9.0, trial=0),
    predicted(8.0, trial=1, num_warps=8),
    failed("crashed", trial=2, reason="out of memory"),
    measured(7.0, M=32, trial=3),
).iloc[[2, 0, 1, 3]]  # an index that is not 0, 1, 2, 3


@pytest.mark.parametrize(
    ("expression", "trials"),
    [
        ("predicted_us < 8.5 and outcome == 'ok'", [1, 3]),
        ("time_us > 1", [3]),  # NA is not more than 1
        ("not time_us > 1", []),  # nor is it known to be less
        ("time_us.isna() & (num_warps == 8 | outcome == 'crashed')", [2, 1]),
        ("~(M == 16)", [3]),
        ("M in [32, 64]", [3]),
        ("M not in (32, 64)", [2, 0, 1]),
        ("outcome.isin(['crashed', 'slow'])", [2]),
        ("8 <= predicted_us <= 9", [0, 1]),
        ("predicted_us.between(8, 9, inclusive='left')", [1]),
        ("(predicted_us - 9).abs() * 2 < 0.5", [0]),
        ("M * N * K // 1000000 == 242 and 2 * K / N > 6 and M % 16 == 0", [2, 0, 1]),
        ("reason.str.contains('MEMORY', case=False)", [2]),
        ("reason.str.len() > 3", [2]),
        ("family.str.upper() == 'FUSED'", [2, 0, 1, 3]),
        ("\n  M == 32\n", [3]),
        ("M == 1", []),
    ],
)
def test_rows_for_which_the_expression_is_true_are_kept(expression: str, trials: list[int]) -> None:
    assert list(matching_rows(FRAME, expression)["trial"]) == trials


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("moon < 3", "unknown column 'moon'; none of the "),
        ("predicted < 3", "unknown column 'predicted'; did you mean 'predicted_us'"),
        ("M ==", "invalid syntax; write a comparison"),
        ("(M", "write a comparison"),
        ("", "invalid syntax"),
        ("M", "says of no row whether it is wanted"),
        ("1 == 1", "says of no row whether it is wanted"),
        ("M = 3", "invalid syntax"),
        ("M == 3; K == 4", "invalid syntax"),
        ("M // 0 == [1, 2]", ""),
        ("family > 3", ""),
        ("reason.str.contains('[')", ""),
        ("reason.str.contains()", ""),
        ("@secret == 1", "invalid syntax"),
        ("@pd.io.common.os.system('true') == 0", "invalid syntax"),
        ("M.pop(1) == 1", "method 'pop' is not allowed; use one of isna, notna, isin, between, abs"),
        ("M.to_csv('stolen.csv') == 1", "method 'to_csv' is not allowed"),
        ("M.isnan()", "method 'isnan' is not allowed; did you mean 'isna'"),
        ("M.dropna() > 1", "method 'dropna' is not allowed"),
        ("M.iloc[99] == 1", "is not allowed"),
        ("M[99] == 1", "`M[99]` is not allowed"),
        ("M.values == 1", "`M.values` is not allowed"),
        ("M.sort_values() == 1", "method 'sort_values' is not allowed"),
        ("family.str.cat() == 'x'", "method 'cat' is not allowed"),
        ("family.str[0] == 'f'", "is not allowed"),
        ("M.isna(inplace=True)", "is not allowed"),
        ("abs(M) == 1", "is not allowed"),
        ("__import__('os').system('true') == 0", "method 'system' is not allowed"),
        ("9 ** 9 ** 9 > M", "is not allowed"),
        ("family == 'f' * 10 ** 9", "is not allowed"),
        ("M == [1] * 1000", "is not allowed"),
        ("M in [M, K]", "`[M, K]` is not allowed"),
        ("(lambda: 1)() == M", "is not allowed"),
        ("[m for m in M] == M", "is not allowed"),
        ("M if K else N", "is not allowed"),
        ("M is 3", "is not allowed"),
        ("M == None", "`None` is not allowed"),
        ("M == 3j", "`3j` is not allowed"),
        ("not " * 600 + "M == 3", "is longer than 2000 characters"),
        ("-" * 1500 + "M == 3", ""),
        ("(" * 300 + "M" + ")" * 300, ""),
    ],
)
def test_anything_else_is_one_line(
    expression: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        matching_rows(FRAME, expression)
    line = str(caught.value)
    assert line.startswith("--query ") and message in line and "\n" not in line
    assert list(tmp_path.iterdir()) == []


def test_the_rows_are_left_as_they_are() -> None:
    before = FRAME.copy()
    matching_rows(FRAME, "predicted_us < 8.5")
    assert FRAME.equals(before)


NAMES = st.sampled_from(["M", "predicted_us", "time_us", "family", "nothing", "1", "2.5", "'ok'", "[1, 2]"])
LINKS = st.sampled_from([" + ", " * ", " == ", " < ", " and ", " or ", " in ", " & ", " % ", ".isna", "(", ")"])


@given(st.lists(st.one_of(NAMES, LINKS), max_size=8).map("".join))
def test_no_expression_ends_in_a_traceback(expression: str) -> None:
    try:
        kept = matching_rows(FRAME, expression)
    except InputError as error:
        assert "\n" not in str(error)
    else:
        assert set(kept.index) <= set(FRAME.index)
