"""search.commands.verify: a line a row, the exit code, and what cannot be verified here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import torch
from compiled_programs import session_folder
from typer.testing import CliRunner

import search.commands.verify as verify
import search.evaluators.offline
import search.gate.interpreted as interpreted
from kernels.device import GFX950, DeviceKey, local_device
from kernels.errors import InputError, WrongResultError
from kernels.families import FAMILIES
from kernels.families.defaults import default_choice
from kernels.families.fused import TileConfig
from kernels.families.staged_hip import StagedHipConfig
from kernels.launches.program import Program
from kernels.problem import GemmShape
from kernels.rocm.code_objects import PATH_VARIABLE
from kernels.rocm.compiler import COMPILER_VARIABLE
from kernels.tables.file import write_table
from kernels.tables.rows import Made, TableRow, TunedTable
from search.cli import app
from search.device.served import judged_on_device
from search.evaluation import Candidate, Evaluation, ServedCandidate
from search.gate.interpreted import judged_by_interpreter
from search.gate.sample import Sample, take_sample

H200 = DeviceKey("sm_90", 132)
MADE = Made(date(2026, 11, 30), "3.9.0", "2.13.0", "0" * 12, "offline", "study")


def row(M: int, N: int, K: int, family: str = "fused", **knobs: int | str) -> TableRow:
    kind = FAMILIES[family]
    return TableRow(M, N, K, family, kind.config(knobs), "predicted", kind.deterministic, MADE, predicted_us=5.0)


def table(path: Path, *rows: TableRow, device: DeviceKey = GFX950) -> Path:
    write_table(path / "table.yaml", TunedTable(device, rows))
    return path / "table.yaml"


class Judge:
    """Stands for the offline evaluator: rows with M = 1 are wrong, those with M = 2 take the worker's memory."""

    def __init__(self, device: DeviceKey) -> None: ...

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        future: Future[Evaluation] = Future()
        answers = {
            1: Evaluation("wrong_result", "C[0, 3] is nan\ninstead of 1"),
            2: Evaluation("crashed", "the worker was killed by SIGKILL"),
        }
        future.set_result(answers.get(candidate.shape.M, Evaluation("ok", facts={"max_rel_error": 0.00391})))
        return future

    def close(self) -> None: ...


def test_a_wrong_row_is_named_with_its_reason_and_exits_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "OfflineEvaluator", Judge)
    path = table(tmp_path, row(1, 64, 192), row(17, 64, 448, "fused_splitk_atomic"))
    done = CliRunner().invoke(app, ["verify", "--table", str(path), "--on", "simulator"])
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "wrong  1x64x192 fused: wrong_result: C[0, 3] is nan instead of 1",
        "ok     17x64x448 fused_splitk_atomic: largest relative error 0.0039",
        "2 rows for gfx950-256cu on the simulator: 1 ok, 1 wrong",
    ]


def test_a_row_whose_worker_was_killed_is_not_called_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "OfflineEvaluator", Judge)
    path = table(tmp_path, row(2, 64, 192), row(17, 64, 448))
    done = CliRunner().invoke(app, ["verify", "--table", str(path), "--on", "simulator"])
    assert done.exit_code == 1
    first, _, last = done.stdout.splitlines()
    assert first == "failed 2x64x192 fused: crashed: the worker was killed by SIGKILL"
    assert last == "2 rows for gfx950-256cu on the simulator: 1 ok, 0 wrong, 1 failed"


def test_a_table_without_rows_is_not_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "OfflineEvaluator", Judge)
    assert verify.verify_table(table(tmp_path), "simulator") == 0


def test_the_simulator_executes_the_rows_machine_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(search.evaluators.offline, "default_cache", session_folder)
    lost = row(16, 64, 128, BLOCK_K=64)  # compiles to bf16 MFMA
    assert verify.verify_table(table(tmp_path, row(17, 64, 448), lost), "simulator") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["wrong", "ok", "2"]
    assert "resource_limit" in lines[0] and "scaled MFMA" in lines[0]


def test_the_interpreter_runs_tiles_of_large_shapes_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(
        tmp_path, row(17, 64, 448, "staged_triton", split_k=2),
        row(16, 2112, 7168, "fused_splitk_workspace", split_k=7, num_xcds=8, GROUP_M=2),
    )  # fmt: skip
    assert verify.verify_table(path, "interpreter") == 0
    assert capsys.readouterr().out.count("ok     ") == 2


def test_rows_whose_kernels_cannot_run_that_way_are_skipped_and_not_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = table(tmp_path, row(17, 64, 448), row(40, 64, 512, "staged_ck"), row(64, 64, 512, "staged_hip"))
    assert verify.verify_table(path, "interpreter") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ok", "skip", "skip", "3"]
    assert "machine code, which the interpreter does not run; verify --on simulator" in lines[1]
    assert lines[-1].endswith("on the interpreter: 1 ok, 0 wrong, 2 skipped")
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    monkeypatch.setenv(COMPILER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(search.evaluators.offline, "default_cache", session_folder)
    assert verify.verify_table(path, "simulator") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["ok", "skip", "skip", "3"]
    assert "set MXFP4_AITER" in lines[1] and "name a hipcc" in lines[2]


def test_a_row_whose_hip_quantise_kernel_cannot_be_built_is_skipped_and_not_wrong(
    code_objects: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hip = row(17, 64, 512, "staged_ck", quantize_kernel="hip")
    path = table(tmp_path, row(40, 64, 512, "staged_ck"), by_hip)
    monkeypatch.setenv(COMPILER_VARIABLE, str(tmp_path))
    monkeypatch.setattr("kernels.rocm.code_objects.find_tool", lambda name: Path(name))
    monkeypatch.setattr(verify, "OfflineEvaluator", Judge)
    assert verify.verify_table(path, "simulator") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[:2]] == [["skip", "17x64x512"], ["ok", "40x64x512"]]
    assert "name a hipcc" in lines[0]
    assert lines[2].endswith("on the simulator: 1 ok, 0 wrong, 1 skipped")


def test_a_native_row_is_no_crash_of_the_interpreter() -> None:
    shape = GemmShape(17, 64, 512)
    found = list(judged_by_interpreter(GFX950, [Candidate(shape, "staged_hip", StagedHipConfig())]))
    assert [(done.outcome, "no Triton kernel" in done.reason) for done in found] == [("illegal", True)]


def test_an_interpreter_that_breaks_down_costs_one_row() -> None:
    shape = GemmShape(17, 64, 192)
    config = TileConfig(BLOCK_K=64)
    bad, good = Candidate(shape, "none", config), Candidate(shape, "fused", config)
    found = list(judged_by_interpreter(GFX950, [bad, good]))
    assert [done.outcome for done in found] == ["crashed", "ok"]
    assert found[0].reason == "the interpreter ended: KeyError: 'none'"


def test_the_interpreter_looks_at_the_other_m_and_at_strided_rows() -> None:
    config = TileConfig(BLOCK_K=64)
    served = ServedCandidate(GemmShape(17, 64, 192), "fused", config, 16, 20)
    (done,) = judged_by_interpreter(GFX950, [served])
    assert (done.outcome, done.reason) == ("ok", "")
    assert interpreted._question(served, GFX950)["servings"] == [(16, None), (20, None), (17, 272), (17, 273)]


def test_an_operand_that_the_interpreter_writes_to_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def scribble(program: Program, sample: Sample) -> None:
        sample.memory["b_scale"].array[0, 0] ^= 1

    monkeypatch.setattr(interpreted, "interpret", scribble)
    monkeypatch.setattr(Sample, "compare", lambda self: 0.0)
    monkeypatch.setattr(Sample, "reject_stray_values", lambda self: None)
    with pytest.raises(WrongResultError, match="operand b_scale was written to"):
        interpreted._execute(FAMILIES["fused"], GemmShape(17, 64, 192), TileConfig(BLOCK_K=64), None)


def test_a_sample_that_nobody_computed_is_wrong() -> None:
    shape = GemmShape(17, 64, 192)
    sample = take_sample(FAMILIES["fused"].program(shape, TileConfig()), shape)
    assert bool(torch.from_numpy(sample.memory["out"].array).view(torch.bfloat16).isnan().all())
    with pytest.raises(WrongResultError, match="nan instead of"):
        sample.compare()


@pytest.mark.parametrize(
    ("on", "device", "local", "message"),
    [
        ("simulator", H200, None, "is for sm_90-132cu; the simulator executes gfx950 code only"),
        ("device", GFX950, None, "no GPU that torch can use"),
        ("device", GFX950, H200, "is for gfx950-256cu, the GPU here is sm_90-132cu"),
    ],
)
def test_what_cannot_run_here_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str, device: DeviceKey, local: DeviceKey | None, message: str
) -> None:
    monkeypatch.setattr(verify, "local_device", lambda: local)
    path = table(tmp_path, device=device)
    done = CliRunner().invoke(app, ["verify", "--table", str(path), "--on", on])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {path}: {message}") and done.stderr.count("\n") == 1


def test_without_a_table_the_projects_own_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "table_path", lambda device: tmp_path / f"{device.arch}.yaml")
    monkeypatch.setattr(verify, "local_device", lambda: None)
    with pytest.raises(InputError, match=r"gfx950\.yaml: no such file"):
        verify.verify_table(None, "simulator")


def test_the_device_is_asked_for_whole_products_of_each_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Candidate] = []

    def judge(device: DeviceKey, candidates: Sequence[Candidate]) -> Iterator[Evaluation]:
        asked.extend(candidates)
        yield from (Evaluation("ok") for _ in candidates)

    monkeypatch.setattr(verify, "local_device", lambda: GFX950)
    monkeypatch.setattr(verify, "BACKENDS", {"device": replace(verify.BACKENDS["device"], judge=judge)})
    assert verify.verify_table(table(tmp_path, row(17, 64, 448)), "device") == 0
    assert [str(candidate.shape) for candidate in asked] == ["17x64x448"]


@pytest.mark.gpu
def test_the_gpu_here_computes_the_default_row() -> None:
    device = local_device()
    if device is None:
        pytest.skip("no GPU")
    shape = GemmShape(17, 2112, 448)
    (done,) = judged_on_device(device, [Candidate(shape, *default_choice(shape, device))])
    assert (done.outcome, done.reason) == ("ok", "")
