"""Constants of the model from measured repetitions: those with which the simulation of each probe takes as long."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq

from kernels.launches.program import Program
from search.device.calibration.probes import Probe, parts
from search.gate.check import load_calls
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.calls import compile_call
from search.gfx950.machine import COLD, Machine
from search.gfx950.model.calibrated import Calibration, Model, with_values
from search.gfx950.model.constants import CONSTANTS
from search.gfx950.model.executed import executed_call, program_works
from search.gfx950.model.launch_time import LaunchWork, launch_time
from search.gfx950.simulator import SimulatedBuffer, SimulatedLaunch, simulate

PRECISION = 1e-6  # relative, of a constant
ROUNDS = 3  # over all constants: what a load waits for is its latency and its bytes
Works = Mapping[int, tuple[LaunchWork, ...]]


@dataclass(frozen=True, eq=False)
class ExecutedProbe:
    """A probe whose two launches the simulator executed; ``out`` is what each wrote, by repetitions."""

    probe: Probe
    works: Works
    out: Mapping[int, np.ndarray[Any, Any]]

    def repetition_us(self, model: Model) -> float:
        """Microseconds of one repetition by the model."""
        few, many = self.probe.counts
        return (self._launches_us(many, model) - self._launches_us(few, model)) / (many - few)

    def _launches_us(self, count: int, model: Model) -> float:
        return sum(
            launch_time(work, model.machine, model.constants, warm=self.probe.warm).work_us
            for work in self.works.get(count, ())
        )


def executed(probe: Probe, machine: Machine, cache: ArtifactCache) -> ExecutedProbe:
    """Compile ``probe`` for its device and execute the first workgroup of its launches.

    Args:
        machine: Decides how many workgroups fit.

    Raises:
        KernelError: It does not compile, or has an instruction that is not modelled.
    """
    works, out = {}, {}
    for count in filter(None, probe.counts):
        arrays = {name: tensor.numpy() for name, tensor in probe.tensors(count).items()}
        works[count] = first_workgroups(probe.program(count), arrays, machine, cache)
        out[count] = arrays["out"]
    return ExecutedProbe(probe, works, out)


def first_workgroups(
    program: Program, arrays: Mapping[str, np.ndarray[Any, Any]], machine: Machine, cache: ArtifactCache
) -> tuple[LaunchWork, ...]:
    """Compile ``program``, execute the first workgroup of each launch, and return what each launch does.

    Args:
        arrays: The memory of each buffer, which the launches change.
        machine: Decides how many workgroups fit.

    Raises:
        KernelError: It does not compile, or has an instruction that is not modelled.
    """
    with tempfile.TemporaryDirectory() as logs:
        compiled = [compile_call(program, call, cache, Path(logs)) for call in program.calls]
    memory = {name: SimulatedBuffer(array) for name, array in arrays.items()}
    calls = []
    for one, loaded in zip(compiled, load_calls(compiled), strict=True):
        arguments = {name: memory[value] if isinstance(value, str) else value for name, value in one.call.args.items()}
        launch = SimulatedLaunch(arguments, one.call.grid, (64 * loaded.waves, 1, 1), loaded.lds_bytes)
        calls.append(executed_call(one, simulate(loaded.kernel, launch, [(0, 0, 0)]).recording, machine))
    return program_works(program, calls)


@dataclass(frozen=True)
class Unknown:
    """A constant that one probe tells.

    Args:
        low, high: Between which it is looked for.
        put: The model with a value of it.
    """

    probe: str
    name: str
    low: float
    high: float
    put: Callable[[Model, float], Model]


def _constant(probe: str, name: str, low: float, high: float) -> Unknown:
    def put(model: Model, value: float) -> Model:
        return replace(model, constants=with_values(model.constants, {name: value}))

    return Unknown(probe, name, low, high, put)


def _put_clock(model: Model, value: float) -> Model:
    return replace(model, machine=replace(model.machine, clock_mhz=value))


def _memory(part: int) -> Unknown:
    def put(model: Model, value: float) -> Model:
        others = (point for point in model.machine.harness.hbm_tbs if point[0] != part)
        return _under(model, hbm_tbs=tuple(sorted((*others, (part, value)))))

    return Unknown(f"read_memory_{part}", f"hbm_tbs at {part}", 1e-3, 40.0, put)


def unknowns(units: int) -> tuple[Unknown, ...]:
    """What is found, in this order: each with the values of those before it."""
    return (
        Unknown("vector", "clock_mhz", 200.0, 6000.0, _put_clock),
        _constant("matrix", "mfma_throttle", 0.0, 4.0),
        _constant("exchange", "lds_latency_clks", 4.0, 2000.0),
        _constant("load_cached", "warm_latency_clks", 20.0, 20_000.0),
        _constant("load_memory", "cold_latency_clks", 20.0, 20_000.0),
        _constant("read_unit", "unit_bytes_per_clk", 1.0, 512.0),
        _constant("read_cache", "cache_tbs", 0.05, 60.0),
        *(_memory(part) for part in parts(units)),
        _constant("write", "write_tbs", 0.05, 60.0),
    )


def solved(
    measured_us: Mapping[str, float], probes: Sequence[ExecutedProbe], start: Model
) -> tuple[Model, Mapping[str, float]]:
    """The model with which the probes take as long as measured, and the values that were found, by name.

    A value that would lie outside of its range is the range's end: a matrix core faster than its data sheet is not
    slowed down.
    """
    by_name = {one.probe.name: one for one in probes}
    model, found = start, {}
    for unknown in ROUNDS * unknowns(start.machine.cu_count):
        found[unknown.name] = _solved(unknown, by_name[unknown.probe], measured_us[unknown.probe], model)
        model = unknown.put(model, found[unknown.name])
    own_us = by_name["gap"].repetition_us(model)  # of the work of a kernel that is little but its launch
    found["launch_us"], found["extra_kernel_us"] = (
        max(0.0, measured_us[name] - own_us) for name in ("launch", "gap")
    )  # fmt: skip
    return _under(model, launch_us=found["launch_us"], extra_kernel_us=found["extra_kernel_us"]), found


def _under(model: Model, **changed: Any) -> Model:
    """``model`` with other numbers of its harness."""
    return replace(model, machine=replace(model.machine, harness=replace(model.machine.harness, **changed)))


def _solved(unknown: Unknown, probe: ExecutedProbe, wanted_us: float, model: Model) -> float:
    """The value within the unknown's range with which ``probe`` takes ``wanted_us``, or the end that is nearer."""

    def beyond_us(value: float) -> float:
        return probe.repetition_us(unknown.put(model, value)) - wanted_us

    low_us, high_us = beyond_us(unknown.low), beyond_us(unknown.high)
    if low_us * high_us > 0:
        return unknown.low if abs(low_us) < abs(high_us) else unknown.high
    return float(brentq(beyond_us, unknown.low, unknown.high, rtol=PRECISION))


def calibration_of(model: Model, found: Mapping[str, float], calibration: Calibration) -> Calibration:
    """``calibration`` with what was solved."""
    names = {name: value for name, value in found.items() if hasattr(CONSTANTS, name)}
    harness = model.machine.harness
    return replace(
        calibration,
        clock_mhz=model.machine.clock_mhz,
        constants=names,
        launch_us=harness.launch_us,
        extra_kernel_us=harness.extra_kernel_us,
        hbm_tbs=harness.hbm_tbs,
    )


def start_of(machine: Machine) -> Model:
    """Where solving begins: the machine under the project's own harness, whose memory is fast at every count."""
    points = ((0, 0.0), *((part, COLD.hbm_tbs[-1][1]) for part in parts(machine.cu_count)))
    return Model(replace(machine, harness=replace(COLD, hbm_tbs=points)))
