"""benchmarks/gpu_processes.py on machines with AMD's driver, with no tool at all; and real children."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from gpu_processes import UNKNOWN, descendants, gpu_processes


def test_amds_driver_lists_processes_without_a_tool(tmp_path: Path) -> None:
    for pid in ("4242", "17"):
        (tmp_path / pid).mkdir()
    assert gpu_processes(tmp_path) == "17\n4242"


def test_a_machine_without_any_tool_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpu_processes(tmp_path / "none") == UNKNOWN


def test_children_and_theirs_are_found() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"], stdout=subprocess.PIPE) as shell:
        while not (grandchildren := descendants(str(shell.pid))):
            assert shell.poll() is None
        assert {str(shell.pid), *grandchildren} <= set(descendants(str(os.getpid())))
        for pid in grandchildren:
            os.kill(int(pid), 15)
    assert descendants(str(shell.pid)) == []
