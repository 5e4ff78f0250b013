"""What the simulator reports: errors that stop a load, findings that an execution collects."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from kernels.errors import KernelError


class SimulationError(Exception):
    """The program or the launch cannot be simulated; the text says why and where."""


class UnknownInstructionError(SimulationError):
    """A mnemonic, operand or modifier that the simulator does not model; it never guesses."""


class FindingKind(Enum):
    """One class of wrong behaviour that an execution can show."""

    UNINITIALISED_ADDRESS = "uninitialised_address"
    UNINITIALISED_STORE = "uninitialised_store"
    UNINITIALISED_BRANCH = "uninitialised_branch"
    UNINITIALISED_MFMA = "uninitialised_mfma"
    UNINITIALISED_ATOMIC = "uninitialised_atomic"
    OUT_OF_BOUNDS = "out_of_bounds"
    READ_ONLY_STORE = "read_only_store"
    CONFLICTING_STORES = "conflicting_stores"
    STALE_READ = "stale_read"
    MISALIGNED_LDS = "misaligned_lds"
    LDS_OUT_OF_RANGE = "lds_out_of_range"
    LDS_READ_BEFORE_WAIT = "lds_read_before_wait"
    LDS_LOAD_AT_END = "lds_load_at_end"
    MATRIX_HAZARD = "matrix_hazard"
    LDS_RACE = "lds_race"
    READ_BEFORE_WAIT = "read_before_wait"
    WRITE_BEFORE_WAIT = "write_before_wait"
    INSTRUCTION_BUDGET = "instruction_budget"
    BARRIER_MISMATCH = "barrier_mismatch"
    RAN_OFF_END = "ran_off_end"


class Place(Protocol):
    """Where in the text a finding happened; a ``Statement`` is one."""

    @property
    def line(self) -> int:
        """From 1."""

    @property
    def text(self) -> str:
        """The instruction."""


@dataclass(frozen=True)
class Finding:
    """One wrong behaviour, at the first place where it was seen.

    Args:
        workgroup: (x, y, z) of the first wave concerned.
        wave: Index of that wave in its workgroup.
        line: Line of the instruction in the assembly text, from 1.
        detail: Values that explain it (register, address, buffer).
    """

    kind: FindingKind
    workgroup: tuple[int, int, int]
    wave: int
    line: int
    text: str
    detail: str

    def __str__(self) -> str:
        """One line for a report."""
        where = f"workgroup {self.workgroup} wave {self.wave}, line {self.line}"
        return f"{self.kind.value}: {self.detail} ({where}: {self.text})"


class SimulatorLimitError(KernelError):
    """The simulator cannot execute this code, so it could not be checked."""

    outcome = "crashed"
