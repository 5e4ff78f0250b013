"""The misses file: shapes that a default served because no table covers them, for the next sweep."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from kernels.device import DeviceKey
from kernels.errors import InputError
from kernels.problem import GemmShape

LOGGER = logging.getLogger(__name__)
_OTHER_FORMATS = (".yaml", ".yml", ".csv")
_HEADER = "# Shapes that no table row covered, M rounded up to a power of two: run_search.py sweep --shapes THIS_FILE\n"


def bucket(shape: GemmShape) -> GemmShape:
    """Return ``shape`` with M rounded up to a power of two: a row for it serves the M that was asked."""
    return GemmShape(1 << (shape.M - 1).bit_length(), shape.N, shape.K)


@dataclass(eq=False)
class MissRecorder:
    """Appends each new miss to a plain list of shapes, the form that ``sweep --shapes`` takes. Not thread-safe.

    Args:
        path: The list; made with its first miss. Its folder must exist.

    Raises:
        InputError: The name says YAML or CSV, whose form is another.
    """

    path: Path
    _written: set[GemmShape] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Refuse a name that ``sweep --shapes`` would read in another form."""
        if self.path.suffix.lower() in _OTHER_FORMATS:
            raise InputError(f"{self.path}: misses are written as a plain list; name a .txt file")

    def record(self, shape: GemmShape, device: DeviceKey) -> None:
        """Append the bucket of ``shape`` unless this recorder, or the file, has it. A full disk is logged only."""
        wanted = bucket(shape)
        if wanted in self._written:
            return
        self._written.add(wanted)
        try:
            self._append(wanted, f"{wanted}  # asked as {shape} on {device}\n")
        except OSError as error:
            LOGGER.warning("%s: the miss of %s is not recorded: %s", self.path, shape, error.strerror)

    def _append(self, wanted: GemmShape, line: str) -> None:
        """One write of one line, so that processes that share the file do not mix theirs."""
        old = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
        if any(known.partition("#")[0].strip() == str(wanted) for known in old.splitlines()):
            return
        start = _HEADER if not old else "" if old.endswith("\n") else "\n"
        with self.path.open("a", encoding="utf-8") as file:
            file.write(start + line)
