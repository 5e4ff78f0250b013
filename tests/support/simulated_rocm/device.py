"""What the stand-in does with code objects and launches: it disassembles the one and executes the other.

Equal launches on equal bytes give equal bytes, so that each is simulated once and then remembered.
"""

from __future__ import annotations

import ctypes
import os
import random
import struct
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from search.gfx950.simulator import (
    DecodedKernel,
    SimulatedBuffer,
    SimulatedLaunch,
    SimulationError,
    load_code_object,
    simulate,
)
from search.gfx950.simulator.launch import pack_arguments
from search.gfx950.simulator.state.findings import FindingKind
from simulated_rocm.clock import predicted_us
from simulated_rocm.machine import GpuSpec, MachineSpec
from simulated_rocm.memory import Allocation, DeviceMemory, Span

Bytes = NDArray[np.uint8]
INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, NOT_FOUND, OUT_OF_RESOURCES = 1, 2, 200, 500, 701  # hipError_t
SHARED_BYTES, LOCAL_BYTES, REGISTERS, MAX_THREADS = 1, 3, 4, 0  # hipFunction_attribute
JITTER = 0.003  # of a replay's time, so that no two samples are equal
NOWHERE = "0x7f0000000000"
# What ROCr writes before it aborts the process. Source: ROCR-Runtime, runtime.cpp (VMFaultHandler), and reports.
TEXTS = {
    "fault": f"Memory access fault by GPU node-2 (Agent handle: 0x1) on address {NOWHERE}. "
    "Reason: Page not present or supervisor privilege.",
    "abort": "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016",
}


@dataclass(frozen=True, eq=False)
class Function:
    """A kernel of a loaded code object; decoded by the simulator."""

    name: str
    kernel: DecodedKernel


@dataclass(frozen=True)
class LaunchSpec:
    """One launch: what, how large, with which kernel arguments."""

    function: Function
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds: int
    kernarg: bytes


@dataclass(frozen=True)
class Effect:
    """What a launch wrote, by the position of the buffer, and how long the model says that it takes."""

    written: tuple[tuple[int, Bytes, bytes], ...]
    time_us: float


@dataclass(frozen=True)
class Place:
    """A pointer argument: where it stands in the argument buffer, and what it points to."""

    offset: int
    address: int
    allocation: Allocation
    span: Span


class MemoryFault(Exception):
    """A kernel reached memory that is not there."""


@dataclass(eq=False)
class SimulatedDevice:
    """One GPU of one process.

    Args:
        spec: The machine.
        gpus: That the process sees.
        memory: Of the GPU.
    """

    spec: MachineSpec
    gpus: tuple[GpuSpec, ...]
    memory: DeviceMemory = field(default_factory=DeviceMemory)
    clock_us: float = 0.0
    launches: int = 0
    simulated: int = 0
    capture: list[LaunchSpec] | None = None
    pool: list[object] = field(default_factory=list)  # tensors of the graph that is being captured
    _modules: list[Path] = field(default_factory=list)
    _functions: list[Function] = field(default_factory=list)
    _effects: dict[tuple[object, ...], Effect] = field(default_factory=dict)
    _replayed: tuple[int, int] = (0, 0)  # the graph, and the memory's state after it
    _replay_us: float = 0.0
    _noise: random.Random = field(default_factory=lambda: random.Random(7))

    def load(self, image: int) -> int:
        """Handle of the module at address ``image``."""
        content = _elf_at(image)
        with tempfile.NamedTemporaryFile(suffix=".hsaco", delete=False) as file:
            file.write(content)
        self._modules.append(Path(file.name))
        return len(self._modules)

    def function(self, module: int, name: str) -> int:
        """Handle of a module's function.

        Raises:
            LookupError: It has no such function.
        """
        try:
            kernel = load_code_object(self._modules[module - 1], name)
        except SimulationError as error:
            print(f"simulated ROCm: {error}", file=sys.stderr, flush=True)
            raise LookupError(name) from error
        self._functions.append(Function(name, kernel))
        return len(self._functions)

    def attribute(self, function: int, which: int) -> int:
        """One fact of a function."""
        kernel = self._functions[function - 1].kernel
        values = {
            SHARED_BYTES: kernel.descriptor.lds_bytes, LOCAL_BYTES: kernel.descriptor.scratch_bytes,
            REGISTERS: kernel.program.num_vgprs, MAX_THREADS: 1024,
        }  # fmt: skip
        return values.get(which, 0)

    def launch(
        self, function: int, grid: Sequence[int], block: Sequence[int], dynamic_lds: int, params: int, extra: int
    ) -> None:
        """Run a kernel, or note it for the graph that is being captured."""
        known = self._functions[function - 1]
        kernarg = _packed(known, params) if params else _extra(extra)
        spec = LaunchSpec(known, tuple(grid), tuple(block), dynamic_lds, kernarg)
        if self.capture is None:
            self.run(spec)
        else:
            self.capture.append(spec)

    def run(self, launch: LaunchSpec) -> None:
        """Execute one launch."""
        self.launches += 1
        self._misbehave(launch.function.name)
        try:
            effect, places = self._effect(launch)
        except MemoryFault as fault:
            _abort(TEXTS["fault"].replace(NOWHERE, str(fault)))
        for position, values, digest in effect.written:
            place = places[position]
            if self.memory.digest(place.allocation, place.span) != digest:
                self.memory.write(place.allocation, place.span, values, digest)
        self.clock_us += effect.time_us

    def replay(self, nodes: Sequence[LaunchSpec]) -> None:
        """Execute a graph; one that follows itself, with nothing written in between, changes nothing any more."""
        if self._replayed != (id(nodes), self.memory.epoch):
            start_us = self.clock_us
            first: dict[Function, LaunchSpec] = {}
            for node in nodes:
                self.run(first.setdefault(node.function, node) if self.spec.stale_replays else node)
            self._replay_us, self.clock_us = self.clock_us - start_us, start_us
        self._replayed = id(nodes), self.memory.epoch
        self.clock_us += self._replay_us * (1 + abs(self._noise.gauss(0, JITTER)))

    def is_device_pointer(self, address: int) -> bool:
        """Whether a kernel may be given ``address``."""
        return self.memory.allocation_at(address) is not None

    def _misbehave(self, name: str) -> None:
        for part, fault in self.spec.faults.items():
            if part in name and fault == "hang":
                time.sleep(3600)
            elif part in name:
                _abort(TEXTS[fault])

    def _effect(self, launch: LaunchSpec) -> tuple[Effect, list[Place]]:
        places = self._places(launch, whole=False)
        key = (launch.function, launch.grid, launch.block, launch.dynamic_lds, *self._content(launch, places))
        effect = self._effects.get(key)
        if effect is None:
            try:
                effect = self._simulate(launch, places)
            except MemoryFault:  # a pointer into a larger tensor, maybe
                places = self._places(launch, whole=True)
                return self._simulate(launch, places), places
            self._effects[key] = effect
        return effect, places

    def _places(self, launch: LaunchSpec, *, whole: bool) -> list[Place]:
        places: list[Place] = []
        for argument in launch.function.kernel.arguments:
            if argument.kind != "global_buffer":
                continue
            (address,) = struct.unpack_from("<Q", launch.kernarg, argument.offset)
            if not address:
                continue
            allocation = self.memory.allocation_at(address)
            if allocation is None:
                raise MemoryFault(hex(address))
            span = allocation.span if whole else self.memory.narrowest(allocation, address)
            places.append(Place(argument.offset, address, allocation, span))
        return places

    def _content(self, launch: LaunchSpec, places: Sequence[Place]) -> tuple[object, ...]:
        """What decides the effect, wherever the buffers are."""
        kernarg = bytearray(launch.kernarg)
        for place in places:
            kernarg[place.offset : place.offset + 8] = bytes(8)
        spans = [place.span for place in places]
        shared = tuple(spans.index(span) for span in spans)
        return bytes(kernarg), shared, tuple(self.memory.digest(place.allocation, place.span) for place in places)

    def _simulate(self, launch: LaunchSpec, places: Sequence[Place]) -> Effect:
        kernel = launch.function.kernel
        names = {span: f"buffer {number}" for number, span in enumerate(dict.fromkeys(place.span for place in places))}
        buffers = {name: span.read() for span, name in names.items()}
        before = {name: values.copy() for name, values in buffers.items()}

        def pack(addresses: Mapping[str, int]) -> bytes:
            segment = _segment(launch)
            for place in places:
                moved = addresses[names[place.span]] + place.address - place.span.start
                struct.pack_into("<Q", segment, place.offset, moved)
            return bytes(segment)

        arguments = {name: SimulatedBuffer(values) for name, values in buffers.items()}
        described = SimulatedLaunch(arguments, launch.grid, launch.block, launch.dynamic_lds, pack)
        result = simulate(kernel, described)
        self.simulated += 1
        for finding in result.findings:
            if finding.kind is FindingKind.OUT_OF_BOUNDS:
                raise MemoryFault(finding.detail)
            print(f"simulated ROCm: {launch.function.name}: {finding}", file=sys.stderr, flush=True)
        changed = {name for name in buffers if not np.array_equal(buffers[name], before[name])}
        written = [
            (position, buffers[name], blake2b(buffers[name].tobytes(), digest_size=16).digest())
            for position, place in enumerate(places) if (name := names[place.span]) in changed
        ]  # fmt: skip
        sizes = {name: len(values) for name, values in buffers.items()}
        handed = frozenset(names[place.span] for place in places if place.allocation.is_result)
        time_us = predicted_us(described, kernel, result, sizes, handed, self.gpus[0].compute_units)
        return Effect(tuple(written), time_us)


def _segment(launch: LaunchSpec) -> bytearray:
    """The kernel's argument segment: what was passed, and the hidden arguments that the runtime fills in."""
    kernel = launch.function.kernel
    segment = bytearray(pack_arguments(kernel, SimulatedLaunch({}, launch.grid, launch.block, launch.dynamic_lds), {}))
    visible = [argument for argument in kernel.arguments if not argument.kind.startswith("hidden_")]
    for argument in visible:
        part = slice(argument.offset, min(argument.offset + argument.size, len(launch.kernarg)))
        segment[part] = launch.kernarg[part]
    return segment


def _packed(function: Function, params: int) -> bytes:
    """The argument buffer from a list of pointers to values, as the metadata lays it out."""
    explicit = [argument for argument in function.kernel.arguments if not argument.kind.startswith("hidden_")]
    pointers = (ctypes.c_void_p * len(explicit)).from_address(params)
    segment = bytearray(max((a.offset + a.size for a in explicit), default=0))
    for argument, pointer in zip(explicit, pointers, strict=True):
        segment[argument.offset : argument.offset + argument.size] = ctypes.string_at(pointer, argument.size)
    return bytes(segment)


def _extra(extra: int) -> bytes:
    """The argument buffer from HIP's list: 1, pointer, 2, pointer to its size, 3."""
    entries = (ctypes.c_void_p * 4).from_address(extra)
    return ctypes.string_at(entries[1], ctypes.c_size_t.from_address(entries[3]).value)


def _elf_at(image: int) -> bytes:
    """The ELF file at an address: it ends with the table of its sections."""
    header = ctypes.string_at(image, 64)
    (offset,) = struct.unpack_from("<Q", header, 40)
    size, count = struct.unpack_from("<HH", header, 58)
    return ctypes.string_at(image, offset + size * count)


def _abort(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
    os.abort()
