"""search.workers.pool: one bad task costs one task."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from kernels.errors import InputError
from search.workers import pool as pool_module
from search.workers.pool import (
    NO_GPU_CORE,
    STARTING,
    UNSEEN_END,
    WorkerDied,
    WorkerPool,
    WorkerStuckError,
    WorkerTimedOut,
)

ROOT = Path(__file__).resolve().parents[3]


class TwoWordsError(Exception):
    """Cannot be unpickled: that gives it one argument."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


ERRORS = {
    "bug": ZeroDivisionError("a bug in the evaluator"),
    "full disk": InputError("/tmp: No space left on device"),
    "odd error": TwoWordsError("two", "words"),
}


FACTS: dict[str, Callable[[], int]] = {
    "frozen": gc.get_freeze_count,
    "young objects": lambda: gc.get_threshold()[0],
    "core limit": lambda: resource.getrlimit(resource.RLIMIT_CORE)[0],
    "parent": os.getppid,
}


def act(task: str) -> str:
    """What a worker does: the task names a way to behave."""
    if task.startswith("/"):
        with subprocess.Popen(["sleep", "600"]) as compiler:
            Path(task).write_text(str(compiler.pid))
    if task in ERRORS:
        raise ERRORS[task]
    if task == "abort":
        os.abort()
    if task == "exit":
        os._exit(3)
    if task == "hang":
        time.sleep(600)
    if task == "fault":
        print("loading\nMemory access fault by GPU node-2 on address 0x7f00. Reason: unknown.\nbye", file=sys.stderr)
        os.abort()
    if task in FACTS:
        return str(FACTS[task]())
    if task in os.environ:
        return os.environ[task]
    return f"{task} by {os.getpid()}"


@pytest.fixture(scope="module", params=[None, __name__], ids=["own imports", "forked"])
def pool(request: pytest.FixtureRequest) -> Iterator[WorkerPool[str, str]]:
    workers = WorkerPool(act, count=1, fork=request.param)
    yield workers
    workers.close()


def answers(pool: WorkerPool[str, str]) -> str:
    return pool.submit("work", timeout_s=60).result().partition(" by ")[0]


def test_a_worker_is_kept_between_tasks(pool: WorkerPool[str, str]) -> None:
    first, second = (pool.submit("work", timeout_s=60).result() for _ in range(2))
    assert first == second


def test_tasks_that_wait_run_in_the_order_that_is_preferred_and_the_rest_keeps_its_place() -> None:
    pool: WorkerPool[str, str] = WorkerPool(act, 1)
    ended: list[str] = []

    def note(task: str, _: object) -> None:
        ended.append(task)

    try:
        futures = {task: pool.submit(task, 60.0) for task in "abcde"}  # whose process takes longer to start
        for task, future in futures.items():
            future.add_done_callback(partial(note, task))
        pool.prefer([futures[task] for task in "edb"])
        wait(futures.values())
    finally:
        pool.close()
    assert ended == list("aecdb")


def test_the_garbage_collector_of_a_worker_skips_what_was_loaded_at_its_start(pool: WorkerPool[str, str]) -> None:
    assert int(pool.submit("frozen", timeout_s=60).result()) > 1000
    assert int(pool.submit("young objects", timeout_s=60).result()) > 10 * gc.get_threshold()[0]


def test_forked_workers_see_the_environment_of_their_parent_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)  # which the process to fork from is given
    told = []
    for value in ("first", "second"):
        monkeypatch.setenv("MXFP4_TEST_VALUE", value)
        monkeypatch.delenv("LD_PRELOAD", raising=False)
        forked = WorkerPool(act, 1, fork=__name__)
        told += [forked.submit(name, timeout_s=60).result() for name in ("MXFP4_TEST_VALUE", "LD_PRELOAD")]
        forked.close()
    assert [words.partition(" by ")[0] for words in told] == ["first", "LD_PRELOAD", "second", "LD_PRELOAD"]
    assert "OPENBLAS_NUM_THREADS" not in os.environ


def test_started_workers_serve_at_once_and_each_is_started_once() -> None:
    pool = WorkerPool(act, count=2)
    pool.start()
    pool.start()  # changes nothing
    answers = {pool.submit("work", timeout_s=0.5).result() for _ in range(20)}
    pool.close()
    assert 1 <= len(answers) <= 2


def exit_at_once() -> None:
    os._exit(7)


def test_a_pool_whose_workers_cannot_start_says_so_with_the_first_task() -> None:
    pool = WorkerPool(act, count=1, initialize=exit_at_once)
    pool.start()
    with pytest.raises(WorkerDied, match="code 7"):
        pool.submit("work", timeout_s=60).result()
    pool.close()


@pytest.mark.parametrize("task, how", [("abort", "SIGABRT"), ("exit", "code 3")])
def test_a_worker_that_dies_fails_its_own_task_only(pool: WorkerPool[str, str], task: str, how: str) -> None:
    with pytest.raises(WorkerDied, match=how):
        pool.submit(task, timeout_s=60).result()
    assert answers(pool) == "work"


def test_a_worker_that_hangs_is_killed_and_replaced(pool: WorkerPool[str, str]) -> None:
    with pytest.raises(WorkerTimedOut):
        pool.submit("hang", timeout_s=0.5).result()
    assert answers(pool) == "work"


def test_a_bug_reaches_the_caller_as_itself(pool: WorkerPool[str, str]) -> None:
    with pytest.raises(ZeroDivisionError, match="a bug"):
        pool.submit("bug", timeout_s=60).result()
    assert answers(pool) == "work"


@pytest.mark.parametrize(
    ("task", "error", "told"), [("bug", ZeroDivisionError, True), ("full disk", InputError, False)]
)
def test_only_a_bug_leaves_a_traceback(
    task: str, error: type[Exception], told: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    workers = WorkerPool(act, count=1)
    with pytest.raises(error):
        workers.submit(task, timeout_s=60).result()
    assert workers.submit("work", timeout_s=60).result().startswith("work by")
    workers.close()
    assert ("Traceback" in capfd.readouterr().err) is told


def test_a_worker_killed_from_outside_fails_its_own_task_only(pool: WorkerPool[str, str]) -> None:
    pid = int(pool.submit("work", timeout_s=60).result().rpartition(" ")[2])
    future = pool.submit("hang", timeout_s=60)
    while not future.running():
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerDied, match="SIGKILL"):
        future.result()
    assert answers(pool) == "work"


def gone(pid: int) -> bool:
    """Whether the process ends within some seconds; a zombie has ended."""
    for _ in range(200):
        try:
            status = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True
        if status.rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_workers_outlive_the_process_that_they_were_forked_from() -> None:
    pool = WorkerPool(act, count=1, fork=__name__)
    worker = int(pool.submit("work", timeout_s=60).result().rpartition(" ")[2])
    server = int(pool.submit("parent", timeout_s=60).result())
    os.kill(server, signal.SIGKILL)
    assert gone(server)
    assert pool.submit("work", timeout_s=60).result() == f"work by {worker}"
    with pytest.raises(WorkerTimedOut):
        pool.submit("hang", timeout_s=0.5).result()
    assert gone(worker)
    assert int(pool.submit("parent", timeout_s=60).result()) != server
    pool.close()


def test_of_a_worker_that_ends_after_the_process_that_it_was_forked_from_nobody_knows_how() -> None:
    pool = WorkerPool(act, count=1, fork=__name__)
    os.kill(int(pool.submit("parent", timeout_s=60).result()), signal.SIGKILL)
    with pytest.raises(WorkerDied, match=UNSEEN_END):
        pool.submit("abort", timeout_s=60).result()
    assert answers(pool) == "work"
    pool.close()


@pytest.mark.parametrize("fork", [None, __name__])
def test_where_no_process_can_be_started_each_task_says_so(fork: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(method: str) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(multiprocessing, "get_context", refuse)
    pool = WorkerPool(act, count=1, fork=fork)
    pool.start()
    for _ in range(2):
        with pytest.raises(InputError, match=r"cannot be started: .Errno 11. Resource"):
            pool.submit("work", timeout_s=60).result(timeout=30)
    monkeypatch.undo()
    assert answers(pool) == "work"
    pool.close()


@pytest.mark.parametrize("fork", [None, __name__])
def test_the_environment_to_fork_from_reaches_no_worker(fork: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    pool = WorkerPool(act, count=1, fork=fork)
    with STARTING:
        os.environ["PYTHONSAFEPATH"] = "1"
        future = pool.submit("PYTHONSAFEPATH", timeout_s=60)
        time.sleep(0.3)
        del os.environ["PYTHONSAFEPATH"]
    assert future.result().startswith("PYTHONSAFEPATH by")  # not set
    pool.close()


def test_closing_cancels_what_waits_and_kills_what_runs() -> None:
    pool = WorkerPool(act, count=1)
    answers(pool)
    runs, waits = (pool.submit("hang", timeout_s=600) for _ in range(2))
    while not runs.running():
        time.sleep(0.01)
    start = time.monotonic()
    pool.close()
    assert time.monotonic() - start < 30
    assert waits.cancelled()
    with pytest.raises(WorkerDied):
        runs.result(timeout=1)


PARENT = """
import sys
from test_worker import act
from search.workers.pool import WorkerPool
if __name__ == "__main__":
    pool = WorkerPool(act, count=1, fork={fork!r})
    print(pool.submit("work", timeout_s=60).result().rpartition(" ")[2], flush=True)
    pool.submit("hang", timeout_s=600).result()
"""


ACTING = "import os\nimported_by = os.getpid()\ndef act(task):\n    return imported_by, os.getpid()\n"
FORKED = """
from acting import act, imported_by
from search.workers.pool import WorkerPool
if __name__ == "__main__":
    pool = WorkerPool(act, count=3, fork="acting")
    pool.start()
    answers = {pool.submit("", timeout_s=60).result() for _ in range(9)}
    pool.close()
    importers, workers = map(set, zip(*answers))
    print(len(importers), imported_by in importers, importers & workers)
"""


def started(
    tmp_path: Path, script: str, *, folder: Path | None = None, variables: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[str]:
    path = tmp_path / "parent.py"
    path.write_text(script)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{Path(__file__).parent}:{tmp_path}", **variables}
    return subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        cwd=folder or tmp_path, start_new_session=True,
    )  # fmt: skip


@pytest.mark.parametrize("variables", [{}, {"": "a name that can be inherited and not set"}], ids=["plain", "odd"])
def test_forked_workers_share_the_imports_of_one_process(tmp_path: Path, variables: dict[str, str]) -> None:
    (tmp_path / "acting.py").write_text(ACTING)
    said, errors = started(tmp_path, FORKED, variables=variables).communicate(timeout=120)
    assert (said.split(maxsplit=2), errors) == (["1", "False", "set()\n"], "")


IDLE = """
import time
from pathlib import Path
from search.workers.pool import WorkerPool
if __name__ == "__main__":
    pool = WorkerPool(len, count=1, fork="acting")
    end_s = time.monotonic() + 60
    while not Path("imported").exists() and time.monotonic() < end_s:
        time.sleep(0.05)
    print(Path("imported").exists())
    pool.close()
"""


def test_the_process_to_fork_from_imports_while_there_is_no_task(tmp_path: Path) -> None:
    (tmp_path / "acting.py").write_text("open('imported', 'w').close()\n")
    assert started(tmp_path, IDLE).communicate(timeout=120) == ("True\n", "")


EARLY = """
import threading, time
from pathlib import Path
from search.workers.pool import WorkerPool
if __name__ == "__main__":
    pool = WorkerPool(len, count=2, fork="acting")
    threading.Thread(target=pool.start, daemon=True).start()
    while not Path("importing").exists():
        time.sleep(0.05)
    pool.close()
    print("closed")
"""


def test_closing_does_not_wait_for_what_the_process_to_fork_from_imports(tmp_path: Path) -> None:
    (tmp_path / "acting.py").write_text("import time\nopen('importing', 'w').close()\ntime.sleep(600)\n")
    assert started(tmp_path, EARLY).communicate(timeout=60) == ("closed\n", "")


def test_what_lies_in_the_current_folder_is_not_imported_for_workers(tmp_path: Path) -> None:
    (tmp_path / "acting.py").write_text(ACTING)
    other = tmp_path / "other"
    (other / "search").mkdir(parents=True)  # imported, it would hide the project's
    (other / "acting.py").write_text("def act(task):\n    raise AssertionError('other code')\n")
    said, errors = started(tmp_path, FORKED, folder=other).communicate(timeout=120)
    assert (said.split()[1:], errors) == (["False", "set()"], "")


def test_where_the_temporary_folder_has_too_long_a_path_each_worker_has_its_own_imports(tmp_path: Path) -> None:
    (tmp_path / "acting.py").write_text(ACTING)
    long = tmp_path / ("x" * 100)
    long.mkdir()
    said, errors = started(tmp_path, FORKED, variables={"TMPDIR": str(long)}).communicate(timeout=120)
    assert (said.split()[1], errors) == ("False", "")
    assert said.split(maxsplit=2)[2] != "set()\n"


def test_where_the_process_to_fork_from_cannot_start_each_worker_has_its_own_imports(tmp_path: Path) -> None:
    dies = "import sys\nif sys.argv[0] == '-c':\n    sys.exit(1)\n"
    (tmp_path / "acting.py").write_text(dies + ACTING)
    said, errors = started(tmp_path, FORKED).communicate(timeout=120)
    assert (said.split()[1], errors) == ("False", "")
    assert said.split(maxsplit=2)[2] != "set()\n"


INTERRUPTED = """
import os, signal, time
if "first" not in os.environ:
    os.environ["first"] = str(os.getpid())
if os.environ["first"] != str(os.getpid()):
    time.sleep(1)
    os.kill(0, signal.SIGINT)
    time.sleep(0.5)
def act(task):
    return "done"
if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: None)
    from acting import act
    from search.workers.pool import WorkerPool
    pool = WorkerPool(act, count=1, fork={fork!r})
    print(pool.submit("", timeout_s=60).result())
    pool.close()
"""


@pytest.mark.parametrize("fork", [None, "acting"])
def test_an_interrupt_while_processes_start_is_for_the_parent_alone(tmp_path: Path, fork: str | None) -> None:
    script = INTERRUPTED.format(fork=fork)
    (tmp_path / "acting.py").write_text(script)
    assert started(tmp_path, script).communicate(timeout=120) == ("done\n", "")


@pytest.mark.parametrize("task", ["odd error", lambda: "a task that cannot be pickled"])
def test_what_cannot_be_pickled_fails_its_own_task_only(pool: WorkerPool[Any, str], task: object) -> None:
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pool.submit(task, timeout_s=60).result(timeout=60)
    assert answers(pool) == "work"


def pid_in(path: Path) -> int:
    while not path.exists() or not path.read_text():
        time.sleep(0.02)
    return int(path.read_text())


@pytest.mark.parametrize("fork", [None, __name__])
@pytest.mark.parametrize("end", ["time limit", "closing"])
def test_what_a_worker_started_ends_with_it(tmp_path: Path, fork: str | None, end: str) -> None:
    pool = WorkerPool(act, count=1, fork=fork)
    answers(pool)
    future = pool.submit(str(tmp_path / "pid"), timeout_s=3 if end == "time limit" else 600)
    compiler = pid_in(tmp_path / "pid")
    if end == "time limit":
        assert isinstance(future.exception(), WorkerTimedOut)
    pool.close()
    assert gone(compiler)


@pytest.mark.parametrize("fork", [None, __name__])
def test_what_a_worker_started_does_not_outlive_a_killed_parent(tmp_path: Path, fork: str | None) -> None:
    script = PARENT.format(fork=fork).replace('"hang"', repr(str(tmp_path / "pid")))
    with started(tmp_path, script) as parent:
        compiler = pid_in(tmp_path / "pid")
        parent.kill()
    assert gone(compiler)


@pytest.mark.parametrize("fork", [None, __name__])
def test_no_worker_outlives_a_killed_parent(tmp_path: Path, fork: str | None) -> None:
    parent = started(tmp_path, PARENT.format(fork=fork))
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(worker)


def test_a_worker_that_faults_leaves_no_core_of_the_host_or_of_its_gpu(
    pool: WorkerPool[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(NO_GPU_CORE, raising=False)
    assert resource.getrlimit(resource.RLIMIT_CORE)[1] != 0, "this machine allows no cores: nothing is shown"
    assert pool.submit("core limit", timeout_s=60).result().partition(" by ")[0] == "0"
    assert pool.submit(NO_GPU_CORE, timeout_s=60).result() == "1"


def test_a_user_who_asks_for_gpu_cores_gets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(NO_GPU_CORE, "0")
    own = WorkerPool(act, count=1)
    assert own.submit(NO_GPU_CORE, timeout_s=60).result() == "0"
    own.close()


def memory_fault(text: str) -> str | None:
    return next((line for line in text.splitlines() if line.startswith("Memory access fault")), None)


def test_the_line_that_tells_of_a_fault_is_the_reason_and_stays_off_the_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    own = WorkerPool(act, count=1, fault_line=memory_fault)
    with pytest.raises(WorkerDied, match="SIGABRT: Memory access fault by GPU node-2 on address 0x7f00"):
        own.submit("fault", timeout_s=60).result()
    assert capfd.readouterr().err == ""
    with pytest.raises(ZeroDivisionError):
        own.submit("bug", timeout_s=60).result()
    own.close()
    assert "ZeroDivisionError: a bug in the evaluator" in capfd.readouterr().err


def test_a_process_that_does_not_die_of_being_killed_is_left_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    own = WorkerPool(act, count=1)
    pid = int(own.submit("work", timeout_s=60).result().rpartition(" ")[2])
    with monkeypatch.context() as held:  # as the driver holds it whose GPU hangs
        held.setattr("search.workers.pool.KILL_TIMEOUT_S", 0.1)
        held.setattr("search.workers.pool._kill_group", lambda leader: None)
        held.setattr("multiprocessing.process.BaseProcess.kill", lambda process: None)
        with pytest.raises(WorkerStuckError, match="does not end although it was killed"):
            own.submit("hang", timeout_s=0.2).result(timeout=30)
    assert pid not in {child.pid for child in multiprocessing.active_children()}  # Python's end does not wait for it
    os.kill(pid, signal.SIGKILL)
    own.close()


@pytest.mark.parametrize("error", [RuntimeError("unforeseen"), AttributeError("of the library"), ValueError("odd")])
def test_an_unforeseen_exception_is_the_tasks_answer_and_the_next_task_is_served(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = pool_module._Worker._start
    failures = [error, error]

    def start(self: Any, *given: Any, **options: Any) -> None:
        if failures:
            raise failures.pop()
        started(self, *given, **options)

    monkeypatch.setattr(pool_module._Worker, "_start", start)
    pool: WorkerPool[Any, Any] = WorkerPool(len, 1)
    try:
        pool.start(20)
        with pytest.raises(type(error), match=str(error)):
            pool.submit([1], 5).result(20)
        assert pool.submit([1, 2], 60).result(60) == 2
    finally:
        pool.close()
