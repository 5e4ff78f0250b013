"""A program as gfx950 machine code: what is compiled for each launch, and what it uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.errors import KernelError, ResourceLimitError, UnavailableError
from kernels.launches.native import HipKernel, PrebuiltKernel
from kernels.launches.program import Kernel, KernelCall, Program
from kernels.launches.triton_kernel import TritonKernel, backend_options
from search.evaluation import Value
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.assembly import Analysis, analyze
from search.gfx950.code.rocm import build_hip, loaded_code_object, read_code_object
from search.gfx950.code.triton import CompiledKernel, Specialization
from search.gfx950.machine import Machine
from search.gfx950.simulator import DecodedKernel, SimulationError, load_assembly
from search.gfx950.simulator.state.findings import SimulatorLimitError

LOG_SUFFIX = ".log"
COUNTED = (
    "cvt_scalef32", "valu", "transcendental", "lds_read", "lds_write", "lds_direct", "global_load", "global_store",
    "global_atomic", "scratch", "scalar", "waits", "barriers", "mfma_other",
)  # fmt: skip


@dataclass(frozen=True)
class CompiledCall:
    """One launch of a program with its machine code."""

    call: KernelCall
    kernel: CompiledKernel
    analysis: Analysis
    cached: bool

    @property
    def lds_bytes(self) -> int:
        """LDS of a workgroup."""
        return self.kernel.lds_bytes + self.analysis.resources.lds_bytes

    def decoded(self) -> DecodedKernel:
        """The code, for the simulator.

        Raises:
            SimulationError: It has an instruction that is not modelled.
        """
        kernel: Any = self.call.kernel
        return load_assembly(self.kernel.assembly) if self.kernel.assembly else loaded_code_object(kernel)

    @property
    def is_gemm(self) -> bool:
        """Whether it is the launch that reads the weight."""
        return "b" in self.call.args.values()


def compile_call(program: Program, call: KernelCall, cache: ArtifactCache, logs: Path) -> CompiledCall:
    """Machine code of ``call``, from disk where it was compiled before.

    Args:
        logs: Folder for the compiler's error stream, a file named by the artifact's key. It is there only while the
            compiler runs, so one that is left tells which compilation took the process with it.

    Raises:
        CompileError: The compiler rejects it, or aborted on it before.
        TimedOutError: It did not end in time before.
        UnavailableError: A compiler or a disassembler is missing.
        SimulatorLimitError: A code object that cannot be read.
    """
    make = MACHINE_CODE.get(type(call.kernel))
    if make is None:
        raise UnavailableError(f"{call.name} runs inside of its library, on a GPU only")
    return make(program, call, cache, logs)


def _triton_code(program: Program, call: KernelCall, cache: ArtifactCache, logs: Path) -> CompiledCall:
    wanted = specialize(program, call)
    key = wanted.key()
    known = cache.load(key)
    if isinstance(known, KernelError):
        raise known
    if known is not None:
        return CompiledCall(call, known, analyze(known.assembly), cached=True)
    log = logs / f"{key}{LOG_SUFFIX}"
    try:
        kernel = cache.compile(wanted, log)
    finally:
        log.unlink(missing_ok=True)
    return CompiledCall(call, kernel, analyze(kernel.assembly), cached=False)


def _hip_code(program: Program, call: KernelCall, cache: ArtifactCache, logs: Path) -> CompiledCall:
    kernel: Any = call.kernel
    built, cached = build_hip(kernel, cache.folder)
    return CompiledCall(call, built, analyze(built.assembly), cached)


def _prebuilt_code(program: Program, call: KernelCall, cache: ArtifactCache, logs: Path) -> CompiledCall:
    kernel: Any = call.kernel
    try:
        return CompiledCall(call, *read_code_object(kernel), cached=True)
    except SimulationError as error:
        raise SimulatorLimitError(f"not checked: {error}") from error


MACHINE_CODE: Mapping[type[Kernel], Callable[[Program, KernelCall, ArtifactCache, Path], CompiledCall]] = {
    TritonKernel: _triton_code,
    HipKernel: _hip_code,
    PrebuiltKernel: _prebuilt_code,
}


def check_resources(one: CompiledCall, machine: Machine) -> None:
    """Refuse code that would run badly or not at all.

    Raises:
        ResourceLimitError: It spills, needs more LDS than a compute unit has, or lost an instruction it relies on.
    """
    name, needs, mix = one.call.name, one.analysis.resources, one.analysis.mix
    if one.lds_bytes > machine.lds_bytes:
        raise ResourceLimitError(f"{name} needs {one.lds_bytes} B of LDS, a compute unit has {machine.lds_bytes} B")
    if needs.vgpr_spills or needs.scratch_bytes:
        raise ResourceLimitError(
            f"{name} spills {needs.vgpr_spills} vector registers ({needs.scratch_bytes} B of scratch a lane)"
        )
    if one.is_gemm and not mix.mfma_scaled:
        raise ResourceLimitError(f"{name} lost its scaled MFMA: the compiler took {mix.mfma_other:.0f} other MFMA")
    if one.call.constexprs.get("QUANTIZER") == "hardware" and not mix.cvt_scalef32:
        raise ResourceLimitError(f"{name} has no FP4 conversion instruction although the hardware quantiser was chosen")


def compiled_facts(compiled: Sequence[CompiledCall], machine: Machine) -> dict[str, Value]:
    """Results columns of the compiled rung: the GEMM's code, and what holds for all launches together."""
    gemm = next(one for one in compiled if one.is_gemm)
    needs, mix = gemm.analysis.resources, gemm.analysis.mix
    waves = gemm.kernel.num_warps
    return {
        "kernels": len(compiled),
        "vgprs": needs.vgprs, "agprs": needs.agprs, "sgprs": needs.sgprs,
        "spills": needs.vgpr_spills, "sgpr_spills": needs.sgpr_spills, "scratch_bytes": needs.scratch_bytes,
        "lds_bytes": max(one.lds_bytes for one in compiled), "kernarg_bytes": needs.kernarg_bytes,
        "occupancy": int(machine.occupancy_waves_per_simd(needs.vgprs, gemm.lds_bytes, waves)),
        "workgroups_per_cu": int(machine.resident_workgroups(needs.vgprs, gemm.lds_bytes, waves)),
        "mfma": int(mix.mfma_scaled), **{name: int(getattr(mix, name)) for name in COUNTED},
        "compile_s": sum(one.kernel.compile_s for one in compiled if not one.cached),
        "cached": all(one.cached for one in compiled),
    }  # fmt: skip


INT32_BYTES = 1 << 31  # tensors from this size on are not addressed by 32-bit offsets


def specialize(program: Program, call: KernelCall) -> Specialization:
    """What the launcher compiles for ``call``, a launch of a Triton kernel of ``program``, on gfx950."""
    kernel: Any = call.kernel
    return Specialization(
        kernel.function,
        _signature(program, call),
        call.constexprs,
        backend_options(call.options, amd=True),
        _divisible_by_16(call, kernel.function),
        _large_pointers(program, call),
    )


def _signature(program: Program, call: KernelCall) -> dict[str, str]:
    """Triton type of each run-time argument of ``call``."""
    return {
        name: f"*{program.buffer(value).dtype}" if isinstance(value, str) else "i32"
        for name, value in call.args.items()
    }


def _divisible_by_16(call: KernelCall, function: Any) -> tuple[str, ...]:
    """Integer arguments that the launcher would find to be multiples of 16 and specialise on."""
    unspecialized = set(function.do_not_specialize or ())
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
