"""Three sweeps on one PostgreSQL: the work of one, each point judged once, whoever is killed in between."""

from __future__ import annotations

import json
import os
import shlex
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import shared_writer
from hatchery import Hatchery, hatchery
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


@pytest.fixture(scope="module")
def sweeps() -> Iterator[Hatchery]:
    with hatchery(shared_writer) as made:
        yield made


def started(sweeps: Hatchery, count: int, log: Path, words: list[str]) -> list[int]:
    return sweeps.fork([[str(log), LAPSE_S, words]] * count)


def judged(log: Path) -> Judged:
    lines = log.read_text().splitlines() if log.exists() else []
    return [(process, json.dumps(point)) for process, *point in map(json.loads, lines)]


def wait_for(what: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not what():
        assert time.monotonic() < end_s
        time.sleep(0.02)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, sweeps: Hatchery) -> set[str]:
    """Points that one process judges."""
    folder = tmp_path_factory.mktemp("alone")
    started(sweeps, 1, folder / "log", [*SWEEP, str(folder / "studies.db")])
    assert sweeps.codes() == [0]
    return {point for _, point in judged(folder / "log")}


def stored(server: Server) -> list[str]:
    return [
        json.dumps([str(row["shape"]), point[0], point[1].to_dict()])
        for row in load(server.url).astype(object).to_dict("records") if (point := point_of(row)) is not None
    ]  # fmt: skip


def test_three_writers_do_the_work_of_one_when_one_of_them_is_killed(
    server: Server, alone: set[str], sweeps: Hatchery, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    victim, *others = started(sweeps, 3, log, [*SWEEP, server.url])
    wait_for(lambda: victim in {process for process, _ in judged(log)})
    os.kill(victim, signal.SIGKILL)
    assert sweeps.codes() == [-signal.SIGKILL, 0, 0]
    lived = Counter(point for process, point in judged(log) if process in others)
    assert max(lived.values()) == 1
    assert sorted(stored(server)) == sorted(alone)  # none lost, none twice, and no others


def test_a_server_that_is_killed_and_comes_back_costs_nothing(
    server: Server, alone: set[str], sweeps: Hatchery, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    started(sweeps, 2, log, [*SWEEP, server.url])
    wait_for(lambda: len(judged(log)) >= 6)
    server.kill()
    time.sleep(1.5)
    server.start()
    assert sweeps.codes() == [0, 0]
    assert max(Counter(point for _, point in judged(log)).values()) == 1
    assert sorted(stored(server)) == sorted(alone)


def test_the_job_of_the_docs_shares_its_shapes(server: Server, sweeps: Hatchery, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "several-machines.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("srun ")]
    line = line.replace("$STORAGE", server.url).replace("$SLURM_CPUS_PER_TASK", "1")
    words = [*shlex.split(line.partition("run_search.py ")[2]), "--trials", "2", "--families", "fused"]
    log = tmp_path / "log"
    started(sweeps, 2, log, words)
    assert sweeps.codes() == [0, 0]
    assert max(Counter(point for _, point in judged(log)).values()) == 1
    assert set(Counter(point[: point.index(",")] for point in stored(server)).values()) == {2}
    assert len(stored(server)) == 2 * len(load_shapes(ROOT / "configs" / "shapes" / "gpumode.yaml").shapes)
