"""search.results.locks: one process at a time changes a file, and no lock stays beside it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from search.results.locks import locked


def test_no_change_is_lost_and_no_lock_stays(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")

    def add(_: int) -> None:
        with locked([path]):
            number = int(path.read_text())
            time.sleep(0)  # another thread runs
            path.write_text(str(number + 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(100)))
    assert path.read_text() == "100"
    assert list(tmp_path.iterdir()) == [path]
