"""Disposable worker processes: a candidate that aborts, hangs or kills its process hurts nobody else."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from kernels.errors import InputError
from search.workers.allocator import calm_collector, fast_malloc

ItemT = TypeVar("ItemT")
TaskT = TypeVar("TaskT")
AnswerT = TypeVar("AnswerT")
FaultLine = Callable[[str], "str | None"]  # a process's error stream to its telling line
STARTING: Final = threading.Lock()  # held while the environment is that of the process to fork from
SINGLE_THREADED: Final = {"OPENBLAS_NUM_THREADS": "1"}  # a process with threads cannot be forked safely
KILL_TIMEOUT_S = 30.0  # a driver that resets a hung GPU takes about 10
# Without it ROCr writes what a faulting process has mapped of the GPU, gigabytes, wherever the core limit allows, and
# may hang in that. Source: ROCR-Runtime, amd_core_dump.cpp and runtime.cpp.
NO_GPU_CORE: Final = "HSA_DISABLE_COREDUMP_ON_EXCEPTION"
START_TIMEOUT_S = 120.0  # importing torch and Triton on a loaded machine
SIGNALS: Final = {number.value: number.name for number in signal.Signals}
UNSEEN = 255  # exit code of a forked process where the one it was forked from ended before it (popen_forkserver.py)
CLOSED = "the pool was closed"
LOOK_S = 0.1  # how often a pool that closes looks whether a thread waits for what still imports
UNSEEN_END = "the process that the worker was forked from is gone"


class WorkerDied(Exception):
    """The worker's process ended while it ran the task; the message says how."""


class WorkerTimedOut(Exception):
    """The task exceeded its time limit; its worker was killed."""


class WorkerStuckError(WorkerTimedOut):
    """The worker's process was killed and does not end: its GPU's driver holds it. It is left alone."""


@dataclass(frozen=True, eq=False)
class _Queued(Generic[TaskT, AnswerT]):
    task: TaskT
    timeout_s: float
    future: Future[AnswerT]


def arrange(queue: deque[ItemT], rank: Callable[[ItemT], int | None]) -> None:
    """Put the items of ``queue`` that have a rank in its order, into the places that they have among the others."""
    ranks = {place: found for place, item in enumerate(queue) if (found := rank(item)) is not None}
    items = [queue[place] for place in sorted(ranks, key=ranks.__getitem__)]
    for place, item in zip(ranks, items, strict=True):
        queue[place] = item


class WorkerPool(Generic[TaskT, AnswerT]):
    """``count`` spawned processes that each run one task at a time.

    Args:
        function: Runs in the workers: task to answer; picklable. What it raises reaches the task's future.
        count: Processes. They start with their first task; the one to fork from starts at once.
        initialize: Runs once in each new process before its first task; picklable.
        fault_line: Finds in what a process wrote to its error stream the line that says why it ended; the stream then
            goes to a file, and what is not such a line to this process's error stream once the process has ended.
        fork: Name of a module: fork the processes from one that has imported it, instead of having each import what it
            needs; not for processes that use a GPU. They also get the faster ``malloc`` of
            :mod:`search.workers.allocator`. None: start each on its own.
    """

    def __init__(
        self,
        function: Callable[[TaskT], AnswerT],
        count: int,
        initialize: Callable[[], None] | None = None,
        *,
        fork: str | None = None,
        fault_line: FaultLine | None = None,
    ) -> None:
        if count < 1:
            raise ValueError(f"count = {count} must be at least 1")
        self._function = function
        self._initialize = initialize
        self._fork = fork
        self._fault_line = fault_line
        self._queue: deque[_Queued[TaskT, AnswerT] | threading.Barrier | None] = deque()
        self._queued = threading.Condition()
        self._closed = threading.Event()
        self._starting = 0  # threads that wait for a process to be started
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Bring every process up, before the tasks that are queued later; give up waiting after ``timeout_s``."""
        started = threading.Barrier(len(self._threads) + 1)  # also keeps a thread from starting twice
        self._put(*[started] * len(self._threads))
        with suppress(threading.BrokenBarrierError):
            started.wait(timeout_s)

    def submit(self, task: TaskT, timeout_s: float) -> Future[AnswerT]:
        """Queue ``task``; the future raises WorkerDied, WorkerTimedOut, or what the function raised."""
        queued = _Queued[TaskT, AnswerT](task, timeout_s, Future())
        with self._queued:
            if self._closed.is_set():
                raise RuntimeError("the pool is closed")
            self._put(queued)
        return queued.future

    def prefer(self, futures: Sequence[Future[AnswerT]]) -> None:
        """Run those of these tasks that wait in this order, in the places that they have among the others."""
        order = {future: rank for rank, future in enumerate(futures)}
        with self._queued:
            arrange(self._queue, lambda item: order.get(item.future) if isinstance(item, _Queued) else None)

    def close(self) -> None:
        """Cancel what is queued, kill what runs, and wait until no process is left."""
        with self._queued:  # what is queued now is in front
            self._closed.set()
            self._put(*[None] * len(self._threads))
        for thread in self._threads:
            while thread.is_alive():
                if self._fork is not None and self._starting:
                    _end_imports()
                thread.join(LOOK_S)

    def _new_worker(self) -> _Worker:
        with self._queued:
            if self._closed.is_set():
                raise WorkerDied(CLOSED)
            self._starting += 1
        try:
            return _Worker(self._function, self._initialize, self._closed, fork=self._fork, fault_line=self._fault_line)
        finally:
            with self._queued:
                self._starting -= 1

    def _put(self, *items: _Queued[TaskT, AnswerT] | threading.Barrier | None) -> None:
        with self._queued:
            self._queue.extend(items)
            self._queued.notify(len(items))

    def _take(self) -> _Queued[TaskT, AnswerT] | threading.Barrier | None:
        with self._queued:
            self._queued.wait_for(lambda: self._queue)
            return self._queue.popleft()

    def _serve(self) -> None:
        """Thread: feed one worker process, replacing it when it is gone."""
        if self._fork is not None:
            with suppress(OSError):  # the first task meets it too
                _context(self._fork)  # it imports while there is no task yet
        worker: _Worker | None = None
        while (item := self._take()) is not None:
            if isinstance(item, threading.Barrier):
                worker = self._brought_up(worker)
                with suppress(threading.BrokenBarrierError):
                    item.wait()
                continue
            future = item.future
            if self._closed.is_set() or not future.set_running_or_notify_cancel():
                future.cancel()
                continue
            try:
                worker = worker or self._new_worker()
                raised, answer = worker.run(item.task, item.timeout_s, self._closed)
            except (WorkerDied, WorkerTimedOut, InputError) as error:
                raised, answer = error, None
            except Exception as error:  # noqa: BLE001 - the future raises it; in a thread nobody would see it, and wait
                if worker is not None:
                    worker.stop()
                raised, answer = error, None
            if raised is None:
                future.set_result(answer)
            else:
                worker = None  # it has ended
                future.set_exception(raised)
        if worker is not None:
            worker.stop()

    def _brought_up(self, worker: _Worker | None) -> _Worker | None:
        """A worker that is ready; None where there is none, which the first task says."""
        try:
            worker = worker or self._new_worker()
            return worker if worker.comes_up(self._closed) else None
        except Exception:  # noqa: BLE001 - the first task meets it too, and its future raises it
            return None


def _context(fork: str | None) -> ForkServerContext | SpawnContext:
    """How processes are started: each on its own where they cannot be forked. Ctrl-C is blocked in this thread."""
    resource_tracker.ensure_running()  # it would allow SIGINT again
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # in what this thread starts, from its beginning
    # Python 3.10 looks for what is imported before forking in the current folder first.
    if fork is not None and (sys.version_info >= (3, 11) or Path(sys.path[0]).resolve() == Path.cwd()):
        with suppress(OSError):  # the path of the socket, in the temporary folder, is too long
            return _forking(fork)
    return multiprocessing.get_context("spawn")


def _forking(module: str) -> ForkServerContext:
    """Where processes are forked from one that has imported ``module``; it is started if there is none."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module])
    with STARTING:
        # Python does not hand its search path on to where the modules are imported.
        path = {"PYTHONPATH": os.pathsep.join(map(str, sys.path)), "PYTHONSAFEPATH": "1"}
        variables = {**fast_malloc(), **SINGLE_THREADED, **path}
        before = {name: os.environ[name] for name in variables if name in os.environ}
        os.environ.update(variables)
        try:
            forkserver.ensure_running()
        finally:
            for name in variables:
                os.environ.pop(name)
            os.environ.update(before)
    return context


def _end_imports() -> None:
    """Kill the process to fork from, which answers nobody before it has imported everything; the next pool starts anew.

    Other pools' processes live on, and what they start meanwhile is not forked.
    """
    pid = vars(forkserver)["_forkserver"]._forkserver_pid  # nothing public of multiprocessing says it
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class _Worker:
    """One process and the pipe to it.

    Args:
        closed: Whether its pool was closed, which ends the process to fork from while it imports.

    Raises:
        InputError: No process can be started.
        WorkerDied: The pool was closed meanwhile.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        initialize: Callable[[], None] | None,
        closed: threading.Event,
        *,
        fork: str | None,
        fault_line: FaultLine | None = None,
    ) -> None:
        self._started = False
        self._fault_line = fault_line
        self._errors = tempfile.TemporaryFile() if fault_line is not None else None  # noqa: SIM115 - open as long as it
        try:
            try:
                self._start(function, initialize, fork=fork)
            except (EOFError, ConnectionError):  # the process to fork from has ended, maybe of its imports
                if closed.is_set():
                    raise WorkerDied(CLOSED) from None
                self._start(function, initialize, fork=None)
        except OSError as error:
            raise InputError(f"a worker process cannot be started: {error}") from error

    def _start(
        self, function: Callable[[Any], Any], initialize: Callable[[], None] | None, *, fork: str | None
    ) -> None:
        context = _context(fork)
        self._pipe, theirs = context.Pipe()
        with STARTING:
            environment = dict(os.environ)
        errors = None if self._errors is None else f"/proc/{os.getpid()}/fd/{self._errors.fileno()}"
        arguments = (theirs, function, initialize, environment, errors)
        self._process = context.Process(target=_work, args=arguments, daemon=True)
        # One that forks has its environment already, and may take seconds to answer.
        with nullcontext() if isinstance(context, ForkServerContext) else STARTING:
            self._process.start()
        theirs.close()

    def comes_up(self, closed: threading.Event) -> bool:
        """Wait until the process is ready for tasks; False if it ended instead."""
        try:
            self._wait_until_ready(closed)
        except (EOFError, ConnectionError, WorkerDied, WorkerTimedOut):
            return False
        return True

    def _wait_until_ready(self, closed: threading.Event) -> None:
        if not self._started:
            self._receive(START_TIMEOUT_S, closed)
            self._started = True

    def run(self, task: Any, timeout_s: float, closed: threading.Event) -> tuple[BaseException | None, Any]:
        """What the function raised, and what it returned."""
        try:
            self._wait_until_ready(closed)
            self._pipe.send(task)
            raised, answer = self._receive(timeout_s, closed)
            if raised is not None and self._errors is not None:
                self._process.join(5)  # its traceback comes behind its answer
                self._said()
            return raised, answer
        except (EOFError, ConnectionError) as error:
            raise WorkerDied(self._how_it_ended()) from error

    def _receive(self, timeout_s: float, closed: threading.Event) -> tuple[BaseException | None, Any]:
        waited_s = 0.0
        while waited_s < timeout_s and not closed.is_set():
            step_s = min(0.2, timeout_s - waited_s)
            if self._pipe.poll(step_s):  # an answer, or the end of the process, which alone holds the other end
                answer: tuple[BaseException | None, Any] = self._pipe.recv()
                return answer
            waited_s += step_s
        self.stop()
        if closed.is_set():
            raise WorkerDied(CLOSED)
        raise WorkerTimedOut(f"no answer within {timeout_s:.0f} s{self._said()}")

    def _how_it_ended(self) -> str:
        self._process.join(5)
        code, said = self._process.exitcode, self._said()
        if code == UNSEEN:
            return UNSEEN_END
        if code is not None and code < 0:
            return f"the worker was killed by {SIGNALS.get(-code, f'signal {-code}')}{said}"
        return f"the worker exited with code {code}{said}"

    def _said(self) -> str:
        """Why the process ended, in its own words; what else it wrote goes to this process's error stream."""
        if self._errors is None or self._fault_line is None:
            return ""
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace")
        self._errors.close()
        line = self._fault_line(text)
        if line is None:
            sys.stderr.write(text)
        return "" if line is None else f": {line}"

    def stop(self) -> None:
        """Kill the process.

        Raises:
            WorkerStuckError: It does not end.
        """
        if self._process.pid is not None:
            _kill_group(self._process.pid)
        self._process.kill()
        self._process.join(KILL_TIMEOUT_S)
        self._pipe.close()
        if self._process.is_alive():
            _forget(self._process)
            raise WorkerStuckError(f"the worker does not end although it was killed {KILL_TIMEOUT_S:.0f} s ago")
        self._process.close()  # it sees that, if it lives on because the process that forked it is gone


def _forget(process: BaseProcess) -> None:
    """Do not wait for ``process`` when Python ends; nothing public of multiprocessing says so."""
    vars(multiprocessing.process)["_children"].discard(process)


def _kill_group(leader: int) -> None:
    """Kill a worker and the compilers that it has started, which would run on without it."""
    with suppress(ProcessLookupError):  # it has not come so far as to lead a group
        os.killpg(leader, signal.SIGKILL)


def _work(
    pipe: Connection,
    function: Callable[[Any], Any],
    initialize: Callable[[], None] | None,
    environment: Mapping[str, str],
    errors: str | None,
) -> None:
    """Main function of a worker process; its error stream goes to the file ``errors``, if one is given."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # a terminal may stop who writes to it from the background
    _set_environment(environment)
    _leave_no_core()
    if errors is not None:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND), 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    if initialize is not None:
        initialize()
    calm_collector()
    pipe.send((None, None))
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            answer = function(task)
        except InputError as error:  # a full disk, a compiler that is gone: its line says it all
            pipe.send((error, None))
            os._exit(0)  # libraries have much to say of an orderly end
        except BaseException as error:
            pipe.send((error, None))
            raise  # the traceback goes to the error stream, and a new process takes over
        pipe.send((None, answer))


def _leave_no_core() -> None:
    """A candidate that aborts is one of thousands, and its core dump of gigabytes nobody's reading."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    os.environ.setdefault(NO_GPU_CORE, "1")


def _set_environment(environment: Mapping[str, str]) -> None:
    """Take over that of the parent now, where the process was forked from an older one."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:  # there are names that can be inherited and not set
            os.environ[name] = value


def _exit_with_parent() -> None:
    """Leave no orphan when the parent is killed while this process computes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        _kill_group(os.getpid())
