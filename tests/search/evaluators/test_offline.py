"""offline: the outcome of each kind of candidate, and of the compiler or worker that does not come back."""

from __future__ import annotations

import errno
import math
import os
import tempfile
import time
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from compiled_programs import compiled, default_program, session_folder, skip_unless_here

import search.evaluators.execution as execution
import search.evaluators.offline as offline
from kernels.device import GFX950, DeviceKey
from kernels.errors import CompileError, InputError, ResourceLimitError, TimedOutError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.rocm.code_objects import PATH_VARIABLE, find_catalogue
from kernels.rocm.compiler import COMPILER_VARIABLE
from search.evaluation import Candidate, Evaluation
from search.evaluators.execution import judge
from search.evaluators.offline import OfflineEvaluator
from search.evaluators.offline_task import CLIMB, Bar, OfflineTask, lost_worker
from search.evaluators.targets import make_evaluator
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.calls import check_resources, compile_call
from search.gfx950.code.triton import Specialization
from search.gfx950.machine import MI355X
from search.gfx950.model.calibrated import Model
from search.results.columns import COLUMNS, EXECUTED
from search.workers.pool import UNSEEN_END, WorkerDied, WorkerTimedOut

SHAPE = GemmShape(17, 64, 448)
KEY = "ab" * 32
LOG = "loc(unknown): remark: nothing\nLLVM ERROR: ran out of registers during register allocation\nStack dump:\n0. x\n"


def judged(tmp_path: Path, family: str = "fused", shape: GemmShape = SHAPE, **knobs: int | str) -> Evaluation:
    candidate = Candidate(shape, family, FAMILIES[family].config(knobs))
    return judge(OfflineTask(candidate, tmp_path / "logs"), device=GFX950, cache=session_folder(), model=Model(MI355X))


def test_a_good_candidate_is_compiled_executed_and_predicted(tmp_path: Path) -> None:
    done = judged(tmp_path, "fused_splitk_workspace", split_k=2)
    assert (done.outcome, done.evidence) == ("ok", "predicted")
    assert done.objective_us is not None and done.objective_us > 3
    assert set(done.facts) <= set(COLUMNS)
    assert set(EXECUTED) <= set(done.facts)
    assert (done.facts["checked_on"], done.facts["kernels"], done.facts["deterministic"]) == ("simulator", 2, True)
    assert not list((tmp_path).glob("logs/*"))


@pytest.mark.parametrize(("times_the_bar", "executed"), [(CLIMB * 0.99, True), (CLIMB * 1.01, False)])
def test_what_is_too_slow_by_the_formula_on_its_code_is_not_executed(
    tmp_path: Path, times_the_bar: float, executed: bool
) -> None:
    candidate = Candidate(SHAPE, "fused", FAMILIES["fused"].config({}))
    alone = judge(OfflineTask(candidate, tmp_path), device=GFX950, cache=session_folder(), model=Model(MI355X))
    formula_us = alone.facts["formula_us"]
    assert isinstance(formula_us, float) and formula_us > 3
    bar = Bar(formula_us / times_the_bar, predicted_us=10.0)
    done = judge(OfflineTask(candidate, tmp_path, bar), device=GFX950, cache=session_folder(), model=Model(MI355X))
    if executed:
        assert done.outcome == "ok" and done.objective_us == alone.objective_us
        return
    assert (done.outcome, done.evidence, done.facts["model"]) == ("slow", "predicted", "gfx950-t4-code")
    assert "checked_on" not in done.facts and "executed" not in done.facts and "predicted_lo_us" not in done.facts
    assert done.objective_us == pytest.approx(10.0 * times_the_bar)
    assert f"{times_the_bar:.2f} times as slow as the best" in done.reason


def test_a_recording_executes_what_a_search_would_not(tmp_path: Path) -> None:
    task = OfflineTask(Candidate(SHAPE, "fused", FAMILIES["fused"].config({})), tmp_path, Bar(1e-3, predicted_us=1.0))
    done = judge(task, device=GFX950, cache=session_folder(), model=Model(MI355X), climb=math.inf)
    assert (done.outcome, done.facts["checked_on"]) == ("ok", "simulator")


def test_the_bar_is_the_best_candidate_of_the_shape_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Bar | None] = []
    times = iter([9.0, 7.0, 8.0, 6.0, 5.0])

    def answer(task: OfflineTask, timeout_s: float) -> Future[Evaluation]:
        given.append(task.bar)
        done: Future[Evaluation] = Future()
        time_us = next(times)
        outcome = "slow" if time_us == 6.0 else "ok"
        done.set_result(Evaluation(outcome, "", "predicted", time_us, {"formula_us": 2 * time_us}))
        return done

    evaluator = OfflineEvaluator(jobs=1, cache=tmp_path)
    monkeypatch.setattr(evaluator._pool, "submit", answer)
    for shape in [SHAPE, SHAPE, SHAPE, SHAPE, GemmShape(1, 64, 448)]:
        evaluator.submit(Candidate(shape, "fused", FAMILIES["fused"].config({}))).result()
    evaluator.close()
    assert given == [None, Bar(18.0, 9.0), Bar(14.0, 7.0), Bar(14.0, 7.0), None]


@pytest.mark.parametrize(
    ("family", "knobs", "deterministic"),
    [
        ("staged_hip", {}, True),
        ("staged_hip", {"split_k": 2}, True),
        ("staged_ck", {}, True),
        ("staged_ck", {"quantize_kernel": "hip"}, True),
        ("staged_ck", {"BLOCK_M": 256, "BLOCK_N": 256, "log2_k_split": 1}, False),
    ],
)
def test_native_families_reach_the_predicted_rung(
    tmp_path: Path, family: str, knobs: dict[str, int | str], deterministic: bool
) -> None:
    skip_unless_here(family)
    if knobs.get("quantize_kernel") == "hip":
        skip_unless_here("staged_hip")
    done = judged(tmp_path, family, GemmShape(40, 256, 1024), **knobs)
    assert (done.outcome, done.evidence, done.reason) == ("ok", "predicted", "")
    assert set(done.facts) <= set(COLUMNS)
    assert set(EXECUTED) <= set(done.facts)
    assert done.facts["deterministic"] is deterministic
    assert int(str(done.facts["mfma"])) > 0 and int(str(done.facts["vgprs"])) > 0


@pytest.mark.slow
def test_every_code_object_is_right_through_the_products_own_launches(tmp_path: Path) -> None:
    skip_unless_here("staged_ck")
    for one in find_catalogue().preshuffled:
        for log2_k_split in (0, 1) if one.splits_k else (0,):
            N = 2 * one.tile_n - (64 if one.guards_columns else 0)
            knobs = {"BLOCK_M": one.tile_m, "BLOCK_N": one.tile_n, "log2_k_split": log2_k_split}
            done = judged(tmp_path, "staged_ck", GemmShape(one.tile_m + one.tile_m // 2 + 1, N, 1024), **knobs)
            assert (done.outcome, done.reason) == ("ok", ""), one


@pytest.mark.parametrize(
    ("family", "variable", "reason"),
    [
        ("staged_hip", COMPILER_VARIABLE, "name a hipcc, or a clang"),
        ("staged_ck", PATH_VARIABLE, "set MXFP4_AITER to an AITER install"),
        ("aiter", PATH_VARIABLE, "runs inside of its library, on a GPU only"),
    ],
)
def test_a_candidate_whose_family_is_absent_is_illegal_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, variable: str, reason: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    done = judged(tmp_path, family, GemmShape(40, 256, 1024))
    assert done.outcome == "illegal"
    assert reason in done.reason


def test_executed_instructions_are_those_of_the_loop_not_of_its_text(tmp_path: Path) -> None:
    # Without pipelining the MFMA stand in the loop only, which makes 4096 / 256 trips.
    long = judged(tmp_path, "fused", GemmShape(16, 64, 4096), num_stages=1)
    assert long.facts["executed_mfma"] == 16 * float(long.facts["mfma"] or 0) > 0


@pytest.mark.parametrize(
    ("knobs", "outcome", "reason"),
    [
        ({"waves_per_eu": 8, "BLOCK_N": 128, "num_warps": 2}, "resource_limit", "spills"),
        ({"BLOCK_M": 8, "BLOCK_N": 32, "BLOCK_K": 128, "num_warps": 1}, "resource_limit", "lost its scaled MFMA"),
        ({"BLOCK_K": 64, "cache_modifier": ".zz"}, "compile_error", "cache modifier"),
        ({"BLOCK_M": 24}, "illegal", "BLOCK_M=24 is not a power of two"),
    ],
)
def test_a_bad_candidate_has_its_outcome_and_one_line(
    tmp_path: Path, knobs: dict[str, int | str], outcome: str, reason: str
) -> None:
    done = judged(tmp_path, shape=GemmShape(64, 256, 512), **knobs)
    assert (done.outcome, done.objective_us) == (outcome, None)
    assert reason in done.reason and "\n" not in done.reason


def test_more_lds_than_a_compute_unit_has_is_a_resource_limit() -> None:
    one = compiled(default_program("fused", SHAPE))[0]
    check_resources(one, MI355X)
    for lds_bytes, fits in ((160 * 1024, True), (160 * 1024 + 1, False)):
        larger = replace(one, kernel=replace(one.kernel, lds_bytes=lds_bytes))
        if fits:
            check_resources(larger, MI355X)
        else:
            with pytest.raises(ResourceLimitError, match="needs 163841 B of LDS, a compute unit has 163840 B"):
                check_resources(larger, MI355X)


def test_a_wrong_kernel_is_a_wrong_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lossy(*arguments: object) -> list[object]:
        # The compiler "forgets" the rounding of the quantiser: every code becomes that of zero.
        found = compiled(*arguments[:1])  # type: ignore[arg-type]
        text = found[0].kernel.assembly.replace("v_cvt_scalef32_pk_fp4_bf16 ", "v_xor_b32_e32 v0, v0, v0 ;")
        return [replace(found[0], kernel=replace(found[0].kernel, assembly=text))]

    monkeypatch.setattr(execution, "_compile", lossy)
    done = judged(tmp_path)
    assert done.outcome == "wrong_result"
    assert done.objective_us is None
    assert done.reason


def test_a_compiler_that_aborts_is_a_compile_error_which_is_not_met_again(tmp_path: Path) -> None:
    cache, logs = ArtifactCache(tmp_path / "cache"), tmp_path / "logs"
    logs.mkdir()
    (logs / f"{KEY}.log").write_text(LOG)
    done = lost_worker(WorkerDied("the worker was killed by SIGABRT"), logs, cache, keep=True)
    assert (done.outcome, done.objective_us) == ("compile_error", None)
    assert done.reason == "the compiler aborted: LLVM ERROR: ran out of registers during register allocation"
    kept = cache.load(KEY)
    assert isinstance(kept, CompileError) and str(kept) == done.reason


def test_a_segmentation_fault_without_a_word_says_so(tmp_path: Path) -> None:
    (tmp_path / f"{KEY}.log").write_text("")
    done = lost_worker(WorkerDied("the worker was killed by SIGSEGV"), tmp_path, ArtifactCache(tmp_path), keep=True)
    assert done.reason == "the compiler aborted: the worker was killed by SIGSEGV"


@pytest.mark.parametrize(("keep", "stored"), [(True, TimedOutError), (False, type(None))])
def test_a_compilation_that_does_not_end_is_timed_out(tmp_path: Path, keep: bool, stored: type) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    (tmp_path / f"{KEY}.log").write_text("")
    done = lost_worker(WorkerTimedOut("no answer within 120 s"), tmp_path, cache, keep=keep)
    assert (done.outcome, done.reason) == ("timed_out", "compilation: no answer within 120 s")
    assert type(cache.load(KEY)) is stored


@pytest.mark.parametrize(
    ("error", "log", "outcome"),
    [
        (WorkerDied("the worker was killed by SIGKILL"), True, "crashed"),  # out of memory: not the compiler's fault
        (WorkerDied(UNSEEN_END), True, "crashed"),  # nobody knows whose
        (WorkerDied("the worker was killed by SIGABRT"), False, "crashed"),  # nothing was being compiled
        (WorkerTimedOut("no answer within 120 s"), False, "timed_out"),
    ],
)
def test_a_loss_that_is_not_the_compilers_is_not_remembered(
    tmp_path: Path, error: WorkerDied | WorkerTimedOut, log: bool, outcome: str
) -> None:
    cache = ArtifactCache(tmp_path / "cache")
    if log:
        (tmp_path / f"{KEY}.log").write_text(LOG)
    assert lost_worker(error, tmp_path, cache, keep=True).outcome == outcome
    assert cache.load(KEY) is None


def test_a_log_is_there_while_the_compiler_runs_and_only_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = default_program("fused", SHAPE)
    seen: list[str] = []

    def compiler(wanted: Specialization, log: Path) -> object:
        log.write_text("x")
        seen.extend(path.name for path in tmp_path.glob("*.log"))
        raise CompileError("no")

    monkeypatch.setattr(Specialization, "compile", compiler)
    with pytest.raises(CompileError):
        compile_call(program, program.calls[0], ArtifactCache(tmp_path / "cache"), tmp_path)
    assert len(seen) == 1 and len(seen[0]) == 64 + len(".log")
    assert not list(tmp_path.glob("*.log"))


def dies(task: OfflineTask, *, device: object, cache: Path, model: object, climb: float, how: str) -> Evaluation:
    """Stands for ``judge``: leaves a log, and aborts as LLVM does, or hangs."""
    task.logs.mkdir(parents=True)
    (task.logs / f"{KEY}.log").write_text(LOG)
    if how == "abort":
        os.abort()
    time.sleep(60)
    raise AssertionError("it was killed before")


@pytest.mark.parametrize(("how", "outcome"), [("abort", "compile_error"), ("hang", "timed_out")])
def test_the_worker_is_replaced_and_the_reason_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, outcome: str
) -> None:
    monkeypatch.setattr(offline, "judge_in_worker", partial(dies, how=how))
    evaluator = OfflineEvaluator(jobs=1, cache=tmp_path, timeout_s=60 if how == "abort" else 1)
    try:
        done = evaluator.submit(Candidate(SHAPE, "fused", FAMILIES["fused"].config({}))).result(timeout=90)
    finally:
        evaluator.close()
    assert done.outcome == outcome
    assert (ArtifactCache(tmp_path).load(KEY) is not None) == (how == "abort")


@pytest.mark.parametrize(("how", "timeout_s"), [("abort", 60), ("hang", 1)])
def test_a_full_disk_under_the_cache_ends_the_search_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, timeout_s: int
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr(offline, "judge_in_worker", partial(dies, how=how))
    monkeypatch.setattr(offline, "TIMEOUT_S", timeout_s)  # so that a time-out is stored as well
    monkeypatch.setattr("kernels.disk.replace_file", full)
    evaluator = OfflineEvaluator(jobs=1, cache=tmp_path / "cache", timeout_s=timeout_s)
    try:
        answer = evaluator.submit(Candidate(SHAPE, "fused", FAMILIES["fused"].config({})))
        with pytest.raises(InputError, match=r"cache: how .* \(No space left on device\); make room") as told:
            answer.result(timeout=90)
    finally:
        evaluator.close()
    assert "\n" not in str(told.value)


def test_a_cache_that_cannot_be_written_has_a_stand_in_for_all_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(offline, "judge_in_worker", partial(dies, how="abort"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "file").write_text("")
    evaluator = OfflineEvaluator(jobs=1, cache=tmp_path / "file" / "cache")
    try:
        done = evaluator.submit(Candidate(SHAPE, "fused", FAMILIES["fused"].config({}))).result(timeout=90)
    finally:
        evaluator.close()
    assert done.outcome == "compile_error"
    [stand_in] = tmp_path.glob("mxfp4-tune-cache-*")
    assert ArtifactCache(stand_in).load(KEY) is not None
    assert [f"{stand_in} serves instead" in record.getMessage() for record in caplog.records] == [True]


def test_closing_cancels_what_waits_and_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "judge_in_worker", partial(dies, how="hang"))
    evaluator = OfflineEvaluator(jobs=1, cache=tmp_path)
    futures = [evaluator.submit(Candidate(SHAPE, "fused", FAMILIES["fused"].config({}))) for _ in range(3)]
    evaluator.close()
    assert [future.result(timeout=10).outcome for future in futures] == ["crashed"] * 3
    assert ArtifactCache(tmp_path).load(KEY) is None


def test_a_device_with_other_compute_units_can_be_searched_offline() -> None:
    for target, cu_count in (("gfx950", 256), ("gfx950-128cu", 128), ("gfx950-304cu", 304)):
        evaluator = make_evaluator(target, jobs=1)
        evaluator.close()
        assert evaluator.device == DeviceKey("gfx950", cu_count)
    for target in ("gfx950-0cu", "gfx950-cu", "gfx942-304cu", "gfx950-128"):
        with pytest.raises(InputError, match=f"unknown target '{target}'"):
            make_evaluator(target)
