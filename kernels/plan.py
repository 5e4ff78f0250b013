"""A plan: the launches of one shape, compiled, with every argument but the addresses filled in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter

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
Arguments = tuple[int | str | bool, ...]


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
        constants: Its arguments that are no addresses.
        arrange: Puts (*addresses of the plan, *constants) into the kernel's order, leaving out what it does not take.
    """

    run: Runner
    constants: Arguments
    arrange: Callable[[Arguments], Arguments]


@dataclass(frozen=True)
class Plan:
    """Everything about a shape's launches that does not change between calls. Knows no weight and no tensor.

    Args:
        launches: In order.
        inner: (index into :data:`Addresses`, bytes to add) of each further address that a launch takes: of a buffer
            within the workspace, of the first row of a later part.
        workspace_bytes: To allocate for each call; 0 if none.
    """

    launches: tuple[Launch, ...]
    inner: tuple[tuple[int, int], ...]
    workspace_bytes: int

    def run(self, addresses: Addresses) -> None:
        """Launch on the current stream."""
        places: Arguments = addresses
        if self.inner:
            places += tuple([addresses[source] + offset for source, offset in self.inner])
        for launch in self.launches:
            launch.run(*launch.arrange(places + launch.constants))


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
    M = inputs.shape.M

    def program(rows: int) -> Program:
        return FAMILIES[family].program(GemmShape(rows, inputs.shape.N, inputs.shape.K), config, inputs.stride_am)

    step = rows_of_a_part(M, program, limit_bytes)
    programs = {first: program(min(step, M - first)) for first in range(0, M, step)}
    parts = [(part, _places(part, first, inputs)) for first, part in programs.items()]
    given = [(source, 0) for source in range(WORKSPACE + 1)]
    addresses = list(dict.fromkeys([*given, *(place for _, places in parts for place in places.values())]))
    launches: list[Launch] = []
    for part, places in parts:
        pointers = _pointers(part, inputs)
        sources = {name: addresses.index(place) for name, place in places.items()}
        launches += [_launch(call, sources, len(addresses), compile_call(call, pointers)) for call in part.calls]
    workspace_bytes = max(layout(part.workspaces).bytes for part in programs.values())
    return Plan(tuple(launches), tuple(addresses[len(given) :]), workspace_bytes)


def _places(program: Program, first: int, inputs: Inputs) -> dict[str, tuple[int, int]]:
    """Where each buffer of the part that begins at row ``first`` lies: index into :data:`Addresses`, bytes to add."""
    before = {"a": first * inputs.stride_am * BF16_BYTES, "out": first * inputs.shape.N * BF16_BYTES}
    places = {name: (index, before.get(name, 0)) for index, name in enumerate(CALLER)}
    return places | {name: (WORKSPACE, offset) for name, offset in layout(program.workspaces).offsets.items()}


def _launch(call: KernelCall, sources: Mapping[str, int], addresses: int, run: Runner) -> Launch:
    order: list[int] = []
    constants: list[int | str | bool] = []
    for name in call.kernel.arg_names:
        value = call.args[name] if name in call.args else call.constexprs[name]
        if name in call.args and isinstance(value, str):
            order.append(sources[value])
        else:
            order.append(addresses + len(constants))
            constants.append(value)
    return Launch(run, tuple(constants), _picker(order))


def _picker(order: list[int]) -> Callable[[Arguments], Arguments]:
    """What picks the elements at ``order`` from a tuple; ``itemgetter`` gives no tuple where it picks one."""
    pick: Callable[[Arguments], Arguments] = (
        itemgetter(*order) if len(order) > 1 else itemgetter(slice(order[0], order[0] + 1))
    )
    return pick


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
