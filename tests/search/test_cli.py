"""search.cli: the commands, their exit codes, and one line for every mistake of the user."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from fake_evaluator import FakeEvaluator, judge
from reference import leaves
from result_rows import failed, predicted, results
from typer.main import get_command
from typer.testing import CliRunner

from kernels.device import GFX950, DeviceKey
from kernels.families.defaults import default_choice
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from kernels.tables import sources as table_sources
from kernels.tables.file import load_table, write_table
from kernels.tables.rows import Made, TableRow, TunedTable
from search.cli import _starts, app
from search.commands.export import Claim, Proof
from search.evaluation import Candidate, Evaluation
from search.formats.gpumode import BENCHMARK_SHAPES
from search.results import load, save

ROOT = Path(__file__).resolve().parents[2]


def run(*args: str | Path) -> Any:
    return CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture(autouse=True)
def taken_for_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows made by hand are not executed; tests/search/commands/test_proof.py has what that is worth."""
    monkeypatch.setattr("search.cli._prove", lambda device, claims: Proof(frozenset(claims)))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Results of two shapes, one without a winner."""
    path = tmp_path / "results.parquet"
    save(results(predicted(9.0), predicted(8.0, num_warps=8), failed("crashed", M=64)), path)
    return path


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEvaluator:
    """Judges a sweep's candidates without a compiler."""
    evaluator = FakeEvaluator()
    monkeypatch.setattr("search.commands.sweep.make_evaluator", lambda *args, **kwargs: evaluator)
    monkeypatch.setattr(table_sources, "tables_folder", lambda: tmp_path / "tables")
    return evaluator


def test_sweep_keeps_its_trials_and_shows_the_winner(tmp_path: Path, fake: FakeEvaluator) -> None:
    args = ("sweep", "16x2112x7168", "--target", "gfx950", "--trials", "4", "--results", tmp_path)
    done = run(*args)
    assert done.exit_code == 0, done.output
    assert "predicted us" in done.output and "16x2112x7168" in done.output
    assert len(load(tmp_path)) == len(fake.asked) == 4
    assert run(*args).exit_code == 0
    assert len(fake.asked) == 4  # resumed, nothing left to do


def test_sweep_tries_what_serves_untuned_and_says_what_that_costs(tmp_path: Path, fake: FakeEvaluator) -> None:
    done = run("sweep", "16x2112x7168", "--target", "gfx950", "--trials", "40", "--results", tmp_path)
    assert default_choice(GemmShape(16, 2112, 7168), GFX950) in [(one.family, one.config) for one in fake.asked]
    assert "without a row the default " in done.stdout


def test_sweep_passes_its_options_on(tmp_path: Path, fake: FakeEvaluator) -> None:
    shapes = tmp_path / "shapes.txt"
    shapes.write_text("4x2880x512\n16x2112x7168\n")
    done = run(
        "sweep", "1,2x2112x7168", "16x2112x7168", "--shapes", shapes, "--target", "gfx950", "--families",
        "fused,staged_triton", "--trials", 2, "--sampler", "random", "--seed", "7", "--results", tmp_path / "r",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    frame = load(tmp_path / "r")
    assert set(frame["family"]) <= {"fused", "staged_triton"}
    assert sorted(set(zip(frame["M"], frame["N"], strict=True))) == [(1, 2112), (2, 2112), (4, 2880), (16, 2112)]


def test_sweep_without_any_winner_names_the_shape_and_exits_1(tmp_path: Path, fake: FakeEvaluator) -> None:
    fake.function = lambda candidate: Evaluation("compile_error", "never")
    done = run("sweep", "16x2112x7168", "--target", "gfx950", "--trials", "2", "--results", tmp_path)
    assert done.exit_code == 1
    assert "no winner for 16x2112x7168" in done.stderr


def test_an_interrupted_sweep_says_so_before_what_is_unfinished_and_exits_130(
    tmp_path: Path, fake: FakeEvaluator
) -> None:
    def interrupt_at_three(candidate: Candidate) -> Evaluation:
        if len(fake.asked) == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return judge(candidate)

    fake.function = interrupt_at_three
    args = ("--target", "gfx950", "--families", "fused", "--trials", 9, "--results", tmp_path)
    done = run("sweep", "16x2112x7168", "1..64x2880x512", *args)
    assert done.exit_code == 130
    kept, unfinished, never = done.stdout.splitlines()[-3:]
    assert kept == "interrupted; everything found is kept, the same command resumes"
    assert unfinished.startswith("unfinished: 16x2112x7168 (")
    named = ", ".join(f"{M}x2880x512" for M in (1, 2, 4, 8, 16, 32, 64))
    assert never == f"7 shapes never begun: {named}; the same sweep begins them"
    assert done.stderr == ""
    assert run("inspect", "--results", tmp_path).stdout.splitlines()[-1] == never


@pytest.mark.parametrize("place", ["folder", "sweep.log"])
def test_only_the_newest_sweep_says_what_was_never_begun(tmp_path: Path, fake: FakeEvaluator, place: str) -> None:
    args = ("--target", "gfx950", "--families", "fused", "--trials", 2, "--storage", tmp_path / place)
    fake.function = lambda candidate: judge(candidate) if candidate.shape.M == 1 else pytest.fail("never begun")
    with pytest.raises(pytest.fail.Exception):
        CliRunner().invoke(app, ["sweep", "1,2,4x2880x512", *map(str, args)], catch_exceptions=False)
    never = "2 shapes never begun: 2x2880x512, 4x2880x512; the same sweep begins them"
    assert run("inspect", "--storage", tmp_path / place).stdout.splitlines()[-1] == never
    assert run("sweep", "1x2880x512", *args).exit_code == 0
    assert "never begun" not in run("inspect", "--storage", tmp_path / place).stdout


def test_a_time_that_is_too_short_for_any_trial_is_said_in_one_line(tmp_path: Path, fake: FakeEvaluator) -> None:
    done = run("sweep", "1..64x2880x512", "--target", "gfx950", "--time-budget", 0, "--results", tmp_path)
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-2:] == [
        "no trials yet", "time budget spent: 0 of 7 shapes searched, 7 left; the same command goes on"
    ]  # fmt: skip
    assert run("inspect", "--results", tmp_path).stdout == "no trials yet\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["sweep"], "error: no shapes; give MxNxK"),
        (["sweep", "16x100x7168"], "N = 100 must be a positive multiple of 64"),
        (["sweep", "16x2112x50"], "K = 50 must be a positive multiple of 64"),
        (["sweep", "0x2112x7168"], "M = 0 must be at least 1"),
        (["sweep", "sixteen"], "is no shape"),
        (["sweep", "--shapes", "none.yaml"], "--shapes none.yaml: no such file"),
        (["sweep", "16x64x64", "--families", "warp"], "unknown family 'warp'"),
        (["sweep", "16x64x64", "--target", "moon"], "unknown target 'moon'"),
        (["sweep", "16x64x64", "--target", "gfx950", "--results", "/dev/null/r"], "/dev/null/r"),
        (
            ["sweep", "16x64x64", "--target", "gfx950", "--storage", "nonsense://h/d"],
            "not a storage that Optuna can open",
        ),
        (["sweep", "16x64x64", "--address", "auto"], "--address auto is of a Ray cluster; give --engine ray too"),
        (["verify", "--on", "simulatr"], "unknown backend 'simulatr'; did you mean 'simulator'?"),
        (["export", "--results", "none"], "none/studies.db: no results; run `sweep` first"),
        (["inspect", "--results", "none.csv"], "none.csv: no such file"),
        (["sweep", "16x64x64", "--families", "fused,,fused"], "--families 'fused,,fused' has an empty name"),
        (["sweep", "16x64x64", "--start-from", "none"], "--start-from none/studies.db: no results"),
        (["sweep", "16x64x64", "--only", "none.csv"], "--only none.csv: no such file; write it with inspect"),
        (["export", "--format", "vllm-json", "--table", "none.yaml"], "--table none.yaml: no such file"),
        (["explain", "16", "100", "7168"], "shape 16x100x7168: N = 100"),
        (["explain", "16", "2112", "7168", "--table", "none.yaml"], "none.yaml: no such file"),
    ],
)
def test_mistake_is_one_line_and_exit_code_2(args: list[str], message: str) -> None:
    done = run(*args)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert done.stderr.count("\n") == 1


def blanks() -> Iterator[list[str]]:
    """Each command with an empty word behind its name and behind each of its options."""
    for path, command in leaves(get_command(app).commands):  # type: ignore[attr-defined]
        yield [*path.split(), ""]
        options = [one.opts[0] for one in command.params if one.param_type_name == "option" and not one.is_flag]
        yield from ([*path.split(), *words] for option in options for words in ([option, " \t"], [f"{option}="]))


@pytest.mark.parametrize(("name", "command"), list(leaves(get_command(app).commands)))  # type: ignore[attr-defined]
def test_help_says_of_every_parameter_what_it_is_and_takes(name: str, command: Any) -> None:
    assert [one.name for one in command.params if not one.help or not one.help.endswith(".")] == []
    options = [one for one in command.params if one.param_type_name == "option" and not one.is_flag]
    assert [one.name for one in options if not one.metavar] == []


@pytest.mark.parametrize("words", list(blanks()), ids=lambda words: " ".join(words).rstrip() + "_" * (not words[-1]))
def test_an_empty_word_is_no_value_and_no_folder(words: list[str], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    before = words[-1].removesuffix("=").strip() or words[-2]
    error = f"error: nothing behind {before}: an empty variable? give a value, or leave the option out\n"
    done = run(*words)
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", error)
    assert list(tmp_path.iterdir()) == []


def test_what_a_file_to_start_from_does_not_say_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "N=512,K=256,device_name=AMD_Instinct_MI350X,dtype=fp8_w8a8.json"
    file.write_text('{"16": {"BLOCK_SIZE_M": 16}}')
    assert dict(_starts(file, [GemmShape(16, 512, 256)])) == {}
    said = capsys.readouterr().err
    assert "0 taken, 1 left out" in said and "of another operation than MXFP4" in said
    assert "has nothing for the N and K of these shapes" in said


@pytest.mark.parametrize(
    "args",
    [
        ["dance"],
        ["sweep", "--bad"],
        ["sweep", "16x64x64", "--trials", "0"],
        ["explain", "16", "2112"],
    ],
)
def test_usage_error_is_exit_code_2(args: list[str]) -> None:
    done = run(*args)
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_export_writes_a_table_and_exits_1_where_a_shape_has_no_winner(tmp_path: Path, saved: Path) -> None:
    table = tmp_path / "table.yaml"
    done = run("export", "--results", saved, "--table", table)
    assert done.exit_code == 1
    assert "added" in done.stdout and f"{table}: 1 row (1 added" in done.stdout
    assert "no winner for 64x2112x7168" in done.stderr
    assert load_table(table).rows[0].predicted_us == 8.0


def test_a_wrong_row_is_named_left_out_and_exit_code_1(
    tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "results.parquet"
    save(results(predicted(8.0), predicted(9.0, num_warps=8)), path)

    def proof(device: DeviceKey, claims: Sequence[Claim]) -> Proof:
        bad = {claim: "wrong_result: at M = 15: off" for claim in claims if claim.row.predicted_us == 8.0}
        return Proof(wrong=bad, unproven={claim: "no GPU" for claim in claims if claim not in bad})

    monkeypatch.setattr("search.cli._prove", proof)
    done = run("export", "--results", path, "--table", tmp_path / "t.yaml")
    assert done.exit_code == 1
    line = "wrong    16x2112x7168 fused predicted_us=8: wrong_result: at M = 15: off; left out"
    assert done.stdout.splitlines()[0] == line
    assert load_table(tmp_path / "t.yaml").rows[0].predicted_us == 9.0
    assert done.stderr == f"{tmp_path}/t.yaml: 1 row not proven: no GPU\n"


def test_ctrl_c_while_rows_are_executed_writes_nothing(
    tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(device: DeviceKey, claims: Sequence[Claim]) -> Proof:
        raise KeyboardInterrupt

    table, faster = tmp_path / "t.yaml", tmp_path / "faster.csv"
    run("export", "--results", saved, "--table", table)
    before = table.read_bytes()
    save(results(predicted(4.0)), faster)
    monkeypatch.undo()
    monkeypatch.setattr("search.commands.proof.prove", interrupted)
    done = run("export", "--results", faster, "--table", table)
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "interrupted; nothing is written\n")
    assert table.read_bytes() == before


def test_a_row_that_could_not_be_executed_is_not_called_wrong(
    tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, table = tmp_path / "results.parquet", tmp_path / "t.yaml"
    save(results(predicted(8.0)), path)
    reason = "crashed: while it was checked: the worker was killed by SIGKILL"
    monkeypatch.setattr("search.cli._prove", lambda device, claims: Proof(failed=dict.fromkeys(claims, reason)))
    done = run("export", "--results", path, "--table", table)
    assert (done.exit_code, load_table(table).rows) == (1, ())
    said = f"could not be executed here ({reason})"
    cure = "export again where there is more memory and time, or with --no-proof"
    assert done.stdout.splitlines()[0] == f"unproven 16x2112x7168 fused predicted_us=8: {said}; left out; {cure}"
    assert "wrong" not in done.output


def test_a_search_that_was_cut_short_is_named_where_its_winner_is_shown_or_exported(tmp_path: Path) -> None:
    path = tmp_path / "results.parquet"
    save(results(predicted(9.0, trials_wanted=96)), path)
    line = "unfinished: 16x2112x7168 (1 of 96 trials); the same sweep goes on"
    exported = run("export", "--results", path, "--table", tmp_path / "table.yaml")
    assert exported.exit_code == 0 and exported.stderr == f"{tmp_path}/table.yaml: {line}, then export again\n"
    assert run("inspect", "--results", path).stdout.endswith(f"{line}\n")
    save(results(predicted(9.0, trials_wanted=1)), path)
    assert run("export", "--results", path, "--table", tmp_path / "table.yaml").stderr == ""
    assert "unfinished" not in run("inspect", "--results", path).stdout


def test_cliff_and_regret_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "results.parquet"
    family, config = default_choice(GemmShape(16, 2880, 512), GFX950)
    layer = {"N": 2880, "K": 512}
    tuned: dict[str, Any] = {**layer, "BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 512}
    default: dict[str, Any] = {**layer, "family": family, **config.to_dict()}
    save(results(predicted(8.0, **tuned), predicted(8.4, **tuned, num_warps=8),
                 predicted(9.0, **tuned, M=64, num_warps=8), predicted(16.0, **default)), path)  # fmt: skip
    cliff = "without a row the default takes 2.00 times as long as the winner (at 1 of 2 shapes)\n"
    assert cliff in run("inspect", "--results", path).stdout
    exported = run("export", "--results", path, "--table", tmp_path / "table.yaml").stdout
    line = "it serves between M = 16 and 64, 5.0 % slower than the best at M = 16; sweep an M in between"
    assert f"regret   64x2880x512 fused: {line}\n" in exported


def test_export_writes_a_submission_from_the_table_alone(tmp_path: Path, saved: Path) -> None:
    table, submission = tmp_path / "table.yaml", tmp_path / "submission.py"
    run("export", "--results", saved, "--table", table)
    before = table.read_text()
    refused = run("export", "--format", "gpumode", "--table", table, "--output", submission)
    assert refused.exit_code == 2  # the table has one of the six ranked shapes
    assert refused.stderr.startswith("error: no row for 4x2880x512")
    assert table.read_text() == before
    write_table(table, ranked_table())
    done = run("export", "--format", "gpumode", "--table", table, "--output", submission)
    assert done.exit_code == 0, done.output
    assert f"wrote {submission}" in done.stdout
    assert "def custom_kernel(data):" in submission.read_text()
    assert load_table(table) == ranked_table()


def ranked_table() -> TunedTable:
    """A row for each ranked shape of the competition."""
    made = Made(date(2026, 11, 29), "3.9.0", "2.13.0", "0" * 12, "by hand", "none")
    return TunedTable(
        GFX950,
        tuple(
            TableRow(s.M, s.N, s.K, "fused", TileConfig(), "predicted", True, made, predicted_us=5.0)
            for s in BENCHMARK_SHAPES
        ),
    )


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--format", "toml", "unknown format 'toml'"),
        ("--output", "/dev/null/t.yaml", "/dev/null/t.yaml: cannot be written"),
    ],
)
def test_export_refuses_in_one_line(tmp_path: Path, saved: Path, option: str, value: str, message: str) -> None:
    done = run("export", "--results", saved, "--table", tmp_path / "t.yaml", option, value)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ") and message in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["aiter-csv", "vllm-json"])
def test_a_format_that_can_say_no_row_is_not_written(tmp_path: Path, saved: Path, name: str) -> None:
    table, output = tmp_path / "t.yaml", tmp_path / "out"
    run("export", "--results", saved, "--output", table)  # a row of the family fused
    done = run("export", "--format", name, "--table", table, "--output", output)
    assert done.exit_code == 1 and not output.exists()
    assert done.stdout.startswith("left out 1 entry: fused is no kernel that ")
    assert done.stderr == f"{name}: nothing is written, for there is nothing that it can say\n"


def test_export_asks_for_the_gain_in_percent(tmp_path: Path, saved: Path) -> None:
    table = tmp_path / "table.yaml"
    run("export", "--results", saved, "--table", table)
    faster = tmp_path / "faster.csv"
    save(results(predicted(7.0)), faster)
    assert "kept" in run("export", "--results", faster, "--table", table, "--min-gain", "20").stdout
    assert "replaced" in run("export", "--results", faster, "--table", table, "--min-gain", "10").stdout


def test_inspect_shows_a_summary_by_default(saved: Path) -> None:
    lines = run("inspect", "--results", saved).stdout.splitlines()
    assert len(lines) == 3
    assert "8.00" in lines[1] and "2 ok" in lines[1] and "no winner" in lines[2] and "1 crashed" in lines[2]


def test_inspect_shows_chosen_rows(saved: Path) -> None:
    done = run(
        "inspect",
        "--results",
        saved,
        "--query",
        "outcome == 'ok'",
        "--sort",
        "predicted_us",
        "--columns",
        "M,num_warps",
    )
    assert done.stdout.splitlines() == [" M  num_warps", "16          8", "16          4", "2 rows"]


def test_a_chosen_column_that_is_empty_is_shown_and_an_unknown_one_named(saved: Path) -> None:
    done = run("inspect", "--results", saved, "--columns", "M,time_us", "--limit", "1")
    assert done.stdout.splitlines() == [" M  time_us", "16        -", "1 row"]
    assert "unknown column 'tim_us'" in run("inspect", "--results", saved, "--columns", "M,tim_us").stderr
    shown = run("inspect", "--results", saved, "--limit", "1").stdout
    assert "predicted_us" in shown and " time_us" not in shown  # of those nobody chose the empty ones are left out


def test_inspect_saves_rows_and_prints_json(tmp_path: Path, saved: Path) -> None:
    out = tmp_path / "best.csv"
    assert run("inspect", "--results", saved, "--best", "--to", out).stdout == f"wrote {out}: 1 row\n"
    pd.testing.assert_frame_equal(load(out), load(saved).iloc[[1]].reset_index(drop=True))
    rows = json.loads(run("inspect", "--results", saved, "--json", "--columns", "predicted_us", "--limit", "1").stdout)
    assert rows == [{"predicted_us": 9.0}]


def test_inspect_shows_the_configuration_among_chosen_columns(saved: Path) -> None:
    done = run("inspect", "--results", saved, "--best", "--columns", "M,configuration,M")
    assert done.stdout.splitlines() == [" M  configuration", "16  16x64x256, warps 8, stages 2", "1 row"]


def test_columns_that_are_asked_for_twice_can_be_saved(tmp_path: Path, saved: Path) -> None:
    out = tmp_path / "some.parquet"
    assert run("inspect", "--results", saved, "--columns", "M,M,configuration", "--to", out).exit_code == 0
    assert list(pd.read_parquet(out).columns) == ["M", "configuration"]


def test_a_shape_that_got_slower_is_exit_code_1_unless_the_query_leaves_it_out(tmp_path: Path) -> None:
    before = tmp_path / "before.parquet"
    save(results(predicted(7.0), predicted(8.0, M=64)), before)
    now = tmp_path / "now.parquet"
    save(results(predicted(8.0), predicted(8.0, M=64)), now)
    args = ("inspect", "--results", now, "--against", before, "--fail-slower", "3")
    done = run(*args)
    assert (done.exit_code, done.stderr) == (1, "slower by more than 3 %: 16x2112x7168 (+14.3 %)\n")
    assert "not compared" not in done.stdout
    narrow = run(*args, "--query", "M == 64")
    assert narrow.exit_code == 0
    assert narrow.stdout.splitlines()[-1] == "not compared: 1 shape only there"
    assert run(*args[:-1], "15").exit_code == 0


@pytest.mark.parametrize(
    "words", [["inspect", "--to", "out.parquet"], ["export", "--table", "out.yaml"], ["report", "--bundle", "out.zip"]]
)
def test_what_reads_results_reads_several_places(
    words: list[str], tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    save(results(predicted(5.0, M=8)), tmp_path / "more.csv")
    run(words[0], "--results", saved, "more.csv", *words[1:])
    out = tmp_path / words[2]
    Ms = {row.M for row in load_table(out).rows} if out.suffix == ".yaml" else set(load(out)["M"])
    assert Ms >= {8, 16}


def test_inspect_lists_its_columns(saved: Path) -> None:
    done = run("inspect", "--results", saved, "--columns", "help")
    names = done.stdout.strip().split(", ")
    assert done.exit_code == 0 and set(load(saved).columns) == set(names) - {"configuration"}


def test_a_timeline_of_no_shape_says_why(saved: Path) -> None:
    done = run("inspect", "--results", saved, "--timeline", "16x1x64")
    assert done.exit_code == 2
    assert "--timeline 16x1x64: N = 1 must be a positive multiple of 64; name a row of the results" in done.stderr


def test_inspect_draws(tmp_path: Path, saved: Path) -> None:
    pytest.importorskip("matplotlib")
    done = run("inspect", "--results", saved, "--plot", tmp_path / "plots")
    assert done.exit_code == 0
    assert len(list((tmp_path / "plots").glob("*-predicted.png"))) == 1


def test_explain_prints_the_row_and_json(tmp_path: Path) -> None:
    table, path = tmp_path / "table.yaml", tmp_path / "layer.parquet"
    save(results(predicted(8.0, N=2880, K=512, BLOCK_N=32, BLOCK_K=512)), path)
    run("export", "--results", path, "--table", table)
    done = run("explain", 9, 2880, 512, "--table", table)
    assert done.exit_code == 0 and "bucket" in done.stdout and "serves 1..16" in done.stdout
    assert json.loads(run("explain", 9, 2880, 512, "--table", table, "--json").stdout)["how"] == "bucket"


def test_doctor_prints_lines_and_json(tmp_path: Path) -> None:
    done = run("doctor", "--results", tmp_path)
    assert done.exit_code == 0 and done.stdout.splitlines()[0].split() == ["status", "what", "found", "cure"]
    names = [one["name"] for one in json.loads(run("doctor", "--results", tmp_path, "--json").stdout)]
    assert {"python", "torch", "triton", "gfx950 code", "storage"} <= set(names)


def test_a_bug_is_no_input_error(monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    def broken(path: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr("search.results.load", broken)
    done = run("inspect", "--results", saved)
    assert isinstance(done.exception, ValueError) and done.exit_code == 1


def test_program_answers_a_mistake_without_a_traceback(tmp_path: Path) -> None:
    program = [sys.executable, str(ROOT / "run_search.py")]
    done = subprocess.run(
        [*program, "inspect", "--results", "none"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    cure = "run `sweep` first, or name the folder or the file that has them"
    assert done.stderr == f"error: none/studies.db: no results; {cure}\n"


@pytest.mark.parametrize(
    ("args", "unloaded"),
    [
        (["--help"], {"torch", "triton", "numpy", "pandas", "optuna", "sqlalchemy", "matplotlib"}),
        (["inspect", "--help"], {"torch", "triton", "numpy", "pandas", "optuna", "sqlalchemy", "matplotlib"}),
        (["inspect", "--results", "FILE", "--best"], {"torch", "optuna", "sqlalchemy", "matplotlib"}),
        (
            ["export", "--no-proof", "--results", "FILE", "--table", "new.yaml"],
            {"torch", "optuna", "sqlalchemy", "matplotlib"},
        ),
        (
            ["sweep", "16x2112x7168", "--target", "replay:FILE", "--sampler", "grid", "--results", "new"],
            {"torch", "scipy"},
        ),
        (["sweep", "16x2112x7168", "--target", "gfx950", "--time-budget", "0", "--results", "new"], {"torch", "scipy"}),
    ],
)
def test_commands_load_only_what_they_need(tmp_path: Path, saved: Path, args: list[str], unloaded: set[str]) -> None:
    script = (
        "import atexit, json, sys, runpy\n"
        "atexit.register(lambda: print(json.dumps(list(sys.modules)), file=sys.stderr))\n"
        f"sys.argv = {['run_search.py', *(arg.replace('FILE', str(saved)) for arg in args)]!r}\n"
        f"runpy.run_path({str(ROOT / 'run_search.py')!r}, run_name='__main__')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    loaded = json.loads(done.stderr.splitlines()[-1])
    assert "typer" in loaded and unloaded & set(loaded) == set()


def test_a_submission_is_written_from_a_table_and_not_from_results(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["export", "--format", "gpumode", "--results", str(tmp_path)])
    assert done.exit_code == 2
    assert "give --table" in done.stderr
