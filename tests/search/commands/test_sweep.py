"""search.commands.sweep: which evaluator a target means, and what a sweep says when it cannot go on."""

from __future__ import annotations

import math
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch
import triton
from fake_evaluator import FakeEvaluator, judge
from fake_gpu import H200
from optuna.exceptions import StorageInternalError

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.families.defaults import default_choice
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from kernels.tables import sources as table_sources
from kernels.tables.file import write_table
from kernels.tables.rows import Made, TableRow, TunedTable
from search.commands.sweep import SPACES, SweepRequest, run_sweep
from search.device.ahead import Compiled
from search.device.measure import FinalTask, StandBy
from search.evaluation import Candidate, Evaluation, FinalTimes
from search.evaluators.device import DeviceEvaluator
from search.evaluators.offline import OfflineEvaluator
from search.evaluators.targets import make_evaluator
from search.results import load
from search.results.studies import only_writer
from search.space.space import load_spaces

SHAPE = GemmShape(16, 2112, 7168)
TUNED = TileConfig(BLOCK_M=16, BLOCK_N=128, BLOCK_K=256, num_warps=4)


class Quiet:
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def start(self, *about: object) -> None: ...

    def note(self, text: str) -> None: ...

    def progress(self, progress: object) -> None: ...

    def study_done(self, progress: object) -> None:
        self.done.append(progress)


def request(target: str, **rest: object) -> SweepRequest:
    return SweepRequest((SHAPE,), target, jobs=1, **rest)  # type: ignore[arg-type]


def test_without_a_gpu_auto_searches_for_gfx950_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for target in ("auto", "gfx950"):
        made = make_evaluator(target)
        made.close()
        assert isinstance(made, OfflineEvaluator)
        assert made.device == GFX950


@pytest.mark.parametrize(
    "target, reason",
    [("local", "no GPU"), ("h200", "unknown target 'h200'"), ("replay:/nowhere.parquet", "no such file")],
)
def test_a_target_that_cannot_be_had_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, target: str, reason: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=reason):
        make_evaluator(target)


def test_a_sweep_that_cannot_begin_leaves_no_storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="no GPU"):
        run_sweep(request("local", results=tmp_path / "new"), Quiet())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("jobs", [-1, 0, 100_000])
def test_a_number_of_jobs_that_no_machine_has_is_refused(tmp_path: Path, jobs: int) -> None:
    asked = SweepRequest((SHAPE,), "gfx950", jobs=jobs, results=tmp_path / "new")
    with pytest.raises(InputError, match=rf"--jobs {jobs}: this machine lends \d+ cores; give 1 to \d+"):
        run_sweep(asked, Quiet())
    assert not (tmp_path / "new").exists()


def test_a_cache_that_cannot_be_written_is_named_and_not_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    asked = request("gfx950", cache=tmp_path / "file" / "cache", results=tmp_path / "results")
    with pytest.raises(InputError, match=r"file/cache: compiled kernels cannot be kept .*; set XDG_CACHE_HOME"):
        run_sweep(asked, Quiet())


@pytest.mark.parametrize("name", ["r", "r/studies.db", "sqlite:///{}/r/studies.db", "sqlite:///{}/link.db", "link.db"])
def test_one_sweep_at_a_time_writes_whatever_the_place_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("search.commands.sweep.make_evaluator", lambda *_, **__: FakeEvaluator())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "r" / "studies.db")
    with (
        only_writer(tmp_path / "r"),
        pytest.raises(InputError, match="another sweep is writing here"),
    ):
        run_sweep(request("gfx950", trials=1, storage=name.format(tmp_path)), Quiet())


def test_a_full_disk_ends_the_sweep_with_one_line_and_the_same_command_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("search.commands.sweep.make_evaluator", lambda *_, **__: FakeEvaluator())
    kept, store = optuna.Study.add_trial, []

    def until_full(study: optuna.Study, trial: Any) -> None:
        store.append(trial)
        if len(store) > 3:
            raise StorageInternalError("failed") from OSError(28, "No space left on device")
        kept(study, trial)

    asked = request("gfx950", trials=6, results=tmp_path, families=("fused",), sampler="random")
    monkeypatch.setattr(optuna.Study, "add_trial", until_full)
    with pytest.raises(InputError, match=r"could not be stored .*No space left.*the same command goes on"):
        run_sweep(asked, Quiet())
    monkeypatch.setattr(optuna.Study, "add_trial", kept)
    reporter = Quiet()
    run_sweep(asked, reporter)
    assert reporter.done[0].done == 6
    assert sum(reporter.done[0].outcomes.values()) == 6


TRITON_FAMILIES = ("fused", "fused_splitk_atomic", "fused_splitk_workspace", "staged_triton")


def test_few_trials_go_to_what_serves_then_near_winners_then_the_best_guess_for_each_family(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    evaluator = FakeEvaluator(capacity=1)
    monkeypatch.setattr("search.commands.sweep.make_evaluator", lambda *_, **__: evaluator)
    monkeypatch.setattr(table_sources, "tables_folder", lambda: tmp_path / "tables")
    (tmp_path / "tables").mkdir()
    made = Made(date(2026, 11, 29), "3.9.0", "2.13.0", "0" * 12, "by hand", "none")
    row = TableRow(16, 2112, 7168, "fused", TUNED, "predicted", True, made, predicted_us=5.0)
    write_table(tmp_path / "tables" / "gfx950.yaml", TunedTable(GFX950, (row,)))
    near = GemmShape(32, 2112, 7168)
    asked = SweepRequest((SHAPE, near), "gfx950", families=TRITON_FAMILIES, trials=7, results=tmp_path / "r")
    run_sweep(asked, Quiet())
    first, second = ([(c.family, c.config) for c in evaluator.asked if c.shape == s] for s in (SHAPE, near))
    assert first[:2] == [("fused", TUNED), default_choice(SHAPE, GFX950)]
    assert sorted(family for family, _ in first[2:6]) == sorted(TRITON_FAMILIES)
    assert first[6] == ("fused", next(iter(load_spaces(SPACES, ("fused",)).values())).defaults[0])
    assert min(first, key=lambda point: judge(Candidate(SHAPE, *point)).objective_us or math.inf) in second[:3]


def test_a_short_time_searches_a_few_shapes_and_the_same_sweep_goes_on_with_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def slow(candidate: Candidate) -> Evaluation:
        clock[0] += 1.0
        return judge(candidate)

    evaluator = FakeEvaluator(slow, capacity=2)
    monkeypatch.setattr("search.commands.sweep.make_evaluator", lambda *_, **__: evaluator)
    shapes = tuple(GemmShape(M, 2112, 7168) for M in (1, 2, 4, 8, 16, 32))
    asked = SweepRequest(shapes, "gfx950", families=("fused",), trials=50, time_budget_s=5.0, results=tmp_path)
    reporter = Quiet()
    first = run_sweep(asked, reporter)
    assert [progress.shape for progress in reporter.done] == [*shapes[:2]]
    assert all(progress.done >= 2 for progress in reporter.done)
    assert first.left == [*shapes[2:]]
    second = run_sweep(asked, reporter)
    assert [progress.shape for progress in reporter.done[2:]] == [*shapes[2:4]]
    assert second.left == [*shapes[4:]]
    assert set(second.studies) >= set(shapes[:4])  # what the first sweep found is shown as well


class SlowToStart(FakeEvaluator):
    """Its workers come up when a candidate waits for them, or never."""

    def __init__(self) -> None:
        super().__init__()
        self._asked = threading.Event()
        self.came_up: Future[bool] = Future()

    def start(self, timeout_s: float) -> None:
        self.came_up.set_result(self._asked.wait(min(timeout_s, 20.0)))

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        self._asked.set()
        return super().submit(candidate)


def test_candidates_are_chosen_while_the_workers_come_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    evaluator = SlowToStart()
    monkeypatch.setattr("search.commands.sweep.make_evaluator", lambda *_, **__: evaluator)
    run_sweep(SweepRequest((SHAPE,), "gfx950", families=("fused",), trials=2, results=tmp_path), Quiet())
    assert evaluator.came_up.result(timeout=30)


def test_a_row_that_another_compiler_made_is_proven_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shapes = tuple(GemmShape(M, 2112, 7168) for M in (1, 2, 4))
    monkeypatch.setattr(table_sources, "tables_folder", lambda: tmp_path)
    monkeypatch.setattr("search.commands.sweep.make_evaluator", lambda *_, **__: FakeEvaluator())
    now = Made(date(2026, 11, 29), triton.__version__, "2.13.0", FAMILIES["fused"].source_hash, "p", "s")
    for version, expected in ((triton.__version__, [1, 2, 4]), ("1.2.3", [2, 1, 4])):
        made = replace(now, triton=version)
        row = TableRow(2, 2112, 7168, "fused", TUNED, "predicted", True, made, predicted_us=5.0)
        write_table(tmp_path / "gfx950.yaml", TunedTable(GFX950, (row,)))
        reporter = Quiet()
        results = tmp_path / version
        run_sweep(SweepRequest(shapes, "gfx950", families=("fused",), trials=2, results=results), reporter)
        assert [progress.shape.M for progress in reporter.done] == expected


class ThreadPool:
    """A worker pool whose work is done in a thread of this process."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.threads = ThreadPoolExecutor(1)

    def start(self, timeout_s: float) -> None:
        pass

    def submit(self, task: Any, timeout_s: float) -> Any:
        return self.threads.submit(self.function, task)

    def prefer(self, futures: object) -> None:
        pass

    def close(self) -> None:
        self.threads.shutdown(cancel_futures=True)


def imaginary_work(task: Any) -> Any:
    """Times by BLOCK_N; finals repeat them."""
    if isinstance(task, StandBy):
        return FinalTimes(())
    if isinstance(task, FinalTask):
        times = [10.0 + one.config.BLOCK_N / 64 for one in task.candidates]
        return FinalTimes((tuple(times + times[:1] * task.dispatched),) * task.rounds)
    time.sleep(0.005)
    time_us = 10.0 + task.candidate.config.BLOCK_N / 64
    facts = {"protocol": "cold-graph-v1", "time_lo_us": time_us, "time_hi_us": time_us, "deterministic": True}
    return Evaluation("ok", "", "measured", time_us, facts)


def two_gpus() -> DeviceEvaluator:
    compiler = ThreadPool(lambda candidate: Compiled(0.1, False, 1, 1024))
    workers = [ThreadPool(imaginary_work), ThreadPool(imaginary_work)]
    return DeviceEvaluator(H200, jobs=1, gpus=(0, 1), compiler=compiler, workers=workers)  # type: ignore[arg-type]


def test_several_gpus_search_one_shape_each_and_every_study_ends_with_its_finals(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("search.commands.sweep.make_evaluator", lambda *_, **__: two_gpus())
    shapes = (SHAPE, GemmShape(4, 2880, 512), GemmShape(64, 3072, 1536))
    reporter = Quiet()
    run_sweep(SweepRequest(shapes, "local", families=("fused",), trials=12, results=tmp_path), reporter)
    frame = load(tmp_path)
    assert sorted(progress.done for progress in reporter.done) == [12, 12, 12]
    gpus = frame.groupby("study")["gpu_index"].unique()
    assert all(len(used) == 1 for used in gpus)
    assert {int(used[0]) for used in gpus} == {0, 1}
    selected = frame[frame["selected"].fillna(False)]
    assert len(selected) == 3
    fastest = frame.groupby("study")["time_us"].min()
    assert selected.set_index("study")["time_us"].sort_index().equals(fastest.sort_index())
    assert selected["confirmed_us"].notna().all()
    assert frame["baseline_us"].notna().any()


def test_ctrl_c_with_several_gpus_ends_every_search_and_keeps_the_trials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("search.commands.sweep.make_evaluator", lambda *_, **__: two_gpus())

    class Impatient(Quiet):
        def study_done(self, progress: Any) -> None:
            raise KeyboardInterrupt

    shapes = (SHAPE, GemmShape(4, 2880, 512), GemmShape(64, 3072, 1536))
    result = run_sweep(SweepRequest(shapes, "local", families=("fused",), trials=12, results=tmp_path), Impatient())
    assert result.interrupted
    assert len(load(tmp_path)) >= 12
