"""kernels.user_cache: the folder follows the desktop convention."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.user_cache import default_cache


def test_the_variable_names_the_base_and_home_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_cache() == Path("/somewhere/mxfp4-tune")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/user")
    assert default_cache() == Path("/home/user/.cache/mxfp4-tune")
