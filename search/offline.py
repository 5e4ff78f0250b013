"""Judge candidates without a GPU: compile for gfx950, execute the code on the simulator, predict its time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from kernels.device import GFX950, DeviceKey
from kernels.errors import CompileError, IllegalConfigError, KernelError, ResourceLimitError
from kernels.families import FAMILIES
from kernels.problem import GemmShape
from kernels.program import KernelCall, Program
from search.evaluate import Candidate, Evaluation, Outcome, Value
from search.gate import SimulatedCall, SimulatorLimitError, check_program
from search.gfx950.artifacts import ArtifactCache
from search.gfx950.assembly import Analysis, analyze
from search.gfx950.compile import CompiledKernel, artifact_key
from search.gfx950.estimate import estimate_calls
from search.gfx950.machine import Machine
from search.gfx950.simulator import SimulationError, load_assembly
from search.gfx950.timing_model import MODEL_VERSION, predict, with_code
from search.signature import divisible_by_16, large_pointers, signature
from search.worker import WorkerDied, WorkerPool, WorkerTimedOut

PROTOCOL = f"offline-{MODEL_VERSION}"
TIMEOUT_S = 120.0  # of one candidate; a compilation takes about one second


def default_cache() -> Path:
    """Folder of compiled kernels: ``$XDG_CACHE_HOME/mxfp4-tune`` or ``~/.cache/mxfp4-tune``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mxfp4-tune"


@dataclass(frozen=True)
class CompiledCall:
    """One launch of a program with its machine code.

    Args:
        call: The launch.
        kernel: Its code.
        analysis: What the code needs and does.
        cached: Whether the code came from disk.
    """

    call: KernelCall
    kernel: CompiledKernel
    analysis: Analysis
    cached: bool

    @property
    def lds_bytes(self) -> int:
        return self.kernel.lds_bytes + self.analysis.resources.lds_bytes


class OfflineEvaluator:
    """Compiles candidates in worker processes and predicts their times.

    Args:
        device: What to compile for; gfx950 with any number of compute units.
        jobs: Worker processes; None takes one a core.
        cache: Folder of compiled kernels; None takes :func:`default_cache`.
        timeout_s: Limit of one candidate.
    """

    def __init__(
        self,
        device: DeviceKey = GFX950,
        *,
        jobs: int | None = None,
        cache: Path | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        count = jobs or len(os.sched_getaffinity(0))
        self.device = device
        self.protocol = PROTOCOL
        self.capacity = 2 * count  # one runs, one waits, so that no worker idles while the sampler thinks
        self._timeout_s = timeout_s
        self._logs = tempfile.TemporaryDirectory(prefix="mxfp4-tune-")
        function = partial(judge, device=device, cache=cache or default_cache(), logs=Path(self._logs.name))
        self._pool: WorkerPool[Candidate, Evaluation] = WorkerPool(function, count)

    def submit(self, candidate: Candidate) -> Future[Evaluation]:
        """Start judging ``candidate``; a worker that dies or hangs is the candidate's outcome."""
        answer: Future[Evaluation] = Future()
        answer.set_running_or_notify_cancel()

        def settle(done: Future[Evaluation]) -> None:
            error = None if done.cancelled() else done.exception()
            if done.cancelled() or isinstance(error, WorkerDied):
                answer.set_result(Evaluation("crashed", str(error or "cancelled")))
            elif isinstance(error, WorkerTimedOut):
                answer.set_result(Evaluation("timed_out", f"compilation: {error}"))
            elif error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(done.result())

        self._pool.submit(candidate, self._timeout_s).add_done_callback(settle)
        return answer

    def close(self) -> None:
        """Stop the workers."""
        self._pool.close()
        self._logs.cleanup()


def judge(candidate: Candidate, *, device: DeviceKey, cache: Path, logs: Path) -> Evaluation:
    """Compile ``candidate``, check what it needs and computes, and predict its time."""
    facts: dict[str, Value] = {"protocol": PROTOCOL}
    machine = Machine(cu_count=device.cu_count)
    family = FAMILIES[candidate.family]
    try:
        refusal = candidate.config.check(candidate.shape, device)
        if refusal is not None:
            raise IllegalConfigError(refusal)
        program = family.program(candidate.shape, candidate.config)
        compiled = [compile_call(program, call, ArtifactCache(cache), logs) for call in program.calls]
        facts |= _compiled_facts(compiled, machine)
        for one in compiled:
            check_resources(one, machine)
        facts |= {"deterministic": family.deterministic} | _checked_facts(program, compiled, candidate.shape)
    except KernelError as error:
        return Evaluation(cast(Outcome, error.outcome), str(error), facts=facts)
    works = estimate_calls(candidate.family, candidate.config.to_dict(), candidate.shape, machine)
    works = tuple(with_code(w, c.analysis, c.lds_bytes, machine) for w, c in zip(works, compiled, strict=True))
    prediction = predict(works, candidate.shape, machine)
    facts |= {"model": prediction.model, "bound": prediction.bound, "roofline_us": prediction.roofline_us}
    return Evaluation("ok", evidence="predicted", objective_us=prediction.predicted_us, facts=facts)


def compile_call(program: Program, call: KernelCall, cache: ArtifactCache, logs: Path) -> CompiledCall:
    """Machine code of ``call``, from disk where it was compiled before.

    Raises:
        CompileError: The compiler rejects it.
    """
    arguments = (call.kernel, signature(program, call), call.constexprs, call.options)
    alignment = {"divisible_by_16": divisible_by_16(call), "large_pointers": large_pointers(program, call)}
    known = cache.load(artifact_key(*arguments, **alignment))
    if isinstance(known, CompileError):
        raise known
    kernel = known or cache.compile(*arguments, **alignment, log=logs / f"{os.getpid()}.log")
    return CompiledCall(call, kernel, analyze(kernel.assembly), cached=known is not None)


def check_resources(one: CompiledCall, machine: Machine) -> None:
    """Refuse code that would run badly or not at all.

    Raises:
        ResourceLimitError: It spills, needs more LDS than a compute unit has, or lost an instruction it relies on.
    """
    name, needs, mix = one.call.name, one.analysis.resources, one.analysis.whole
    if one.lds_bytes > machine.lds_bytes:
        raise ResourceLimitError(f"{name} needs {one.lds_bytes} B of LDS, a compute unit has {machine.lds_bytes} B")
    if needs.vgpr_spills or needs.scratch_bytes:
        raise ResourceLimitError(
            f"{name} spills {needs.vgpr_spills} vector registers ({needs.scratch_bytes} B of scratch a lane)"
        )
    if "b" in one.call.args.values() and not mix.mfma_scaled:
        raise ResourceLimitError(f"{name} has no scaled MFMA: the compiler fell back to {mix.mfma_other:.0f} other MFMA")
    if one.call.constexprs.get("QUANTIZER") == "hardware" and not mix.cvt_scalef32:
        raise ResourceLimitError(f"{name} has no FP4 conversion instruction although the hardware quantiser was chosen")


def _compiled_facts(compiled: Sequence[CompiledCall], machine: Machine) -> dict[str, Value]:
    """Results columns of the compiled rung: the GEMM's code, and what holds for all launches together."""
    gemm = next(one for one in compiled if "b" in one.call.args.values())
    needs, mix = gemm.analysis.resources, gemm.analysis.whole
    waves = gemm.kernel.num_warps
    counted = ("cvt_scalef32", "valu", "transcendental", "lds_read", "lds_write", "lds_direct", "global_load",
               "global_store", "global_atomic", "scratch", "scalar", "waits", "barriers", "mfma_other")  # fmt: skip
    return {
        "kernels": len(compiled),
        "vgprs": needs.vgprs, "agprs": needs.agprs, "sgprs": needs.sgprs,
        "spills": needs.vgpr_spills, "sgpr_spills": needs.sgpr_spills, "scratch_bytes": needs.scratch_bytes,
        "lds_bytes": max(one.lds_bytes for one in compiled), "kernarg_bytes": needs.kernarg_bytes,
        "occupancy": int(machine.occupancy_waves_per_simd(needs.vgprs, gemm.lds_bytes, waves)),
        "workgroups_per_cu": int(machine.resident_workgroups(needs.vgprs, gemm.lds_bytes, waves)),
        "mfma": int(mix.mfma_scaled), **{name: int(getattr(mix, name)) for name in counted},
        "compile_s": sum(one.kernel.compile_s for one in compiled if not one.cached),
        "cached": all(one.cached for one in compiled),
    }  # fmt: skip


def _checked_facts(program: Program, compiled: Sequence[CompiledCall], shape: GemmShape) -> dict[str, Value]:
    """Results columns of the simulated rung.

    Raises:
        WrongResultError: The machine code computes something else.
        SimulatorLimitError: It could not be executed.
    """
    try:
        loaded = [
            SimulatedCall(one.call, load_assembly(one.kernel.assembly), one.kernel.num_warps, one.kernel.lds_bytes)
            for one in compiled
        ]
    except SimulationError as error:
        raise SimulatorLimitError(f"not checked: {error}") from error
    report = check_program(program, loaded, shape)
    return {
        "checked_on": "simulator", "mismatches": 0, "max_rel_error": report.max_rel_error,
        "check_s": report.check_s, "executed": sum(histogram.total for histogram in report.histograms),
    }  # fmt: skip
