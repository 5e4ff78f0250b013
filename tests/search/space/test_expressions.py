"""search.space.expressions against Python's own evaluation, and every form that it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from kernels.errors import InputError
from search.space.expressions import Kind, parse_expression

NAMES: dict[str, Kind] = {"M": "integer", "K": "integer", "BLOCK_M": "integer", "arch": "text"}
VALUES: dict[str, Any] = {"M": 17, "K": 448, "BLOCK_M": 32, "arch": "gfx950"}
INTEGERS = [name for name, kind in NAMES.items() if kind == "integer"]


def holds(text: str, **values: Any) -> Any:
    return parse_expression(text, NAMES, "space.yaml:7").evaluate({**VALUES, **values})


def reference_cdiv(a: int, b: int) -> int:
    quotient, remainder = divmod(a, b)
    return quotient + (remainder != 0)


def reference_next_pow2(x: int) -> int:
    power = 1
    while power < x:
        power *= 2
    return power


REFERENCE = {"min": min, "max": max, "cdiv": reference_cdiv, "next_pow2": reference_next_pow2}


@st.composite
def arithmetic(draw: st.DrawFn, depth: int = 2) -> str:  # at most 4 factors below 9000: no overflow
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(INTEGERS) | st.integers(-50, 5000).map(str))
    left, right = draw(arithmetic(depth - 1)), draw(arithmetic(depth - 1))
    form = draw(
        st.sampled_from(["({} + {})", "({} - {})", "{} * {}", "({} // {})", "({} % {})", "min({}, {})"])
        | st.sampled_from(["max({}, {}, 3)", "cdiv({}, {})", "next_pow2({} + {})", "(-{} + {})"])
    )
    return str(form.format(left, right))


@st.composite
def conditions(draw: st.DrawFn, depth: int = 2) -> str:
    if depth and draw(st.booleans()):
        left, right = draw(conditions(depth - 1)), draw(conditions(depth - 1))
        return str(draw(st.sampled_from(["({} and {})", "({} or {})", "(not {} or {})"])).format(left, right))
    left, right = draw(arithmetic()), draw(arithmetic())
    form = draw(
        st.sampled_from(["{} <= {}", "{} > {}", "{} == {}", "1 < {} != {}", "{} in [16, 32, -1] or {} < 9"])
        | st.sampled_from(["{} not in (64, 1) and {} > 0", "arch == 'gfx950' and {} >= {}"])
    )
    return str(form.format(left, right))


@settings(max_examples=150, deadline=None)
@given(conditions(), st.lists(st.tuples(*[st.integers(1, 9000)] * 3), min_size=1, max_size=5))
def test_columns_give_what_python_gives_row_by_row(text: str, rows: list[tuple[int, int, int]]) -> None:
    columns = {name: np.asarray(column) for name, column in zip(INTEGERS, zip(*rows, strict=True), strict=True)}
    try:
        expected = [
            bool(eval(text, dict(REFERENCE), {**dict(zip(INTEGERS, row, strict=True)), "arch": "gfx950"}))
            for row in rows
        ]
        found = holds(text, **columns)
        scalars = [bool(holds(text, **dict(zip(INTEGERS, row, strict=True)))) for row in rows]
    except (ZeroDivisionError, InputError):
        reject()  # a divisor of 0 has its own test
    assert np.broadcast_to(found, (len(rows),)).tolist() == expected
    assert scalars == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BLOCK_M <= max(16, next_pow2(M))", True),  # next_pow2(17) = 32
        ("next_pow2(M) == 16", False),
        ("next_pow2(1) == 1 and next_pow2(0) == 1 and next_pow2(1024) == 1024", True),
        ("cdiv(K, 256) == 2", True),
        ("cdiv(-7, 2) == -3", True),  # towards plus infinity
        ("-7 // 2 == -4 and -7 % 2 == 1", True),  # Python's floor, not C's
        ("16 < M < 18 <= BLOCK_M", True),
        ("arch in ('gfx942', 'gfx950')", True),
        ("arch not in ['gfx942']", True),
        ("arch != 'gfx950' or M == 1", False),
        ("not (M == 17 and K % 64 == 0)", False),
        ("1 + 2 * 3 == 7 and (1 + 2) * 3 == 9", True),
    ],
)
def test_values_by_hand(text: str, expected: bool) -> None:
    assert bool(holds(text)) is expected


def test_products_beyond_32_bits_do_not_wrap() -> None:
    column = np.asarray([70_000], dtype=np.int32)
    assert holds("M * M // 1000 > 4000000", M=column).tolist() == [True]


def test_pandas_columns_of_numbers_and_text() -> None:
    frame = pd.DataFrame({"M": [1, 2, 3], "arch": ["gfx950", "sm_90", "gfx942"]})
    frame["arch"] = frame["arch"].astype("category")
    found = holds("M >= 2 and arch in ['gfx950', 'gfx942']", M=frame["M"], arch=frame["arch"])
    assert found.tolist() == [False, False, True]


def test_names_are_those_that_are_read() -> None:
    expression = parse_expression("min(M, 3) < K or arch == 'x'", NAMES, "f:1")
    assert expression.names == {"M", "K", "arch"}


def test_spelling_does_not_change_the_normal_text() -> None:
    spellings = ["M<=16  and (K > 1)", "M <= 16 and K>1"]
    assert len({parse_expression(text, NAMES, "f:1").normal_text for text in spellings}) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("BLOCKM <= 3", "'BLOCKM', which is unknown; did you mean 'BLOCK_M'? use one of M, K, BLOCK_M, arch"),
        ("open('x') == 1", "calls `open`"),
        ("__import__('os').system('true') == 0", "calls `__import__('os').system`"),
        ("M.real > 1", "attribute"),
        ("M[0] > 1", "subscript"),
        ("(lambda: 1)() == 1", "calls `lambda: 1`"),
        ("[1, 2] == [1, 2]", "a list outside of `in`"),
        ("(M if K else 1) > 1", "conditional"),
        ("(M := 3) > 1", "assignment"),
        ("f'{M}' == 'x'", "f-string"),
        ("M / 2 > 1", "/ (write //)"),
        ("M ** 2 > 1", "**"),
        ("M & 1 == 0", "& (write and)"),
        ("M << 2 > 3", "<<"),
        ("~M > 3", "~ (write not)"),
        ("M is 3", "is (write ==)"),
        ("M > 1.5", "the value 1.5"),
        ("M == True", "the value True"),
        ("M == None", "the value None"),
        ("M > 4294967296", "below 2**31"),
        ("M > 1 and K", "has the integer `K` where a condition must be"),
        ("M + (K > 1) > 1", "has the condition `K > 1` where a integer must be"),
        ("arch + 'x' == 'y'", "has the text `arch`"),
        ("arch > 'a'", "compare text with =="),
        ("arch == M", "compares the text `arch` with the integer `M`"),
        ("arch in [1, 2]", "compares the text `arch`"),
        ("(M > 1) == (K > 1)", "compares the condition"),
        ("M in K", "looks into `K`"),
        ("M in []", "looks into `[]`"),
        ("M in [1, 'a']", "looks into"),
        ("M in [1, K]", "looks into `[1, K]`"),
        ("1 in [1] in [2]", "a list outside of `in`"),
        ("min(M) > 1", "give min 2 or more unnamed arguments"),
        ("cdiv(M, K, 2) > 1", "give cdiv 2 unnamed arguments"),
        ("next_pow2(x=M) > 1", "give next_pow2 1 unnamed arguments"),
        ("max(*M, K) > 1", "`Starred`"),
        ("M + K", "is no condition"),
        ("M >", "is not an expression (invalid syntax)"),
        ("M > 1; K > 1", "is not an expression"),
        ("", "is not an expression"),
        ("M > 1\x00", "is not an expression"),
        ("not " * 60 + "M > 1", "nested more than 40 deep"),
        ("M > " + "-" * 450 + "1", "nested more than 40 deep"),
        ("M > 1 and " * 60 + "K > 1", "is longer than 500 characters; split it"),
    ],
)
def test_what_is_not_allowed_is_one_line_with_place_and_cure(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_expression(text, NAMES, "space.yaml:7")
    message = str(caught.value)
    assert message.startswith("space.yaml:7: constraint ")
    assert problem in message
    assert ";" in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["M % (K - 448) == 0", "cdiv(M, K - 448) > 1", "K == 448 or M // (K - 448) > 1"])
def test_a_divisor_that_is_zero_somewhere_is_an_error(text: str) -> None:
    with pytest.raises(
        InputError, match=r"space.yaml:7: .* divides by K - 448, which can be 0; write max\(1, K - 448\)"
    ):
        holds(text, K=np.asarray([448, 512]))


@pytest.mark.parametrize(
    "text",
    [
        "9999999 * 9999999 * 9999999 * 9999999 > BLOCK_M",
        "0 < K * K * K",  # 2**33 each
        "-K * K - K * K < 0",
        "(K + 1) * (K - 1) * 2 > 0",
        "max(K * K, 1) * 4 > 0",
    ],
)
def test_a_number_that_could_wrap_around_is_refused(text: str) -> None:
    columns = {"BLOCK_M": np.array([16, 32]), "K": np.array([64, 1 << 31])}
    with pytest.raises(InputError, match=r"s\.yaml:3: constraint .* which can pass 2\*\*62; compare smaller numbers"):
        parse_expression(text, NAMES, "s.yaml:3").evaluate(columns)


def test_numbers_up_to_the_limit_are_exact() -> None:
    columns = {"BLOCK_M": 1, "K": (1 << 31) - 1}
    assert bool(parse_expression("K * K // K == K", NAMES, "s.yaml:3").evaluate(columns))
