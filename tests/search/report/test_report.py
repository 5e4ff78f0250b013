"""search.report.closing and search.terminal: what people read, on a terminal and in a pipe."""

from __future__ import annotations

import io

from result_rows import ATOMIC, failed, measured, predicted, results
from rich.console import Console

from kernels.families.fused import SplitKAtomicConfig, TileConfig
from search.report.closing import closing_table, compact, overview, print_closing, print_rows, summarize
from search.terminal import TextTable, output_console, print_table


def test_summary_counts_every_outcome_of_a_shape() -> None:
    frame = results(predicted(9.0), predicted(8.0, num_warps=8), failed("compile_error"), failed("slow", M=32))
    first, second = summarize(frame)
    assert first.outcomes == {"ok": 2, "compile_error": 1}
    assert first.winner is not None and first.winner.cost_us == 8.0
    assert (second.winner, second.outcomes) == (None, {"slow": 1})


def test_compact_shows_tile_usual_knobs_and_what_differs_from_the_default() -> None:
    assert compact(TileConfig()) == "16x64x256, warps 4, stages 2"
    config = SplitKAtomicConfig(BLOCK_M=32, split_k=8, cache_modifier=".cg", num_xcds=8)
    assert compact(config) == "32x64x256, split 8, warps 4, stages 2, cache_modifier .cg, num_xcds 8"


def test_header_says_whether_the_time_was_predicted_or_measured() -> None:
    only_predicted = closing_table(summarize(results(predicted(9.0))))
    assert "predicted us" in only_predicted.header and "measured us" not in only_predicted.header
    both = closing_table(summarize(results(predicted(9.0), measured(8.0, M=32))))
    assert both.header[3:5] == ("measured us", "predicted us")
    assert [row[3:5] for row in both.rows] == [("", "9.00"), ("8.00", "")]


def test_closing_table_shows_roofline_margin_and_outcomes() -> None:
    frame = results(predicted(8.0, roofline_fraction=0.25), predicted(10.0, **ATOMIC), failed("crashed"))
    header, row = closing_table(summarize(frame)).header, closing_table(summarize(frame)).rows[0]
    cells = dict(zip(header, row, strict=True))
    assert (cells["shape"], cells["family"]) == ("16x2112x7168", "fused")
    assert (cells["roofline"], cells["margin"], cells["outcomes"]) == ("25.0 %", "25.0 %", "2 ok, 1 crashed")


def test_times_of_a_simulated_gpu_are_said_to_be_no_measurements() -> None:
    said = io.StringIO()
    print_closing(results(measured(8.0, protocol="cold-graph-v1@simulated")), output_console(said))
    assert said.getvalue().startswith("no GPU measured these times")
    assert "simulated us" in said.getvalue() and "measured us" not in said.getvalue()
    real = io.StringIO()
    print_closing(results(measured(8.0)), output_console(real))
    assert "no GPU" not in real.getvalue() and "measured us" in real.getvalue()


def test_simulated_and_measured_times_have_columns_of_their_own() -> None:
    table = closing_table(summarize(results(measured(8.0), measured(7.0, M=32, protocol="cold-graph-v1@simulated"))))
    assert table.header[3:5] == ("measured us", "simulated us")
    assert [row[3:5] for row in table.rows] == [("8.00", ""), ("", "7.00")]


def test_closing_table_says_where_a_search_settled_early() -> None:
    trials = [predicted(9.0, trial=0, trials_wanted=9), predicted(9.5, trial=1, trials_wanted=9, settled=True)]
    assert closing_table(summarize(results(*trials))).rows[0][-1] == "2 ok, settled after 2 of 9"


def test_device_is_shown_where_there_are_several() -> None:
    assert "device" not in closing_table(summarize(results(predicted(9.0)))).header
    assert closing_table(summarize(results(predicted(9.0), predicted(9.0, cu_count=128)))).header[0] == "device"


def test_a_search_that_was_cut_short_on_one_of_two_devices_is_named() -> None:
    frame = results(
        predicted(9.0, study="a", trials_wanted=2), predicted(9.0, cu_count=304, study="b", trials_wanted=1)
    )
    stream = io.StringIO()
    print_closing(frame, output_console(stream))
    assert "unfinished: 16x2112x7168 (1 of 2 trials)" in stream.getvalue()


def test_pipe_gets_plain_lines_of_any_width() -> None:
    out = io.StringIO()
    print_closing(results(predicted(9.0), failed("crashed", M=32)), output_console(out))
    lines = out.getvalue().splitlines()
    assert len(lines) == 3  # one line a shape, below the header
    assert out.getvalue().isascii() and "\x1b" not in out.getvalue()
    assert all(line == line.rstrip() for line in lines)
    assert "no winner" in lines[2]


def test_where_every_time_was_slow_the_default_is_the_faster_one() -> None:
    slow, crashed = measured(9.0, outcome="slow"), failed("crashed", M=32)
    rows = closing_table(summarize(results(slow, crashed))).rows
    assert [row[1] for row in rows] == ["no winner: the default is faster", "no winner"]


def test_terminal_gets_a_drawn_table() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=200, markup=False)
    print_closing(results(predicted(9.0)), console)
    assert "─" in out.getvalue() and "\x1b[" in out.getvalue()


def test_cells_are_printed_as_they_are() -> None:
    out = io.StringIO()
    print_table(TextTable(("a", "b"), (("[red]x[/red]", "[/]"),)), output_console(out))
    assert out.getvalue().splitlines() == ["a             b", "[red]x[/red]  [/]"]


def test_numbers_are_aligned_to_the_right() -> None:
    assert TextTable(("n", "t"), (("1", "x"), ("22", "y")), right=frozenset({"n"})).plain() == " n  t\n 1  x\n22  y"


def test_rows_show_what_is_unknown_as_a_dash() -> None:
    out = io.StringIO()
    print_rows(results(predicted(1 / 3), failed("crashed"))[["M", "predicted_us", "split_k"]], output_console(out))
    assert out.getvalue().splitlines() == [
        " M  predicted_us  split_k",
        "16       0.33333        -",
        "16             -        -",
        "2 rows",
    ]


def test_no_rows_print_their_number() -> None:
    out = io.StringIO()
    print_rows(results(), output_console(out))
    assert out.getvalue() == "0 rows\n"


def test_overview_has_the_configuration_in_words_and_few_columns() -> None:
    view = overview(results(predicted(9.0, num_warps=8)))
    assert view["configuration"].tolist() == ["16x64x256, warps 8, stages 2"]
    assert list(view.columns) == ["M", "N", "K", "family", "configuration", "outcome", "predicted_us"]
