"""The clock of the stand-in: what the project's model predicts of a launch that the simulator executed.

The model is told of the launch what a GPU would know of it: code, grid, buffers. What a program knows besides, which
workgroups share what, is worked out from sizes: every piece of a buffer is read as often as any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from search.gfx950.machine import COLD, Machine
from search.gfx950.model.issue import Kind
from search.gfx950.model.launch_time import XCDS, LaunchWork, Sharing, launch_time
from search.gfx950.model.stream import Executed, WaveStream, wave_streams
from search.gfx950.simulator import DecodedKernel, SimulatedLaunch, SimulationResult

LANES = 64


def predicted_us(
    launch: SimulatedLaunch,
    kernel: DecodedKernel,
    result: SimulationResult,
    sizes: Mapping[str, int],
    handed: frozenset[str],
    cu_count: int,
) -> float:
    """Time of ``launch`` as a node of a graph, in microseconds, its operands cold.

    Args:
        result: Of its execution.
        sizes: Bytes of each buffer.
        handed: Buffers that an earlier launch wrote.
        cu_count: Compute units of the GPU.
    """
    machine = Machine(harness=COLD, cu_count=cu_count)
    waves = math.ceil(math.prod(launch.block) / LANES)
    streams = wave_streams(Executed(result.recording, waves))
    workgroups = math.prod(launch.grid)
    loaded = _loaded(streams, workgroups)
    work = LaunchWork(
        kernel.name, streams, workgroups, _resident(launch, kernel, machine, waves), _sharing(loaded, sizes),
        read_bytes=sum(min(size, sizes.get(name, 0)) for name, size in loaded.items()), handed=handed & loaded.keys(),
    )  # fmt: skip
    return COLD.launch_us + launch_time(work, machine, warm=False).work_us


def _resident(launch: SimulatedLaunch, kernel: DecodedKernel, machine: Machine, waves: int) -> int:
    registers = kernel.program.num_vgprs + kernel.program.num_agprs
    lds_bytes = kernel.descriptor.lds_bytes + launch.dynamic_lds_bytes
    return max(1, int(machine.resident_workgroups(registers, lds_bytes, waves)))


def _loaded(streams: tuple[WaveStream, ...], workgroups: int) -> Mapping[str, float]:
    """Bytes that all workgroups load of each buffer."""
    loaded: dict[str, float] = {}
    for stream in streams:
        for (kind, name), size in stream.moved.items():
            if kind is Kind.LOAD:
                loaded[name] = loaded.get(name, 0.0) + size * workgroups
    return loaded


def _sharing(loaded: Mapping[str, float], sizes: Mapping[str, int]) -> Sharing:
    device = {name: min(1.0, sizes.get(name, size) / size) for name, size in loaded.items() if size}
    return Sharing(device, {name: min(1.0, XCDS * part) for name, part in device.items()})
