"""Processes that begin at once: they are forked from one that has imported what they need, and end in time.

As a program: import the module that is named, then fork a process for each call in each line of the standard input;
print their numbers, then their exit codes.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 240  # that a process may take


class Hatchery:
    """Calls the function ``main`` of a module in processes of their own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def fork(self, calls: Sequence[Sequence[Any]]) -> list[int]:
        """Begin a process for the arguments of each call."""
        assert self._process.stdin is not None
        print(json.dumps(calls), file=self._process.stdin, flush=True)
        return list(self._said())

    def codes(self) -> list[int]:
        """Exit codes of those that were forked last, once all have ended: minus the signal, of one that was killed."""
        return list(self._said())

    def _said(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())


@contextmanager
def hatchery(module: ModuleType) -> Iterator[Hatchery]:
    """One for ``module``, which ends with what it has forked."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    with subprocess.Popen(
        [sys.executable, __file__, module.__name__], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield Hatchery(process)
        process.communicate()


def _fail(*error: Any) -> None:
    traceback.print_exception(*error)
    os._exit(1)


def _forked(module: ModuleType, arguments: Sequence[Any]) -> int:
    process = os.fork()
    if process == 0:
        sys.excepthook = _fail  # here, not in the loop below
        signal.alarm(LIMIT_S)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        module.main(*arguments)
        os._exit(0)
    return process


def _serve(module: ModuleType) -> None:
    for line in sys.stdin:
        processes = [_forked(module, arguments) for arguments in json.loads(line)]
        print(json.dumps(processes), flush=True)
        codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    _serve(importlib.import_module(sys.argv[1]))
