"""A product made ready to run again and again: its launches and the workspace they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from kernels.config import KernelConfig
from kernels.families import FAMILIES
from kernels.launches.program import Buffer, KernelCall, Loaded, PointerSpec, Program, Runner
from kernels.problem import GemmShape
from kernels.runtime.runner import TORCH_DTYPES, MakeRunner, settle_cache_keys, spec_of

CALLER = ("a", "b", "b_scale", "out")  # the tensors of a call; the workspace follows as the fifth, then the tickets
WORKSPACE, TICKETS = len(CALLER), len(CALLER) + 1
BF16_BYTES = 2
Addresses = tuple[int, int, int, int, int, int]  # of a, b, b_scale, out, the workspace and the tickets


def address_of(memory: torch.Tensor | None) -> int:
    """Where ``memory`` begins; 0 for none."""
    return 0 if memory is None else memory.data_ptr()


@dataclass(frozen=True)
class Inputs:
    """What a plan depends on besides the configuration.

    Args:
        stride_am: Elements between rows of A.
        misaligned: Bit i is set where the address of ``CALLER[i]`` is no multiple of 16.
    """

    shape: GemmShape
    stride_am: int
    misaligned: int = 0


@dataclass(frozen=True)
class PreparedLaunch:
    """One kernel with its arguments.

    Args:
        arguments: All of them in order, 0 in place of an address.
        slots: (position, index into :data:`Addresses`, bytes to add) of each address.
    """

    run: Runner
    arguments: list[int | str | bool | None]
    slots: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Plan:
    """Everything about a shape's launches that does not change between calls. Knows no weight and no tensor.

    Args:
        workspace_bytes: To allocate for each call; 0 if none.
        ticket_bytes: Of counters that are zero between calls, see :mod:`kernels.runtime.tickets`; 0 if none.
    """

    launches: tuple[PreparedLaunch, ...]
    workspace_bytes: int
    ticket_bytes: int = 0

    def run(self, addresses: Sequence[int]) -> None:
        """Launch on the current stream."""
        for launch in self.launches:
            arguments = launch.arguments.copy()
            for position, source, offset in launch.slots:
                arguments[position] = addresses[source] + offset
            launch.run(*arguments)


@dataclass(frozen=True)
class LoadedProgram:
    """A program on the GPU whose buffers are tensors that the caller gives, workspaces included."""

    program: Program
    kernels: tuple[Loaded, ...]
    plan: Plan

    def run(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Launch on the current stream; ``tensors`` are as those that it was loaded for."""
        self.plan.run([tensors[buffer.name].data_ptr() for buffer in self.program.buffers])


def load_program(program: Program, tensors: Mapping[str, torch.Tensor]) -> LoadedProgram:
    """Compile and load every kernel of ``program``, or interpret it.

    Args:
        tensors: One tensor a buffer, by name, with at least the buffer's extents.

    Raises:
        Exception: As :func:`kernels.runtime.runner.make_runner`.
    """
    settle_cache_keys()
    pointers = {buffer.name: spec_of(tensors[buffer.name]) for buffer in program.buffers}
    places = {buffer.name: (index, 0) for index, buffer in enumerate(program.buffers)}
    kernels = tuple(call.kernel.load(call, pointers) for call in program.calls)
    launches = (_launch(call, places, kernel.run) for call, kernel in zip(program.calls, kernels, strict=True))
    return LoadedProgram(program, kernels, Plan(tuple(launches), 0))


LIMIT_BYTES = 512 << 20  # of one call: a product that needs more is computed in parts, some rows of C at a time


def build_plan(
    family: str, config: KernelConfig, inputs: Inputs, make: MakeRunner, limit_bytes: int = LIMIT_BYTES
) -> Plan:
    """Compile and arrange what ``config`` needs.

    Args:
        limit_bytes: Bound of the workspace; beyond it rows are computed in parts.

    Raises:
        Exception: Whatever ``make`` raises.
    """
    M, N, K = inputs.shape.M, inputs.shape.N, inputs.shape.K

    def program(rows: int) -> Program:
        return FAMILIES[family].program(GemmShape(rows, N, K), config, inputs.stride_am)

    step = rows_of_a_part(M, program, limit_bytes)
    launches: list[PreparedLaunch] = []
    workspace_bytes = ticket_bytes = 0
    for first in range(0, M, step):
        part = program(min(step, M - first))
        before = {"a": first * inputs.stride_am * BF16_BYTES, "out": first * N * BF16_BYTES}
        launches += _launches(part, before, inputs, make)
        workspace_bytes = max(workspace_bytes, layout(part.workspaces).bytes)
        ticket_bytes = max(ticket_bytes, layout(part.tickets).bytes)
    return Plan(tuple(launches), workspace_bytes, ticket_bytes)


def _launches(program: Program, before: Mapping[str, int], inputs: Inputs, make: MakeRunner) -> list[PreparedLaunch]:
    """Launches of one part, whose rows begin ``before`` bytes after the start of A and of C."""
    places = {name: (index, before.get(name, 0)) for index, name in enumerate(CALLER)}
    for source, buffers in ((WORKSPACE, program.workspaces), (TICKETS, program.tickets)):
        places |= {name: (source, offset) for name, offset in layout(buffers).offsets.items()}
    pointers = _pointers(program, inputs)
    return [_launch(call, places, make(call, pointers)) for call in program.calls]


def _launch(call: KernelCall, places: Mapping[str, tuple[int, int]], run: Runner) -> PreparedLaunch:
    arguments: list[int | str | bool | None] = []
    slots: list[tuple[int, int, int]] = []
    for position, name in enumerate(call.kernel.arg_names):
        value = call.args[name] if name in call.args else call.constexprs[name]
        if name in call.args and isinstance(value, str):
            slots.append((position, *places[value]))
            value = 0
        arguments.append(value)
    return PreparedLaunch(run, arguments, tuple(slots))


def _pointers(program: Program, inputs: Inputs) -> dict[str, PointerSpec]:
    """What holds of each buffer's pointer. A part starts whole rows after the start, which keeps the alignment."""
    found: dict[str, PointerSpec] = {}
    for buffer in program.buffers:
        size = buffer.bytes
        if buffer.name == "a":
            size = ((buffer.shape[0] - 1) * inputs.stride_am + buffer.shape[1]) * BF16_BYTES
        aligned = buffer.name not in CALLER or not inputs.misaligned >> CALLER.index(buffer.name) & 1
        found[buffer.name] = PointerSpec(TORCH_DTYPES[buffer.dtype], size, aligned)
    return found


ALIGNMENT_BYTES = 256  # of each workspace: whole cache lines (128 bytes on CDNA 4), and more than any vector access
ROW_STEP = 256  # rows of a part are a multiple: the row padding of the scales, so that no tile spans two parts


@dataclass(frozen=True)
class WorkspaceLayout:
    """Places of the workspaces in one allocation.

    Args:
        offsets: First byte of each, by name.
    """

    offsets: Mapping[str, int]
    bytes: int


def layout(buffers: tuple[Buffer, ...]) -> WorkspaceLayout:
    """Place ``buffers`` one behind the other, aligned."""
    offsets: dict[str, int] = {}
    end = 0
    for buffer in buffers:
        offsets[buffer.name] = end
        end += -(-buffer.bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return WorkspaceLayout(offsets, end)


def rows_of_a_part(M: int, program: Callable[[int], Program], limit_bytes: int = LIMIT_BYTES) -> int:
    """Return the rows to compute at a time so that the workspaces stay within the limit; ``M`` if all fit.

    A row of a table may serve a larger M, and split-K slices grow with M: unbounded, a row tuned for M = 256 with
    16 splits would ask for 15 GB at M = 32768, N = 7168.

    Args:
        limit_bytes: What the workspaces of a part may take; a part has at least ``ROW_STEP`` rows whatever they need.
    """
    rows = M
    while rows > ROW_STEP and layout(program(rows).workspaces).bytes > limit_bytes:
        rows = -(-rows // 2 // ROW_STEP) * ROW_STEP
    return rows
