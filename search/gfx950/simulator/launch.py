"""A launch described by names and values, and what comes back from simulating it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernels.device import GFX950
from search.gfx950.simulator.decode.op import InstructionClass
from search.gfx950.simulator.kernel import DecodedKernel
from search.gfx950.simulator.state.arrays import Array
from search.gfx950.simulator.state.findings import Finding, SimulationError
from search.gfx950.simulator.state.handover import Handover
from search.gfx950.simulator.state.lds import LocalMemory
from search.gfx950.simulator.state.memory import GlobalMemory, SimulatedBuffer
from search.gfx950.simulator.state.recording import Recording
from search.gfx950.simulator.state.registers import EXEC, SGPR
from search.gfx950.simulator.state.state import LANES, Environment, WaveGroup, initial_group
from search.gfx950.simulator.state.stores import StoredRuns
from search.gfx950.simulator.waves import Waves

ArgumentValue = Array | SimulatedBuffer | int | float
KernargPacker = Callable[[Mapping[str, int]], bytes]
DEFAULT_BUDGET = 2_000_000
MAX_LDS_BYTES = GFX950.architecture.lds_bytes


@dataclass(frozen=True)
class SimulatedLaunch:
    """Arguments and sizes of one kernel launch.

    Args:
        arguments: Name to array (a pointer; stores change it in place), ``Buffer`` or number. Where the metadata has
            no names, the order counts.
        grid: Workgroups in x, y, z.
        block: Work-items of a workgroup in x, y, z.
        dynamic_lds_bytes: LDS on top of the kernel's static size (Triton's ``metadata.shared``).
        pack: Builds the kernarg segment itself, given the fake address of each array; None: from the metadata.
    """

    arguments: Mapping[str, ArgumentValue]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds_bytes: int = 0
    pack: KernargPacker | None = None


@dataclass(frozen=True)
class Histogram:
    """Executed instructions and bytes moved.

    Args:
        by_text: Instructions of all waves by their text, operands and modifiers included.
        longest_wave: Instructions of the wave that executed most.
        global_read_bytes, global_written_bytes, lds_read_bytes, lds_written_bytes: Sums over all lanes.
    """

    by_class: Mapping[InstructionClass, int]
    by_mnemonic: Mapping[str, int]
    by_text: Mapping[str, int]
    waves: int
    longest_wave: int
    global_read_bytes: int
    global_written_bytes: int
    lds_read_bytes: int
    lds_written_bytes: int

    @property
    def total(self) -> int:
        """Instructions of all waves."""
        return sum(self.by_class.values())

    def per_wave(self) -> dict[InstructionClass, float]:
        """Mean instructions of a wave by class."""
        return {kind: count / max(self.waves, 1) for kind, count in self.by_class.items()}


@dataclass(frozen=True)
class SimulationResult:
    """What an execution showed; outputs are in the launch's arrays.

    Args:
        findings: Wrong behaviour, in order of first appearance.
        recording: Executed blocks and what memory instructions touched.
        stores: Where stores and atomics went, by name of the argument.
        wave_workgroup: Position in ``workgroups`` of each wave.
    """

    findings: tuple[Finding, ...]
    histogram: Histogram
    workgroups: tuple[tuple[int, int, int], ...]
    recording: Recording
    stores: Mapping[str, StoredRuns]
    wave_workgroup: Array

    @property
    def clean(self) -> bool:
        """True without findings."""
        return not self.findings


def simulate(
    kernel: DecodedKernel,
    launch: SimulatedLaunch,
    workgroups: Sequence[tuple[int, int, int]] | None = None,
    budget: int = DEFAULT_BUDGET,
    turns: Sequence[int] | None = None,
) -> SimulationResult:
    """Execute ``workgroups`` (default: the whole grid) of ``launch``; arrays change in place.

    Args:
        workgroups: (x, y, z) of the workgroups to run together.
        budget: Instructions a wave may execute before it is stopped with a finding.
        turns: Of each workgroup, which waits at its first atomic until those of earlier turns have ended.

    Raises:
        SimulationError: The launch does not fit the kernel.
    """
    chosen = tuple(workgroups) if workgroups is not None else tuple(_grid(launch.grid))
    waves_each = -(-(launch.block[0] * launch.block[1] * launch.block[2]) // LANES)
    lds_bytes = kernel.descriptor.lds_bytes + launch.dynamic_lds_bytes
    if not chosen or lds_bytes > MAX_LDS_BYTES:
        raise SimulationError(f"{len(chosen)} workgroups with {lds_bytes} bytes of LDS cannot run")
    kernarg = np.zeros(max(kernel.descriptor.kernarg_bytes, 4096), np.uint8)
    pointers = {
        name: value for name, value in launch.arguments.items() if isinstance(value, (np.ndarray, SimulatedBuffer))
    }
    buffers = {name: _as_buffer(value) for name, value in pointers.items()}
    memory = GlobalMemory([("kernarg", SimulatedBuffer(kernarg)), *buffers.items()])
    packed = pack_arguments(kernel, launch, memory.address_of)
    kernarg[: len(packed)] = np.frombuffer(packed, np.uint8)
    wave_workgroup = np.repeat(np.arange(len(chosen)), waves_each)
    wave_in_group = np.tile(np.arange(waves_each), len(chosen))
    scratch_shape = ((kernel.descriptor.scratch_bytes + 3) // 4, len(wave_workgroup), LANES)
    env = Environment(
        memory=memory,
        lds=LocalMemory(len(chosen), lds_bytes, wave_workgroup, wave_in_group),
        workgroups=chosen,
        wave_workgroup=wave_workgroup,
        wave_in_group=wave_in_group,
        num_vgprs=kernel.program.num_vgprs,
        num_agprs=kernel.program.num_agprs,
        constants=kernel.program.constants,
        scratch=np.full(scratch_shape, 0xFFFFDEAD, np.uint32),
        scratch_undefined=np.full(scratch_shape, 0xFFFFFFFF, np.uint32),
        handover=Handover(wave_workgroup, wave_in_group),
    )
    waves = Waves(kernel.program, env, budget, np.asarray(turns or [0] * len(chosen))[wave_workgroup])
    with np.errstate(all="ignore"):
        waves.run(_start(kernel, launch, env))
    stores = {region.name: region.log.runs() for region in memory.regions}
    histogram = _histogram(kernel, env, waves)
    return SimulationResult(tuple(env.findings.values()), histogram, chosen, env.recording, stores, wave_workgroup)


def _grid(grid: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                yield x, y, z


def _as_buffer(value: Array | SimulatedBuffer) -> SimulatedBuffer:
    return value if isinstance(value, SimulatedBuffer) else SimulatedBuffer(value)


def pack_arguments(kernel: DecodedKernel, launch: SimulatedLaunch, addresses: Mapping[str, int]) -> bytes:
    """The kernarg segment: the caller's packer, or values at the offsets of the metadata.

    Raises:
        SimulationError: Missing, surplus or unfitting arguments.
    """
    if launch.pack is not None:
        return launch.pack(addresses)
    segment = bytearray(kernel.descriptor.kernarg_bytes)
    explicit = [argument for argument in kernel.arguments if not argument.kind.startswith("hidden_")]
    names = list(launch.arguments)
    named = any(argument.name in launch.arguments for argument in explicit)
    if len(names) > len(explicit):
        raise SimulationError(f"{kernel.name} takes {len(explicit)} arguments, {len(names)} given")
    for position, argument in enumerate(explicit):
        name = argument.name if named else (names[position] if position < len(names) else "")
        if name in launch.arguments:
            _place(segment, argument.offset, argument.size, name, launch.arguments[name], addresses)
    for argument in kernel.arguments:
        if argument.kind.startswith("hidden_"):
            _place_hidden(segment, argument.kind, argument.offset, argument.size, launch)
    return bytes(segment)


def _place(
    segment: bytearray, offset: int, size: int, name: str, value: ArgumentValue, addresses: Mapping[str, int]
) -> None:
    if name in addresses:
        if size != 8:
            raise SimulationError(f"argument {name} is an array, but the kernel takes {size} bytes there")
        struct.pack_into("<Q", segment, offset, addresses[name])
    elif isinstance(value, float):
        struct.pack_into("<f" if size == 4 else "<d", segment, offset, value)
    elif isinstance(value, (int, np.integer)):
        segment[offset : offset + size] = int(value).to_bytes(size, "little", signed=int(value) < 0)
    else:
        raise SimulationError(f"argument {name} has no place in the kernarg segment")


def _place_hidden(segment: bytearray, kind: str, offset: int, size: int, launch: SimulatedLaunch) -> None:
    values = {f"hidden_block_count_{axis}": launch.grid[i] for i, axis in enumerate("xyz")}
    values |= {f"hidden_group_size_{axis}": launch.block[i] for i, axis in enumerate("xyz")}
    values["hidden_grid_dims"] = 3
    values["hidden_dynamic_lds_size"] = launch.dynamic_lds_bytes
    segment[offset : offset + size] = values.get(kind, 0).to_bytes(size, "little")


def _start(kernel: DecodedKernel, launch: SimulatedLaunch, env: Environment) -> WaveGroup:
    """All waves at the entry with the registers that the loader sets."""
    group = initial_group(env, np.arange(len(env.wave_workgroup)))
    defined = _user_sgprs(kernel, group)
    for axis, enabled in enumerate(kernel.descriptor.workgroup_ids):
        if enabled:
            ids = np.array([workgroup[axis] for workgroup in env.workgroups], np.uint32)
            group.u[SGPR + defined][...] = ids[env.wave_workgroup][:, None]
            defined += 1
    item = env.wave_in_group[:, None] * LANES + np.arange(LANES)
    x, y, _ = launch.block
    group.u[0][...] = (item % x) | ((item // x % y) << 10) | ((item // (x * y)) << 20)
    ready = {0, *range(SGPR, SGPR + defined)}
    ready |= {EXEC, EXEC + 1}
    group.tracking.mark_undefined(kernel.program.registers - ready)
    partial = launch.block[0] * launch.block[1] * launch.block[2] % LANES
    if partial:
        last = env.wave_in_group == env.wave_in_group.max()
        group.scalars[last, 126] = ((1 << partial) - 1) & 0xFFFFFFFF
        group.scalars[last, 127] = ((1 << partial) - 1) >> 32
        group.refresh_exec()
    return group


def _user_sgprs(kernel: DecodedKernel, group: WaveGroup) -> int:
    """Fill the user SGPRs; returns their number."""
    position = 0
    memory = group.env.memory
    for name, size in kernel.descriptor.user_sgprs:
        value = memory.address_of["kernarg"] if name == "kernarg_segment_ptr" else 0
        for register in range(size):
            group.u[SGPR + position + register][...] = (value >> 32 * register) & 0xFFFFFFFF
        position += size
    first, count = kernel.descriptor.preload_offset, kernel.descriptor.preload_sgprs
    words = memory.regions[0].bytes[4 * first : 4 * (first + count)].view(np.uint32)
    for number, word in enumerate(words):
        group.u[SGPR + position + number][...] = word
    return position + count


def _histogram(kernel: DecodedKernel, env: Environment, waves: Waves) -> Histogram:
    by_class = dict.fromkeys(InstructionClass, 0)
    by_mnemonic: dict[str, int] = {}
    by_text: dict[str, int] = {}
    for instruction, count in zip(kernel.program.instructions, waves.counts.tolist(), strict=True):
        if count:
            by_class[instruction.kind] += count
            mnemonic, text = instruction.statement.mnemonic, instruction.statement.text
            by_mnemonic[mnemonic] = by_mnemonic.get(mnemonic, 0) + count
            by_text[text] = by_text.get(text, 0) + count
    return Histogram(
        by_class, by_mnemonic, by_text, len(env.wave_workgroup), int(waves.executed.max()), env.global_read_bytes,
        env.global_written_bytes, env.lds_read_bytes, env.lds_written_bytes,
    )  # fmt: skip
