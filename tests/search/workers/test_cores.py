"""search.workers.cores: a container's quota counts, not the cores that it shows."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from search.workers.cores import allow_descriptors, lent_cores

EIGHT = frozenset(range(8))


@pytest.fixture(autouse=True)
def shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: EIGHT)


@pytest.mark.parametrize(
    "text, cores", [("max 100000", 8), ("250000 100000", 2), ("1600000 100000", 8), ("50000 100000", 1)]
)
def test_the_quota_of_version_2_limits_what_the_mask_shows(tmp_path: Path, text: str, cores: int) -> None:
    (tmp_path / "cpu.max").write_text(f"{text}\n")
    assert lent_cores(tmp_path) == cores


@pytest.mark.parametrize("quota, cores", [("-1", 8), ("300000", 3)])
def test_the_quota_of_version_1_does_too(tmp_path: Path, quota: str, cores: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu/cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu/cpu.cfs_period_us").write_text("100000")
    assert lent_cores(tmp_path) == cores


def test_without_control_groups_the_mask_counts(tmp_path: Path) -> None:
    assert lent_cores(tmp_path) == 8


def test_many_workers_raise_the_soft_limit_of_open_files_as_far_as_the_hard_one_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, before[1]))
        allow_descriptors(10)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 552
        allow_descriptors(1)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 552
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
