"""Functional simulator of gfx950 machine code: loads a kernel, runs workgroups of a launch, reports wrong behaviour."""

from search.gfx950.simulator.findings import (
    Finding,
    FindingKind,
    SimulationError,
    ToolNotFoundError,
    UnknownInstructionError,
)
from search.gfx950.simulator.kernel import Kernel, load_assembly, load_code_object
from search.gfx950.simulator.launch import Histogram, Launch, SimulationResult, simulate
from search.gfx950.simulator.memory import Buffer
from search.gfx950.simulator.op import InstructionClass

__all__ = [
    "Buffer",
    "Finding",
    "FindingKind",
    "Histogram",
    "InstructionClass",
    "Kernel",
    "Launch",
    "SimulationError",
    "SimulationResult",
    "ToolNotFoundError",
    "UnknownInstructionError",
    "load_assembly",
    "load_code_object",
    "simulate",
]
