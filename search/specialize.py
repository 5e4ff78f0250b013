"""How a kernel call is compiled ahead of time: the types, alignments and options that the launcher would choose."""

from __future__ import annotations

from kernels.launch import backend_options
from kernels.program import KernelCall, Program
from search.gfx950.compile import Specialization

INT32_BYTES = 1 << 31  # tensors from this size on are not addressed by 32-bit offsets


def specialize(program: Program, call: KernelCall) -> Specialization:
    """What the launcher compiles for ``call``, a launch of a Triton kernel of ``program``, on gfx950."""
    return Specialization(
        call.kernel,
        _signature(program, call),
        call.constexprs,
        backend_options(call.options, amd=True),
        _divisible_by_16(call),
        _large_pointers(program, call),
    )


def _signature(program: Program, call: KernelCall) -> dict[str, str]:
    """Triton type of each run-time argument of ``call``."""
    return {
        name: f"*{program.buffer(value).dtype}" if isinstance(value, str) else "i32"
        for name, value in call.args.items()
    }


def _divisible_by_16(call: KernelCall) -> tuple[str, ...]:
    """Integer arguments that the launcher would find to be multiples of 16 and specialise on."""
    unspecialized = set(call.kernel.do_not_specialize or ())
    return tuple(
        name
        for name, value in call.args.items()
        if isinstance(value, int) and value % 16 == 0 and name not in unspecialized
    )


def _large_pointers(program: Program, call: KernelCall) -> tuple[str, ...]:
    """Pointer arguments whose tensors are 2 GB or larger."""
    return tuple(
        name
        for name, value in call.args.items()
        if isinstance(value, str) and program.buffer(value).bytes >= INT32_BYTES
    )
