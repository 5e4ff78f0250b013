"""Functional simulator of gfx950 machine code: loads a kernel, runs workgroups of a launch, reports wrong behaviour."""

from __future__ import annotations

from search.gfx950.simulator.decode.op import InstructionClass
from search.gfx950.simulator.kernel import DecodedKernel, load_assembly, load_code_object
from search.gfx950.simulator.launch import Histogram, SimulatedLaunch, SimulationResult, simulate
from search.gfx950.simulator.state.findings import (
    Finding,
    FindingKind,
    SimulationError,
    UnknownInstructionError,
)
from search.gfx950.simulator.state.memory import SimulatedBuffer

__all__ = [
    "DecodedKernel",
    "Finding",
    "FindingKind",
    "Histogram",
    "InstructionClass",
    "SimulatedBuffer",
    "SimulatedLaunch",
    "SimulationError",
    "SimulationResult",
    "UnknownInstructionError",
    "load_assembly",
    "load_code_object",
    "simulate",
]
