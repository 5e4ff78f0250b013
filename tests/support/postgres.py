"""A PostgreSQL server of a test's own, in a temporary folder, run by a user without rights; it can be killed."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

TRIES = 20  # to start
USERS = ("postgres", "nobody")  # a server refuses to be run by root


def programs() -> Path | None:
    """Folder of initdb and pg_ctl; None where PostgreSQL is not installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    return max((path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")), default=None)


class Server:
    """One server; its clients come by a socket in its folder."""

    def __init__(self, folder: Path, binaries: Path, user: str | None) -> None:
        self._folder = folder
        self._binaries = binaries
        self._user = user
        self._run("initdb", "-D", str(folder / "data"), "-U", "tester", "-A", "trust", "--no-sync")
        self.url = f"postgresql+psycopg://tester@/postgres?host={folder}"

    def start(self) -> None:
        """Start it, also after :meth:`kill`, of which some process may still hold the memory."""
        options, log = f"-k {self._folder} -c listen_addresses='' -c fsync=off", str(self._folder / "log")
        words = ("pg_ctl", "-D", str(self._folder / "data"), "-o", options, "-l", log, "-w", "start")
        for _ in range(TRIES - 1):
            if self._run(*words, check=False):
                return
            time.sleep(1)
        self._run(*words)

    def kill(self) -> None:
        """End it as a power cut would: no connection is closed, nothing is written any more."""
        leader = int((self._folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()
        for process in (leader, *map(int, children)):
            os.kill(process, signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-m", "immediate", "stop", check=False)

    def _run(self, program: str, *arguments: str, check: bool = True) -> bool:
        done = subprocess.run(
            [str(self._binaries / program), *arguments], user=self._user, cwd=self._folder, check=check,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        return done.returncode == 0


def _user() -> str | None:
    """Who runs the server; None: who runs the tests."""
    if os.getuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in USERS if name in known), None)


@contextmanager
def running_server() -> Iterator[Server]:
    """A server that answers; the test is skipped where there is no PostgreSQL or no psycopg."""
    pytest.importorskip("psycopg", reason="no psycopg: pip install 'psycopg[binary]'")
    binaries = programs()
    if binaries is None:
        pytest.skip("no initdb: apt-get install postgresql")
    user = _user()
    if user is None and os.getuid() == 0:
        pytest.skip("PostgreSQL is not run by root, and there is no user postgres or nobody")
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # a socket's path must be short
    try:
        if user is not None:
            os.chown(folder, pwd.getpwnam(user).pw_uid, -1)
        server = Server(folder, binaries, user)
        server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
