"""One candidate without a GPU, in a worker process: compile, execute the code on the simulator, predict its time."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kernels.device import DeviceKey
from kernels.errors import IllegalConfigError, KernelError
from kernels.families import FAMILIES
from kernels.launches.program import Program
from search.evaluation import Candidate, Evaluation, Outcome, Value
from search.evaluators.offline_task import CLIMB, Bar, OfflineTask, protocol_of
from search.gate.check import GateReport, check_program, load_calls
from search.gate.served import check_served
from search.gfx950.code.artifacts import ArtifactCache
from search.gfx950.code.calls import CompiledCall, check_resources, compile_call, compiled_facts
from search.gfx950.machine import Machine
from search.gfx950.model.calibrated import Model
from search.gfx950.model.executed import executed_call, predict_works, program_works
from search.gfx950.model.families import estimate_calls, is_modelled
from search.gfx950.model.formula import FORMULA_VERSION, CallWork, total_us
from search.gfx950.model.launch_time import LaunchWork
from search.gfx950.model.static_counts import static_counts, with_code
from search.gfx950.simulator import Histogram


def judge(task: OfflineTask, *, device: DeviceKey, cache: Path, model: Model, climb: float = CLIMB) -> Evaluation:
    """Compile the candidate, check what it needs and computes, and predict its time."""
    candidate, machine = task.candidate, model.machine
    facts: dict[str, Value] = {"protocol": protocol_of(model)}
    deterministic = FAMILIES[candidate.family].is_deterministic(candidate.config)
    try:
        program = _legal_program(candidate, device)
        compiled = _compile(program, ArtifactCache(cache), task.logs)
        facts |= compiled_facts(compiled, machine)
        for one in compiled:
            check_resources(one, machine)
        formula_us = code_us(candidate, compiled, machine)
        facts |= {"formula_us": formula_us}
        if task.bar is not None and formula_us is not None and formula_us > climb * task.bar.formula_us:
            return _not_executed(formula_us, task.bar, facts)
        report = check_program(program, load_calls(compiled), candidate.shape)
        facts |= {"deterministic": deterministic} | _checked_facts(compiled, report)
        check_served(candidate, lambda other: _compile(other, ArtifactCache(cache), task.logs), device)
    except KernelError as error:
        return Evaluation(cast(Outcome, error.outcome), str(error), facts=facts)
    works = ExecutedCandidate(program, compiled, report).works(machine)
    prediction = predict_works(works, candidate.shape, machine, model.constants)
    facts |= {
        "model": prediction.model, "bound": prediction.bound, "roofline_us": prediction.roofline_us,
        "predicted_lo_us": prediction.lo_us, "predicted_hi_us": prediction.hi_us, "predicted_tie": prediction.tie,
    }  # fmt: skip
    return Evaluation("ok", evidence="predicted", objective_us=prediction.predicted_us, facts=facts)


def code_us(candidate: Candidate, compiled: Sequence[CompiledCall], machine: Machine) -> float | None:
    """What the formula makes of the compiled code, without executing it; None where it has no model or no text."""
    if not is_modelled(candidate.family) or not all(one.kernel.assembly for one in compiled):
        return None
    works = estimate_calls(candidate.family, candidate.config.to_dict(), candidate.shape, machine)
    return float(total_us([_coded(*pair, machine) for pair in zip(works, compiled, strict=True)], machine))


def _coded(work: CallWork, one: CompiledCall, machine: Machine) -> CallWork:
    counts = static_counts(one.kernel.assembly).executed(float(work.steps))
    return with_code(work, counts, one.analysis.resources, one.lds_bytes, machine)


def _not_executed(formula_us: float, bar: Bar, facts: Mapping[str, Value]) -> Evaluation:
    """A candidate whose code is too slow by the formula; its time is that of the best, times the formula's ratio."""
    ratio = formula_us / bar.formula_us
    reason = f"not executed: by {FORMULA_VERSION} on the compiled code {ratio:.2f} times as slow as the best"
    facts = {**facts, "model": f"{FORMULA_VERSION}-code"}
    return Evaluation("slow", reason, "predicted", ratio * bar.predicted_us, facts)


@dataclass(frozen=True, eq=False)
class ExecutedCandidate:
    """A candidate whose code was executed and is right."""

    program: Program
    compiled: Sequence[CompiledCall]
    report: GateReport

    def works(self, machine: Machine) -> tuple[LaunchWork, ...]:
        """What each launch does, for :func:`~search.gfx950.model.executed.predict_works`."""
        pairs = zip(self.compiled, self.report.recordings, strict=True)
        return program_works(self.program, [executed_call(one, recording, machine) for one, recording in pairs])


def execute_candidate(candidate: Candidate, device: DeviceKey, cache: ArtifactCache, logs: Path) -> ExecutedCandidate:
    """Compile and execute ``candidate``; ``logs`` is a folder of its own, gone afterwards.

    Raises:
        KernelError: It is illegal, does not compile, or is wrong.
    """
    program = _legal_program(candidate, device)
    compiled = _compile(program, cache, logs)
    return ExecutedCandidate(program, compiled, check_program(program, load_calls(compiled), candidate.shape))


def _legal_program(candidate: Candidate, device: DeviceKey) -> Program:
    refusal = candidate.config.check(candidate.shape, device)
    if refusal is not None:
        raise IllegalConfigError(refusal)
    return FAMILIES[candidate.family].program(candidate.shape, candidate.config)


def _compile(program: Program, cache: ArtifactCache, logs: Path) -> list[CompiledCall]:
    logs.mkdir(parents=True, exist_ok=True)
    compiled = [compile_call(program, call, cache, logs) for call in program.calls]
    shutil.rmtree(logs)
    return compiled


def _checked_facts(compiled: Sequence[CompiledCall], report: GateReport) -> dict[str, Value]:
    """Results columns of the simulated rung."""
    gemm = next(histogram for one, histogram in zip(compiled, report.histograms, strict=True) if one.is_gemm)
    return {
        "checked_on": "simulator", "mismatches": 0, "max_rel_error": report.max_rel_error,
        "check_s": report.check_s, "executed": sum(histogram.total for histogram in report.histograms),
        **executed_columns(gemm),
    }  # fmt: skip


def executed_columns(histogram: Histogram) -> Mapping[str, float]:
    """Results columns ``executed_<class>``: instructions of the average wave."""
    return {f"executed_{kind.value}": count for kind, count in histogram.per_wave().items()}
