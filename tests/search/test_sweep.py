"""search.sweep: which evaluator a target means, and what a sweep says when it cannot go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
import torch
from fake_evaluator import FakeEvaluator
from optuna.exceptions import StorageInternalError

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.problem import GemmShape
from search.offline import OfflineEvaluator
from search.sweep import SweepRequest, make_evaluator, run_sweep

SHAPE = GemmShape(16, 2112, 7168)


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
        made = make_evaluator(request(target))
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
        make_evaluator(request(target))


def test_a_full_disk_ends_the_sweep_with_one_line_and_the_same_command_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("search.sweep.make_evaluator", lambda request: FakeEvaluator())
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
