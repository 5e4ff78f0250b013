"""search.report.bundle: what is sent home tells of the sweep, and nothing of who ran it where."""

from __future__ import annotations

import getpass
import json
import socket
import zipfile
from pathlib import Path

import pytest
from result_rows import measured, results

from kernels.errors import InputError
from search.report.bundle import anonymous, write_bundle
from search.results import load

CHECK = {"name": "cache", "status": "ok", "detail": "compiled kernels are kept in /home/jane/.cache/mxfp4", "cure": ""}


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/home/jane/a b/x.py: no such file", "…/a b/x.py: no such file"),
        ("reads ~/.cache/triton/ab.json, then ends", "reads …/ab.json, then ends"),
        ("postgresql://jane:secret@db/studies cannot be opened", "… cannot be opened"),
        ("16x2112x7168: 3.5 % of 4/5 on GPU 0", "16x2112x7168: 3.5 % of 4/5 on GPU 0"),
    ],
)
def test_paths_and_addresses_are_taken_out(text: str, clean: str) -> None:
    assert anonymous(text) == clean


def test_names_of_host_and_user_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "node17")
    monkeypatch.setattr(getpass, "getuser", lambda: "jane")
    assert anonymous("node17: jane's janet on node170") == "…: …'s janet on node170"


def test_a_bundle_is_read_as_the_results_that_it_holds(tmp_path: Path) -> None:
    broken = measured(9.0, M=64) | {"outcome": "crashed", "reason": "killed by SIGABRT in /home/jane/run.py"}
    frame = results(measured(9.0), broken)
    write_bundle(frame, tmp_path / "sweep.zip", [CHECK])
    found = load(tmp_path / "sweep.zip")
    assert list(found["time_us"]) == list(frame["time_us"])
    with zipfile.ZipFile(tmp_path / "sweep.zip") as bundle:
        assert sorted(bundle.namelist()) == ["environment.json", "faults.txt", "results.parquet"]
        assert "crashed: killed by SIGABRT in …/run.py" in bundle.read("faults.txt").decode()
        checks = json.loads(bundle.read("environment.json"))["checks"]
        assert checks == [{**CHECK, "detail": "compiled kernels are kept in …/mxfp4"}]
        assert all(b"jane" not in bundle.read(name) for name in bundle.namelist())


def test_another_name_and_empty_results_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a bundle is a \.zip file"):
        write_bundle(results(measured(9.0)), tmp_path / "sweep.tar", [])
    with pytest.raises(InputError, match="hold no trial"):
        write_bundle(results(), tmp_path / "sweep.zip", [])


def test_a_zip_file_of_something_else_is_no_bundle(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("a.txt", "a")
    with pytest.raises(InputError, match="no bundle of `report --bundle`"):
        load(tmp_path / "other.zip")
