"""search.terminal: Ctrl-C ends a search even where a callback would have swallowed an exception."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_evaluator import FakeEvaluator, judge
from small_search import SHAPE, open_study, points, record

from search.evaluation import Candidate, Evaluation
from search.study.study import StudyRun
from search.terminal import EXIT_INTERRUPTED, stop_on_interrupt

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """A process that a shell started in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_first_interrupt_is_a_wish_and_the_second_an_exception() -> None:
    with stop_on_interrupt() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.is_set()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupted_search_keeps_what_was_done(tmp_path: Path) -> None:
    def interrupt_at_five(candidate: Candidate) -> Evaluation:
        if len(evaluator.asked) == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return judge(candidate)

    evaluator = FakeEvaluator(interrupt_at_five, capacity=1)
    with stop_on_interrupt() as stop:
        run = StudyRun(open_study(tmp_path), SHAPE, evaluator, points(), record, stop=stop)
        run.run(sampler="random", seed=0, trials=30)
    assert len(open_study(tmp_path).trials) == 5
    assert len(evaluator.asked) == 5


def test_an_interrupt_while_the_program_loads_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")  # among the first that it imports
    command = [sys.executable, str(ROOT / "run_search.py"), "--version"]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "interrupted\n")


def test_elsewhere_than_in_the_main_thread_nothing_is_installed() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[bool] = []

    def work() -> None:
        with stop_on_interrupt() as stop:
            seen.append(stop.is_set())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
    assert signal.getsignal(signal.SIGINT) is before
