"""search.workers.allocator: what processes that compile allocate with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from search.workers import allocator
from search.workers.allocator import fast_malloc


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    allocator.installed.cache_clear()
    yield
    allocator.installed.cache_clear()


@pytest.mark.parametrize("known", [("tcmalloc", "tcmalloc_minimal"), ("tcmalloc_minimal",), ("tcmalloc",)])
def test_tcmalloc_is_preloaded_where_the_linker_finds_it(
    known: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocator, "find_library", lambda name: f"lib{name}.so.4" if name in known else None)
    assert fast_malloc({}) == {"LD_PRELOAD": f"lib{max(known, key=len)}.so.4"}


def test_without_tcmalloc_glibc_keeps_more_freed_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "find_library", lambda name: None)
    assert fast_malloc({"LD_PRELOAD": ""}) == {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=65535"}


@pytest.mark.parametrize("name", ["LD_PRELOAD", "GLIBC_TUNABLES"])
def test_what_the_user_chose_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "find_library", lambda name: f"lib{name}.so.4")
    assert fast_malloc({name: "mine"}) == {}


def test_a_process_starts_with_it_and_nothing_complains() -> None:
    code = "import os; maps = open('/proc/self/maps').read(); print([name in maps for name in os.sys.argv[1:]])"
    chosen = fast_malloc({})
    libraries = filter(None, [chosen.get("LD_PRELOAD")])
    done = subprocess.run(
        [sys.executable, "-c", code, *libraries],
        env={**os.environ, **chosen},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "False" not in done.stdout
    assert done.stderr == ""
