"""What Optuna's own tools show, against the real dashboard where it is installed."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
from made_records import predicted, record

from kernels.device import GFX950
from kernels.problem import GemmShape
from search.results.dashboard import describe_study, main_facts
from search.results.record import RECORD
from search.results.storage import open_storage

SHAPE = GemmShape(16, 2112, 7168)


@pytest.fixture
def study(tmp_path: Path) -> optuna.Study:
    storage = open_storage(tmp_path, create=True)
    study = optuna.create_study(storage=storage, study_name="gfx950-256cu/16x2112x7168")
    describe_study(study, GFX950, SHAPE, "offline-gfx950-t2")
    trial = study.ask()
    trial.suggest_int("BLOCK_M", 4, 256)
    made = record(predicted(9.0, vgprs=128))
    for name, value in {RECORD: made, **main_facts(made)}.items():
        trial.set_user_attr(name, value)
    study.tell(trial, 9.0)
    return study


def test_a_study_names_its_objective_device_and_shape(study: optuna.Study) -> None:
    assert study.metric_names == ["predicted us"]
    assert study.user_attrs == {
        "device": "gfx950-256cu", "shape": "16x2112x7168", "M": 16, "N": 2112, "K": 7168,
        "protocol": "offline-gfx950-t2",
    }  # fmt: skip


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
