"""Triton kernels compiled for gfx950 on any machine, without a GPU or its driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

import triton
from triton._C.libtriton import get_cache_invalidating_env_vars, ir
from triton.backends.amd.compiler import HIPOptions
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend

from kernels.device import GFX950
from kernels.errors import CompileError
from kernels.launches.triton_kernel import COMPILER_ERRORS
from kernels.rocm.toolchain import triton_version
from search.workers.compiler_output import captured_stderr, diagnostic_line, reason, written

ARCH = GFX950.arch
WAVE_SIZE = GFX950.architecture.wave
# The set-up of the compiler itself, not knobs of one kernel.
FIXED_OPTIONS = frozenset({"arch", "backend_name", "extern_libs"})


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel as gfx950 assembly.

    Args:
        num_warps: Waves of one workgroup.
        lds_bytes: LDS that the launch allocates; the assembly's own LDS size is 0.
        compile_s: Seconds the compiler took, when it ran.
        assembly: AMDGPU assembly text with the kernel descriptor and metadata.
    """

    name: str
    arch: str
    triton_version: str
    num_warps: int
    lds_bytes: int
    compile_s: float
    assembly: str


def valid_options() -> frozenset[str]:
    """Launch options that the installed AMD backend knows, such as ``num_warps`` or ``waves_per_eu``."""
    return frozenset(option.name for option in fields(HIPOptions)) - FIXED_OPTIONS


@dataclass(frozen=True)
class Specialization:
    """A kernel with all that decides its machine code; :func:`search.gfx950.code.calls.specialize` makes a launch's.

    Pointers are taken as 16-byte aligned and, but for ``large_pointers``, to point to less than 2 GB, as the
    AMD runtime does for such tensors: their loads become ``buffer_load``.

    Args:
        signature: Triton type of each run-time argument by name: ``*bf16``, ``*u8``, ``i32``, ...
        constexprs: Value of each compile-time argument by name.
        options: Launch options, see :func:`valid_options`.
        divisible_by_16: Names of integer arguments known to be multiples of 16.
        large_pointers: Names of pointers to tensors of 2 GB or more.
    """

    fn: Any
    signature: Mapping[str, str]
    constexprs: Mapping[str, object]
    options: Mapping[str, object] = field(default_factory=dict)
    divisible_by_16: tuple[str, ...] = ()
    large_pointers: tuple[str, ...] = ()
    arch: str = ARCH

    def key(self) -> str:
        """SHA-256, in hex, of everything that decides the machine code.

        That is the kernel's source with every function it calls, its types, constants and alignments, the
        options, the Triton version, the architecture, and the environment variables that Triton's compiler obeys.

        Raises:
            TypeError: As :meth:`compile`.
        """
        _check_kernel(self.fn)
        parts = (
            self.fn.cache_key,
            *(sorted(mapping.items()) for mapping in (self.signature, self.constexprs, self.options)),
            sorted(self.divisible_by_16),
            sorted(self.large_pointers),
            triton_version(),
            self.arch,
            sorted(get_cache_invalidating_env_vars().items()),
        )
        return sha256(repr(parts).encode()).hexdigest()

    def compile(self, log: Path | None = None) -> CompiledKernel:
        """Its code. Neither a GPU nor a driver is used, and Triton's own disk cache is bypassed.

        Args:
            log: File for what the compiler writes on its error stream; it outlives a compiler that aborts.

        Raises:
            CompileError: The compiler rejects the kernel; the message is one line.
            TypeError: ``fn`` is not a compilable Triton function, e.g. because TRITON_INTERPRET=1 was set.
            ValueError: An argument has no type or value, or an option is unknown or out of range.
        """
        _check_kernel(self.fn)
        _check_options(self.options)
        source = _source(self)
        # FP fusion is what Triton up to 3.9 does by default; 3.9 warns when it is left open.
        chosen = {"enable_fp_fusion": True, **self.options}
        start = time.perf_counter()
        with captured_stderr(log) as stream, _no_line_tables():
            try:
                assembly, metadata = _lower(source, self.arch, chosen)
            except COMPILER_ERRORS as error:
                raise CompileError(reason(error, written(stream))) from error
            unheeded = diagnostic_line(written(stream))
        if unheeded:  # LLVM reports inline assembly that it cannot place, drops it, and goes on
            raise CompileError(unheeded)
        return CompiledKernel(
            name=metadata["name"],
            arch=self.arch,
            triton_version=triton.__version__,
            num_warps=metadata["num_warps"],
            lds_bytes=metadata["shared"],
            compile_s=time.perf_counter() - start,
            assembly=assembly,
        )


def _check_kernel(fn: Any) -> None:
    if not isinstance(fn, triton.JITFunction):
        raise TypeError(f"{fn!r} is not a compilable triton.jit function (is TRITON_INTERPRET=1 set?)")


def _check_options(options: Mapping[str, object]) -> None:
    unknown = sorted(set(options) - valid_options())
    if unknown:
        raise ValueError(f"Triton {triton.__version__} has no AMD option {', '.join(unknown)}")
    num_warps = options.get("num_warps", 4)
    if not isinstance(num_warps, int) or num_warps < 1 or num_warps & (num_warps - 1):
        raise ValueError(f"num_warps={num_warps!r} is not a power of two")


def _source(wanted: Specialization) -> ASTSource:
    names: list[str] = list(wanted.fn.arg_names)
    types, constants = wanted.signature, wanted.constexprs
    unknown = sorted({*types, *constants, *wanted.divisible_by_16, *wanted.large_pointers} - set(names))
    missing = [name for name in names if name not in types and name not in constants]
    if unknown or missing:
        raise ValueError(f"{wanted.fn.__name__}: no argument {unknown}, no type or value for {missing}")
    given = {name: "constexpr" if name in constants else types[name] for name in names}
    attributes: dict[tuple[int, ...], list[list[str | int]]] = {}
    for index, name in enumerate(names):
        if given[name].startswith("*") or name in wanted.divisible_by_16:
            attributes[(index,)] = [["tt.divisibility", 16]]
        if given[name].startswith("*") and name not in wanted.large_pointers:
            attributes[(index,)].append(["tt.pointer_range", 32])
    return ASTSource(wanted.fn, given, dict(constants), attributes)


def _lower(source: ASTSource, arch: str, options: Mapping[str, object]) -> tuple[str, dict[str, Any]]:
    """Assembly of ``source`` and what the stages noted: ``name``, ``num_warps``, ``shared``.

    These are the stages of ``triton.compile``, which spends a tenth more time on hashing its inputs, printing every
    stage's module into its cache, and assembling and linking the code.
    """
    target = GPUTarget("hip", arch, WAVE_SIZE)
    backend = make_backend(target)
    parsed = backend.parse_options(dict(options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions, modules = backend.get_codegen_implementation(parsed), backend.get_module_map()
    module: Any = source.make_ir(target, parsed, functions, modules, context)
    stages: dict[str, Callable[[Any, dict[str, Any]], Any]] = {}
    backend.add_stages(stages, parsed, source.language)
    metadata: dict[str, Any] = {"target": target, **vars(parsed)}
    for name, stage in stages.items():
        module = stage(module, metadata)
        if name == "amdgcn":
            break
    return module, metadata


@contextmanager
def _no_line_tables() -> Iterator[None]:
    """No line tables in the assembly."""
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.disable_line_info = True
        yield
