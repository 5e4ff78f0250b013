"""search.terminal: on a terminal sentences wrap at spaces, nothing else is cut, and what has no room is named."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from search.terminal import TextTable, print_lines, print_table

WORDS = "16x32x256, warps 4, stages 2, quantize_kernel hip"
TABLE = TextTable(
    ("shape", "family", "configuration", "predicted us", "roofline", "margin", "outcomes"),
    (("16x2112x7168", "staged_fp4", WORDS, "10.62", "46.1 %", "3.0 %", "31 ok, 8 illegal, 1 wrong_result"),),
    right=frozenset(("predicted us", "roofline", "margin")),
)


def on_terminal(table: TextTable, width: int) -> list[str]:
    file = io.StringIO()
    print_table(table, Console(file=file, width=width, force_terminal=True, no_color=True, markup=False))
    return [line.replace("\x1b[1m", "").replace("\x1b[0m", "").rstrip() for line in file.getvalue().splitlines()]


def table_and_note(lines: list[str]) -> tuple[list[str], str]:
    """The table's lines, and what is said below it of columns without room, which wraps too."""
    place = next((i for i, line in enumerate(lines) if line.startswith("no room")), len(lines))
    return lines[:place], " ".join(lines[place:])


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_no_number_shape_or_word_is_cut(width: int) -> None:
    lines = on_terminal(TABLE, width)
    words = " ".join(lines).split()
    assert max(map(len, lines)) <= width
    for word in ("16x2112x7168", "staged_fp4", "16x32x256,", "quantize_kernel", "predicted", "10.62", "46.1"):
        assert word in words


def test_a_wide_terminal_wraps_nothing() -> None:
    text = "\n".join(on_terminal(TABLE, 200))
    assert WORDS in text and "31 ok, 8 illegal, 1 wrong_result" in text and "no room" not in text


def test_columns_without_room_are_named_and_gone() -> None:
    lines, note = table_and_note(on_terminal(TABLE, 64))
    assert note.startswith("no room here for margin, outcomes: widen the terminal")
    assert "roofline" in "\n".join(lines) and "margin" not in "\n".join(lines)


def test_an_empty_column_is_drawn_and_never_said_to_be_missing() -> None:
    table = TextTable(("shape", ""), (("16x2112x7168", ""),))
    assert "16x2112x7168" in "\n".join(on_terminal(table, 80))
    assert "no room" not in "\n".join(on_terminal(table, 14))
    nameless = TextTable(("shape", ""), (("16x2112x7168", "tie"),))
    assert table_and_note(on_terminal(nameless, 14))[1].startswith("no room here for the last one: ")


def test_a_terminal_narrower_than_the_first_column_gets_that_column_alone() -> None:
    lines, note = table_and_note(on_terminal(TABLE, 9))
    assert max(map(len, lines)) <= 9
    assert note.startswith("no room here for family, ")


def test_a_long_path_in_a_sentence_is_cut_rather_than_the_columns_after_it_lost() -> None:
    path = "/" + "folder/" * 20
    lines = on_terminal(TextTable(("found", "cure"), ((f"caches in {path}", "set it"),)), 60)
    assert max(map(len, lines)) <= 60 and "set it" in "\n".join(lines)
    assert path in "".join("".join(lines).replace("set it", "").split())


@given(st.lists(st.text("ab1 ", min_size=1, max_size=40), min_size=2, max_size=6), st.integers(20, 200))
def test_what_is_shown_fits(cells: list[str], width: int) -> None:
    table = TextTable(tuple(f"c{index}" for index in range(len(cells))), (tuple(cells),))
    lines, _ = table_and_note(on_terminal(table, width))
    assert max(map(len, lines)) <= max(width, 22)
    shown = table.shown(width)
    assert sorted("".join(lines).replace("\u2500", "").replace(" ", "")) == sorted(
        "".join(f"c{index}{cells[index]}" for index in range(shown)).replace(" ", "")
    )


def test_cells_steer_no_terminal() -> None:
    table = TextTable(("reason",), (("a\x1b]0;title\x07b",),))
    drawn = io.StringIO()
    Console(file=drawn, width=80).print(table.drawn(80))
    for text in (table.plain(), drawn.getvalue()):
        assert "a\\x1b]0;title\\x07b" in text and "\x1b" not in text


LINE = "config    BLOCK_M=4, num_stages=1, /a/path/that-is-longer/than/one/line"


def printed(width: int, terminal: bool) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, no_color=True, markup=False, highlight=False)
    print_lines([LINE], console, indent=10)
    return file.getvalue().splitlines()


def test_a_line_breaks_at_spaces_below_its_own_words_and_keeps_long_ones_whole() -> None:
    assert printed(24, terminal=True) == [
        "config    BLOCK_M=4,",
        "          num_stages=1,",
        "          /a/path/that-is-longer/than/one/line",
    ]


def test_a_line_in_a_pipe_stays_one_line() -> None:
    assert printed(24, terminal=False) == [LINE]
