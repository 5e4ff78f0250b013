"""What Optuna's own tools show, against the real dashboard where it is installed."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
from made_records import predicted, record

from kernels.device import GFX950
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from search.evaluation import Evaluation
from search.results import load, save
from search.results.dashboard import describe_study
from search.results.storage import open_storage
from search.results.trials import KeptTrials

SHAPE = GemmShape(16, 2112, 7168)


@pytest.fixture
def study(tmp_path: Path) -> optuna.Study:
    """A sweep's study as ``inspect --to`` writes it for the dashboard."""
    name = "gfx950-256cu/16x2112x7168"
    kept = optuna.create_study(storage=open_storage(tmp_path, create=True), study_name=name)
    KeptTrials(kept).add(record(predicted(9.0, vgprs=128, protocol="offline-gfx950-t2")) | {"study": name})
    KeptTrials(kept).add(record(Evaluation("compile_error", "no such word"), TileConfig(BLOCK_M=64)) | {"study": name})
    save(load(tmp_path), tmp_path / "dashboard.db")
    return optuna.load_study(storage=open_storage(tmp_path / "dashboard.db", create=False), study_name=name)


def test_a_study_names_its_objective_device_and_shape(study: optuna.Study) -> None:
    assert study.metric_names == ["predicted us"]
    assert study.user_attrs == {
        "device": "gfx950-256cu", "shape": "16x2112x7168", "M": 16, "N": 2112, "K": 7168,
        "protocol": "offline-gfx950-t2",
    }  # fmt: skip


def test_parameters_are_there_with_a_range_that_holds_them(study: optuna.Study) -> None:
    first, second = study.trials
    assert first.params == {"family": "fused", **TileConfig().to_dict()}
    assert (second.params["BLOCK_M"], second.state) == (64, optuna.trial.TrialState.PRUNED)
    assert first.value == 9.0 and first.distributions["BLOCK_M"] == second.distributions["BLOCK_M"]


def test_no_second_file_is_left(study: optuna.Study, tmp_path: Path) -> None:
    assert {path.name for path in tmp_path.iterdir()} == {"studies.db", "dashboard.db"}


def test_optuna_says_nothing_while_the_file_is_written(
    study: optuna.Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    optuna.logging.set_verbosity(optuna.logging.INFO)  # as it is where no sweep ran before
    optuna.logging.enable_propagation()
    try:
        save(load(tmp_path), tmp_path / "dashboard.db")
    finally:
        optuna.logging.disable_propagation()
    assert caplog.records == []


def test_a_measured_study_says_so() -> None:
    study = optuna.create_study()
    describe_study(study, GFX950, SHAPE, "cold-graph-v1")
    assert study.metric_names == ["measured us"]


def test_the_main_facts_of_a_trial_are_attributes_of_their_own(study: optuna.Study) -> None:
    attributes = study.trials[0].user_attrs
    assert (attributes["outcome"], attributes["evidence"], attributes["vgprs"]) == ("ok", "predicted", 128)
    assert "reason" not in attributes


def test_the_dashboard_shows_them(study: optuna.Study) -> None:
    dashboard = pytest.importorskip("optuna_dashboard", reason="pip install optuna-dashboard")
    app = dashboard.wsgi(study._storage)

    def get(path: str) -> dict[str, object]:
        status: list[str] = []
        environ = {
            "REQUEST_METHOD": "GET", "PATH_INFO": path, "QUERY_STRING": "", "SERVER_NAME": "localhost",
            "SERVER_PORT": "80", "wsgi.url_scheme": "http", "HTTP_ACCEPT": "application/json",
        }  # fmt: skip
        body = b"".join(app(environ, lambda code, headers, *rest: status.append(code)))
        assert status[0].startswith("200"), status
        content: dict[str, object] = json.loads(body)
        return content

    shown = json.dumps(get(f"/api/studies/{study._study_id}"))
    assert "predicted us" in shown and "16x2112x7168" in shown and '"vgprs"' in shown
