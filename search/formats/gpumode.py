"""A submission for the GPU MODE problem ``amd-mxfp4-mm``: one file with the kernels and the chosen configurations."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import triton.language as tl
from triton.runtime.jit import KernelInterface

from kernels.config import KernelConfig
from kernels.device import GFX950
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.families.family import Family
from kernels.launches.program import KernelCall, Program
from kernels.problem import GemmShape
from kernels.tables.rows import TunedTable
from search.formats.format import WHOLE, Format, LeftOut, Old, Reading, Trial, Written, judged, make_config, reading

if TYPE_CHECKING:
    from kernels.tables import Choice

# Shapes of the problem statement: the ranked ones, and those that a submission must also compute right.
BENCHMARK_SHAPES = tuple(
    GemmShape(*sizes)
    for sizes in (
        (4, 2880, 512), (16, 2112, 7168), (32, 4096, 512), (32, 2880, 512), (64, 7168, 2048), (256, 3072, 1536),
    )
)  # fmt: skip
TEST_SHAPES = tuple(
    GemmShape(*sizes) for sizes in ((8, 2112, 7168), (16, 3072, 1536), (64, 3072, 1536), (256, 2880, 512))
)
PREFIXES = {"reduce_kernel": "REDUCE_", "quantize_kernel": "QUANT_", "round_kernel": "QUANT_"}  # of a kernel's tile
KNOBS = {"NUM_XCDS": "num_xcds", "SPLIT_K": "split_k", "CACHE": "cache_modifier", "QUANTIZER": "quantizer",
         "A_OPERAND": "a_operand"}  # fmt: skip
PROTOCOL = "exported for GPU MODE without a time"
BUILTIN = "__triton_builtin__"  # what Triton's compiler calls with its own state while it compiles
OURS = "kernels."
TARGET_INFO = "triton.language.target_info"  # what a kernel asks of its target
_HEADER = '''\
"""MXFP4 GEMM for the GPU MODE problem amd-mxfp4-mm, generated from a table of tuned configurations for {device}."""

import torch
import triton
import triton.language as tl
'''
_ENTRY = '''
TICKETS = {}


def custom_kernel(data):
    """C [M, N] = bf16(Q(A) @ B.T) for data = (A, B, B_q, B_shuffle, B_scale_sh)."""
    a, dense, _, b, b_scale = data
    M, N, K = a.shape[0], dense.shape[0], a.shape[1]
    if (M, N, K) not in PROGRAMS:
        raise ValueError(f"no configuration for {M}x{N}x{K}")
    workspaces, launches, tickets = PROGRAMS[M, N, K]
    if (M, N, K) not in TICKETS:  # launches leave them zero
        TICKETS[M, N, K] = {name: torch.zeros(n, dtype=torch.int32, device=a.device) for name, n in tickets.items()}
    tensors = {name: torch.empty(shape, dtype=dtype, device=a.device) for name, (dtype, shape) in workspaces.items()}
    tensors |= TICKETS[M, N, K]
    tensors["a"] = a.contiguous()
    tensors["b"] = b.view(torch.uint8)
    tensors["b_scale"] = b_scale.view(torch.uint8)
    tensors["out"] = torch.empty((M, N), dtype=torch.bfloat16, device=a.device)
    for kernel, grid, arguments, constants, options in launches:
        values = {name: tensors[value] if isinstance(value, str) else value for name, value in arguments.items()}
        kernel[grid](**values, **constants, **options)
    return tensors["out"]
'''


def render_submission(table: TunedTable) -> str:
    """Text of a self-contained ``submission.py``, which needs torch and Triton only.

    It computes the ten shapes of the problem. Each ranked shape runs the configuration that the dispatcher would
    take from ``table``; a shape that is only tested may run a default.

    Raises:
        InputError: The table is not for ``GFX950``, has no row for a ranked shape, or a row's family is not written in
            Triton.
    """
    chosen = _choices(table)
    programs = {shape: FAMILIES[choice.family].program(shape, choice.config) for shape, choice in chosen.items()}
    sources = _Sources()
    for shape, program in programs.items():
        for call in program.calls:
            kernel: Any = call.kernel
            sources.add(kernel.function, f"{chosen[shape].family} of {shape}")
    entries = "".join(_entry(shape, chosen[shape], program) for shape, program in programs.items())
    legend = (
        "# (M, N, K): workspaces, launches of (kernel, grid, arguments, constants, options), tickets\n"
        "# A text names a tensor.\n"
    )
    return "\n".join(
        (_HEADER.format(device=table.device), sources.text(), f"{legend}PROGRAMS = {{\n{entries}}}\n", _ENTRY)
    )


def _choices(table: TunedTable) -> dict[GemmShape, Choice]:
    """What the dispatcher would run for each shape of the problem; raises as :func:`render_submission`."""
    if table.device.arch != GFX950.arch:
        raise InputError(
            f"the table is for {table.device}; the problem runs on {GFX950.arch}: name a table of {GFX950.arch}"
        )
    from kernels.runtime.dispatcher import Dispatcher  # loads torch, which reading other formats does not need

    dispatcher = Dispatcher(table.device, table)
    chosen = {shape: dispatcher.choose(shape) for shape in (*BENCHMARK_SHAPES, *TEST_SHAPES)}
    missing = [shape for shape in BENCHMARK_SHAPES if chosen[shape].lookup.row is None]
    if missing:
        first = chosen[missing[0]].lookup.explanation
        why = first if len(missing) == 1 else f"sweep {' '.join(map(str, missing))} and export"
        raise InputError(f"no row for {', '.join(map(str, missing))}: {why}")
    for shape, choice in chosen.items():
        if not FAMILIES[choice.family].is_triton:
            raise InputError(_foreign(f"{choice.family} of {shape}"))
    return chosen


def write_table(table: TunedTable, old: Old) -> Written:
    """The submission; one that is there is replaced.

    Raises:
        InputError: As :func:`render_submission`.
    """
    return Written({WHOLE: render_submission(table)}, added=len(table.rows))


def recognises(path: Path, text: str) -> bool:
    """Whether the file is a submission."""
    return path.suffix == ".py" and "def custom_kernel(" in text


def read(path: Path, text: str) -> Reading:
    """A trial for each shape of a submission that was exported from here; nothing of it is executed.

    An entry counts where the configuration found in it makes exactly the launches that it holds.
    """
    try:
        entries = list(_programs(ast.parse(text)))
    except SyntaxError as error:
        raise ValueError(f"no Python: {error}") from error
    if not entries:
        return Reading((), (LeftOut(path.name, "a submission whose configurations are not in a table PROGRAMS"),))
    return reading(((f"{path.name} {ast.unparse(key)}", (key, node)) for key, node in entries), _judged)


def _programs(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Key and value of each entry of the table."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and _names(node) == ["PROGRAMS"]:
            yield from ((key, value) for key, value in zip(node.value.keys, node.value.values, strict=True) if key)


def _names(node: ast.Assign) -> list[str]:
    return [ast.unparse(target) for target in node.targets]


def _judged(entry: tuple[ast.expr, Any]) -> Trial:
    try:
        return judged(_trial(*entry))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"not as exported from here ({error})") from error


def _trial(key: ast.expr, node: Any) -> Trial:
    shape = GemmShape(*ast.literal_eval(key))
    launches = [tuple(_value(part) for part in launch.elts) for launch in node.elts[1].elts]
    for family in FAMILIES.values():
        if family.is_triton:
            config = _config(family, launches)
            if config is None:
                continue
            made = family.program(shape, config).calls
            if [(call.name, call.grid, call.args, call.constexprs, call.options) for call in made] == launches:
                return Trial(GFX950, shape, family.name, config, protocol=PROTOCOL, reason=PROTOCOL)
    raise ValueError("no family makes these launches")


def _value(node: ast.expr) -> Any:
    """A name as text, anything else as it is."""
    return node.id if isinstance(node, ast.Name) else ast.literal_eval(node)


def _config(family: Family, launches: Sequence[tuple[Any, ...]]) -> KernelConfig | None:
    """The family's configuration by what its kernels are given; None where it has no knob of that value."""
    known: dict[str, Any] = {}
    for name, _, _, constants, options in launches:
        prefix = PREFIXES.get(name, "")
        known |= {f"{prefix}{KNOBS.get(word, word)}": value for word, value in {**constants, **options}.items()}
    values = {name: known[name] for name in family.config_type().to_dict() if name in known}
    try:
        return make_config(family.name, values)
    except ValueError:
        return None


def _foreign(where: str) -> str:
    return f"{where}: its kernels are not written in Triton; export a table without such rows"


class _Sources:
    """Sources of kernels and of everything they call, each once, callees first."""

    def __init__(self) -> None:
        self._constants: dict[str, str] = {}
        self._functions: dict[str, str] = {}

    def add(self, kernel: Any, where: str) -> None:
        """Take in ``kernel``.

        Raises:
            InputError: It is not written in Triton.
        """
        if not isinstance(kernel, KernelInterface):
            raise InputError(_foreign(where))
        function = kernel.fn
        if function.__name__ in self._functions:
            return
        source = textwrap.dedent(inspect.getsource(function))
        for name, value in _globals(source, function.__globals__):
            if isinstance(value, KernelInterface):
                self.add(value, where)
            elif getattr(value, "__module__", "") == TARGET_INFO:
                self._constants[name] = f"from {TARGET_INFO} import {name}\n"
            elif isinstance(value, tl.constexpr):
                self._constants[name] = f"{name} = tl.constexpr({value.value!r})\n"
            elif getattr(value, BUILTIN, False) and value.__module__.startswith(OURS):
                self._functions[name] = f"{inspect.getsource(value)}\n\n{name}.{BUILTIN} = True\n"
        self._functions[function.__name__] = source

    def text(self) -> str:
        """Constants, then functions."""
        return "".join(self._constants.values()) + "\n\n" + "\n\n".join(self._functions.values())


def _globals(source: str, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Global names that ``source`` uses, in order, with their values."""
    names = (node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name))
    return ((name, known[name]) for name in dict.fromkeys(names) if name in known)


def _entry(shape: GemmShape, choice: Choice, program: Program) -> str:
    from kernels.runtime.runner import TORCH_DTYPES  # loads torch

    row = choice.lookup.row
    why = str(row) if row is not None else f"{choice.family}, a default"
    workspaces = ", ".join(
        f'"{buffer.name}": ({TORCH_DTYPES[buffer.dtype]}, {buffer.shape})' for buffer in program.workspaces
    )
    launches = "".join(f"        {_launch(call)},\n" for call in program.calls)
    key = (shape.M, shape.N, shape.K)
    tickets = {buffer.name: buffer.shape[0] for buffer in program.tickets}
    return f"    # {why}\n    {key}: ({{{workspaces}}}, (\n{launches}    ), {tickets}),\n"


def _launch(call: KernelCall) -> str:
    arguments, constants, options = dict(call.args), dict(call.constexprs), dict(call.options)
    return f"({call.name}, {call.grid}, {arguments}, {constants}, {options})"


FORMAT = Format("submission.py", recognises, read, write_table, lost="times")
