"""Three sweeps on one PostgreSQL: the work of one, each point judged once, whoever is killed in between."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import shared_writer
from postgres import Server, running_server

from search.results import load
from search.results.record import point_of
from search.space.shapes import load_shapes

ROOT = Path(__file__).resolve().parents[3]
LAPSE_S = 4.0
SWEEP = [
    "sweep",
    "16x512x2880",
    "16x2880x512",
    "--families",
    "fused",
    "--trials",
    "12",
    "--until",
    "0",
    "--sampler",
    "grid",
    "--storage",
]
WAIT_S = 240.0
Judged = list[tuple[int, str]]  # process and point


@pytest.fixture
def server() -> Iterator[Server]:
    with running_server() as running:
        yield running


def start(log: Path, words: list[str]) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    return subprocess.Popen(
        [sys.executable, shared_writer.__file__, str(log), str(LAPSE_S), *words],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def judged(log: Path) -> Judged:
    lines = log.read_text().splitlines() if log.exists() else []
    return [(process, json.dumps(point)) for process, *point in map(json.loads, lines)]


def wait_for(what: Callable[[], bool], writers: list[subprocess.Popen[bytes]]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end_s
        assert all(writer.poll() is None for writer in writers)
        time.sleep(0.05)


def ended(process: subprocess.Popen[bytes]) -> None:
    _, said = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, said.decode()[-2000:]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Points that one process judges."""
    folder = tmp_path_factory.mktemp("alone")
    ended(start(folder / "log", [*SWEEP, str(folder / "studies.db")]))
    return {point for _, point in judged(folder / "log")}


def stored(server: Server) -> list[str]:
    return [
        json.dumps([str(row["shape"]), point[0], point[1].to_dict()])
        for row in load(server.url).astype(object).to_dict("records") if (point := point_of(row)) is not None
    ]  # fmt: skip


# Not yet part of the gate: about one run in four ends with another number of trials than one process would have.
@pytest.mark.slow
def test_three_writers_do_the_work_of_one_when_one_of_them_is_killed(
    server: Server, alone: set[str], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    writers = [start(log, [*SWEEP, server.url]) for _ in range(3)]
    wait_for(lambda: len({process for process, _ in judged(log)}) == 3, writers)
    victim = writers[0]
    victim.send_signal(signal.SIGKILL)
    for writer in writers[1:]:
        ended(writer)
    assert victim.wait() == -signal.SIGKILL
    lived = Counter(point for process, point in judged(log) if process != victim.pid)
    assert max(lived.values()) == 1
    assert len(stored(server)) == len(set(stored(server)))  # none twice
    # None lost. Which ones may differ: what the victim held comes free when the others have gone on to the next points.
    assert len(stored(server)) == len(alone)


def test_a_server_that_is_killed_and_comes_back_costs_nothing(server: Server, alone: set[str], tmp_path: Path) -> None:
    log = tmp_path / "log"
    writers = [start(log, [*SWEEP, server.url]) for _ in range(2)]
    wait_for(lambda: len(judged(log)) >= 6, writers)
    server.kill()
    time.sleep(1.5)
    server.start()
    for writer in writers:
        ended(writer)
    assert max(Counter(point for _, point in judged(log)).values()) == 1
    assert sorted(stored(server)) == sorted(alone)


def test_the_job_of_the_docs_shares_its_shapes(server: Server, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "several-machines.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("srun ")]
    line = line.replace("$STORAGE", server.url).replace("$SLURM_CPUS_PER_TASK", "1")
    words = [*shlex.split(line.partition("run_search.py ")[2]), "--trials", "2", "--families", "fused"]
    log = tmp_path / "log"
    for task in [start(log, words) for _ in range(2)]:
        ended(task)
    assert max(Counter(point for _, point in judged(log)).values()) == 1
    assert set(Counter(point[: point.index(",")] for point in stored(server)).values()) == {2}
    assert len(stored(server)) == 2 * len(load_shapes(ROOT / "configs" / "shapes" / "gpumode.yaml").shapes)
