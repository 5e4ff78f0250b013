"""A submission for the GPU MODE problem ``amd-mxfp4-mm``: one file with the kernels and the chosen configurations."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import triton.language as tl
from triton.runtime.jit import KernelInterface

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.families import FAMILIES
from kernels.launches.program import KernelCall, Program
from kernels.problem import GemmShape
from kernels.tables.rows import TunedTable
from search.formats.format import WHOLE, Format, Old, Written

if TYPE_CHECKING:
    from kernels.runtime.planner import Choice

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
TARGET_INFO = "triton.language.target_info"  # what a kernel asks of its target
_HEADER = '''\
"""MXFP4 GEMM for the GPU MODE problem amd-mxfp4-mm, generated from a table of tuned configurations for {device}."""

import torch
import triton
import triton.language as tl
'''
_ENTRY = '''
def custom_kernel(data):
    """C [M, N] = bf16(Q(A) @ B.T) for data = (A, B, B_q, B_shuffle, B_scale_sh)."""
    a, dense, _, b, b_scale = data
    M, N, K = a.shape[0], dense.shape[0], a.shape[1]
    if (M, N, K) not in PROGRAMS:
        raise ValueError(f"no configuration for {M}x{N}x{K}")
    workspaces, launches = PROGRAMS[M, N, K]
    tensors = {name: torch.empty(shape, dtype=dtype, device=a.device) for name, (dtype, shape) in workspaces.items()}
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
        InputError: The table is not for gfx950, has no row for a ranked shape, or a row's family is not written in
            Triton.
    """
    if table.device.arch != GFX950.arch:
        raise InputError(f"the table is for {table.device}; the problem runs on gfx950: name a table of gfx950")
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
    programs = {shape: FAMILIES[choice.family].program(shape, choice.config) for shape, choice in chosen.items()}
    sources = _Sources()
    for shape, program in programs.items():
        for call in program.calls:
            kernel: Any = call.kernel
            sources.add(kernel.function, f"{chosen[shape].family} of {shape}")
    entries = "".join(_entry(shape, chosen[shape], program) for shape, program in programs.items())
    legend = (
        "# (M, N, K): workspaces, launches of (kernel, grid, arguments, constants, options); a text names a tensor\n"
    )
    return "\n".join(
        (_HEADER.format(device=table.device), sources.text(), f"{legend}PROGRAMS = {{\n{entries}}}\n", _ENTRY)
    )


def write_table(table: TunedTable, old: Old) -> Written:
    """The submission; one that is there is replaced.

    Raises:
        InputError: As :func:`render_submission`.
    """
    return Written({WHOLE: render_submission(table)}, added=len(table.rows))


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
    return f"    # {why}\n    {key}: ({{{workspaces}}}, (\n{launches}    )),\n"


def _launch(call: KernelCall) -> str:
    arguments, constants, options = dict(call.args), dict(call.constexprs), dict(call.options)
    return f"({call.name}, {call.grid}, {arguments}, {constants}, {options})"


FORMAT = Format(
    "gpumode", "a submission.py for the GPU MODE problem amd-mxfp4-mm: rows of Triton families", write_table=write_table
)
