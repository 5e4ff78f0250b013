"""A plan: the launches of one shape, compiled, with every argument but the addresses filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.config import KernelConfig
from kernels.families import FAMILIES
from kernels.launch import TORCH_DTYPES
from kernels.problem import GemmShape
from kernels.program import KernelCall, Program
from kernels.runner import Compile, PointerSpec, Runner
from kernels.workspace import LIMIT_BYTES, layout, rows_of_a_part

CALLER = ("a", "b", "b_scale", "out")  # the tensors of a call; the workspace allocation follows as the fifth
WORKSPACE = len(CALLER)
BF16_BYTES = 2

Addresses = tuple[int, int, int, int, int]  # of a, b, b_scale, out and the workspace


@dataclass(frozen=True)
class Inputs:
    """What a plan depends on besides the configuration.

    Args:
        shape: Problem.
        stride_am: Elements between rows of A.
        misaligned: Bit i is set where the address of ``CALLER[i]`` is no multiple of 16.
    """

    shape: GemmShape
    stride_am: int
    misaligned: int = 0


@dataclass(frozen=True)
class Launch:
    """One kernel with its arguments.

    Args:
        run: Compiled and loaded kernel.
        arguments: All of them in order, 0 in place of an address.
        slots: (position, index into :data:`Addresses`, bytes to add) of each address.
    """

    run: Runner
    arguments: list[int | str | bool]
    slots: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Plan:
    """Everything about a shape's launches that does not change between calls. Knows no weight and no tensor.

    Args:
        launches: In order.
        workspace_bytes: To allocate for each call; 0 if none.
    """

    launches: tuple[Launch, ...]
    workspace_bytes: int

    def run(self, addresses: Addresses) -> None:
        """Launch on the current stream."""
        for launch in self.launches:
            arguments = launch.arguments.copy()
            for position, source, offset in launch.slots:
                arguments[position] = addresses[source] + offset
            launch.run(*arguments)


def build_plan(
    family: str, config: KernelConfig, inputs: Inputs, compile_call: Compile, limit_bytes: int = LIMIT_BYTES
) -> Plan:
    """Compile and arrange what ``config`` needs.

    Args:
        family: Name in ``FAMILIES``.
        config: Legal for the shape.
        inputs: Shape, stride and alignment.
        compile_call: Makes a runner of a launch.
        limit_bytes: Bound of the workspace; beyond it rows are computed in parts.

    Raises:
        Exception: Whatever ``compile_call`` raises.
    """
    M, N, K = inputs.shape.M, inputs.shape.N, inputs.shape.K

    def program(rows: int) -> Program:
        return FAMILIES[family].program(GemmShape(rows, N, K), config, inputs.stride_am)

    step = rows_of_a_part(M, program, limit_bytes)
    launches: list[Launch] = []
    workspace_bytes = 0
    for first in range(0, M, step):
        part = program(min(step, M - first))
        before = {"a": first * inputs.stride_am * BF16_BYTES, "out": first * N * BF16_BYTES}
        launches += _launches(part, before, inputs, compile_call)
        workspace_bytes = max(workspace_bytes, layout(part.workspaces).bytes)
    return Plan(tuple(launches), workspace_bytes)


def _launches(program: Program, before: Mapping[str, int], inputs: Inputs, compile_call: Compile) -> list[Launch]:
    """Launches of one part, whose rows begin ``before`` bytes after the start of A and of C."""
    places = {name: (index, before.get(name, 0)) for index, name in enumerate(CALLER)}
    places |= {name: (WORKSPACE, offset) for name, offset in layout(program.workspaces).offsets.items()}
    pointers = _pointers(program, inputs)
    return [_launch(call, places, compile_call(call, pointers)) for call in program.calls]


def _launch(call: KernelCall, places: Mapping[str, tuple[int, int]], run: Runner) -> Launch:
    arguments: list[int | str | bool] = []
    slots: list[tuple[int, int, int]] = []
    for position, name in enumerate(call.kernel.arg_names):
        value = call.args[name] if name in call.args else call.constexprs[name]
        if name in call.args and isinstance(value, str):
            slots.append((position, *places[value]))
            value = 0
        arguments.append(value)
    return Launch(run, arguments, tuple(slots))


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
