"""Which processes use a GPU now, and which a process has started: without tools that a machine may lack."""

from __future__ import annotations

import subprocess
from pathlib import Path

KFD_PROCESSES = Path("/sys/class/kfd/kfd/proc")  # a folder for each process that has opened an AMD GPU
NVIDIA = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid,used_memory", "--format=csv,noheader")
UNKNOWN = "unknown: neither /sys/class/kfd nor nvidia-smi is here"


def gpu_processes(kfd: Path = KFD_PROCESSES) -> str:
    """A line for each process that the driver sees on a GPU; or that nothing says so.

    Args:
        kfd: Where AMD's driver lists them.
    """
    if kfd.is_dir():
        return "\n".join(sorted(entry.name for entry in kfd.iterdir()))
    try:
        return subprocess.run(NVIDIA, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return UNKNOWN


def descendants(pid: str) -> list[str]:
    """Processes that a process started, and those that they started; none where it is gone."""
    children: list[str] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += (thread / "children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        pass
    return children + [other for child in children for other in descendants(child)]
