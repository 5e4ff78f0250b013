"""How many cores this process may use, and how many worker processes that feeds."""

from __future__ import annotations

import math
import os
import resource
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MOST_COMPILERS = (
    48  # eight GPUs measure a few candidates a second each, and a compilation takes 1 to 5 seconds of a core
)
DESCRIPTORS = 4  # of a worker in its parent, with some to spare


def lent_cores(cgroup: Path = CGROUP) -> int:
    """Cores of the affinity mask, or the CPU time that the container's quota allows where that is less; at least 1.

    Args:
        cgroup: Root of the control groups as the container sees it, version 2 or 1.
    """
    cores = len(os.sched_getaffinity(0))
    quota = _quota(cgroup)
    return cores if quota is None else max(1, min(cores, math.floor(quota)))


def _quota(cgroup: Path) -> float | None:
    """Seconds of CPU time a second; None without a limit."""
    first = _words(cgroup / "cpu.max")
    if not first:
        first = [*_words(cgroup / "cpu" / "cpu.cfs_quota_us"), *_words(cgroup / "cpu" / "cpu.cfs_period_us")]
    if len(first) != 2 or first[0] in ("max", "-1"):
        return None
    return int(first[0]) / int(first[1])


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def allow_descriptors(workers: int) -> None:
    """Raise the soft limit of open files, as far as the hard one goes, to what ``workers`` processes need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 512 + DESCRIPTORS * workers
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
