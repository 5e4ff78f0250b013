"""Predicted time of a program on gfx950: limits of each unit, combined per round of workgroups.

A compute unit works through rounds of resident workgroups. A round lasts as long as its busiest unit, or as the
longest chain of one workgroup's dependent steps:

    simd    ceil(resident * waves / 4) * max(MFMA clocks / efficiency, 8 clk * MFMA + VALU clocks)
    lds     resident * waves / 4 * LDS clocks
    feed    resident * max(operand bytes / feed rate, waves * vector memory clocks)
    chain   a pipelined loop: max(steps * max(load latency / (stages - 1), step floor), one wave's own clocks)
            without pipelining: steps * load latency + one wave's own clocks
    kernel  launch + max(sum of rounds + written bytes / write rate, unique bytes / HBM rate)
    program sum of its kernels

With the tiles of AITER's kernels this is the model fitted to AITER's timings. Every number comes from
``search.gfx950.machine``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kernels.problem import GemmShape
from search.gfx950.code.assembly import Analysis, Resources
from search.gfx950.code.instruction_mix import VALU_CLKS, InstructionMix
from search.gfx950.machine import Machine, Number

MODEL_VERSION = "gfx950-t2"


@dataclass(frozen=True)
class CallWork:
    """One kernel launch, or one launch of each of many configurations.

    Args:
        workgroups: Of the launch; 0 if the program has no such launch.
        waves: Of one workgroup.
        resident: Workgroups that fit on a compute unit at once, at least 1.
        mfma: MFMA instructions that one wave executes.
        mfma_clks: Clocks of the matrix core for these.
        valu_clks: Issue clocks of one wave's VALU instructions.
        packed_clks: Of these, instructions that never run beside an MFMA.
        lds_clks: One wave's clocks on its quarter of the LDS bandwidth.
        vmem_clks: One wave's clocks on the compute unit's vector memory path.
        barriers: That one wave meets.
        steps: Dependent rounds of loads: trips of the K loop, 1 for a kernel without one.
        stages: Software-pipelining depth of that loop; 1 waits for each load.
        feed_bytes: Bytes that one workgroup loads.
        read_bytes: Distinct bytes that the launch reads.
        written_bytes: Bytes that the launch stores.
        atomic_bytes: Bytes that the launch adds atomically.
        from_hbm: False where an earlier kernel has just written what this one reads.
    """

    workgroups: Number
    waves: Number
    resident: Number = 1
    mfma: Number = 0
    mfma_clks: Number = 0
    valu_clks: Number = 0
    packed_clks: Number = 0
    lds_clks: Number = 0
    vmem_clks: Number = 0
    barriers: Number = 0
    steps: Number = 1
    stages: Number = 1
    feed_bytes: Number = 0
    read_bytes: Number = 0
    written_bytes: Number = 0
    atomic_bytes: Number = 0
    from_hbm: bool = True


def with_code(work: CallWork, analysis: Analysis, lds_bytes: int, machine: Machine) -> CallWork:
    """``work`` with the residency and the static instruction counts of its compiled code in place of estimates.

    Args:
        work: Estimate of the launch; its steps, grid and bytes stay.
        analysis: Of the compiled kernel.
        lds_bytes: LDS that the launch allocates.
        machine: Decides how many workgroups fit.
    """
    return with_executed(work, analysis.executed(float(work.steps)), analysis.resources, lds_bytes, machine)


def with_executed(
    work: CallWork, mix: InstructionMix, resources: Resources, lds_bytes: int, machine: Machine
) -> CallWork:
    """``work`` with the instructions that one wave executed and the residency of its compiled code.

    Args:
        work: Estimate of the launch; its steps, grid and bytes stay.
        mix: What the longest wave executes.
        resources: Of the compiled kernel.
        lds_bytes: LDS that the launch allocates.
        machine: Decides how many workgroups fit.
    """
    fitting = machine.resident_workgroups(resources.vgprs, lds_bytes, work.waves)
    return replace(
        work,
        resident=np.maximum(1, fitting),
        mfma=mix.mfma,
        mfma_clks=mix.mfma_clks,
        valu_clks=mix.valu_clks,
        packed_clks=VALU_CLKS * mix.packed_f32,
        lds_clks=mix.lds_clks,
        vmem_clks=mix.vmem_clks,
        barriers=mix.barriers,
    )


@dataclass(frozen=True)
class KernelTime:
    """Time of one launch in microseconds without the launch itself, and what each limit alone would take.

    Args:
        work_us: Predicted time.
        mfma_us: Matrix cores.
        valu_us: Vector instructions, with the clocks in which MFMA block them.
        lds_us: LDS bandwidth.
        feed_us: Operands into the compute units.
        latency_us: Dependent steps.
        hbm_us: Distinct bytes from memory.
        write_us: Results; added to the largest of the above but ``hbm_us``.
    """

    work_us: Number
    mfma_us: Number
    valu_us: Number
    lds_us: Number
    feed_us: Number
    latency_us: Number
    hbm_us: Number
    write_us: Number


LIMITS = ("mfma", "valu", "lds", "feed", "latency", "hbm", "write")


@dataclass(frozen=True)
class Prediction:
    """Predicted time of a program and where it goes. All times in microseconds.

    Args:
        predicted_us: Time of the whole program in the machine's harness.
        model: Version of the model.
        bound: Name of the largest term: ``launch``, ``extra``, or a limit of the largest kernel.
        roofline_us: Least time of the problem: dense FP4 peak or peak HBM bandwidth, whatever takes longer.
        launch_us: Fixed cost of the first kernel.
        extra_us: All kernels but the largest, with the fixed cost of each kernel beyond the first.
        mfma_us: This and the following are limits of the largest kernel, see :class:`KernelTime`.
        valu_us: Vector instructions.
        lds_us: LDS bandwidth.
        feed_us: Operands into the compute units.
        latency_us: Dependent steps.
        hbm_us: Distinct bytes from memory.
        write_us: Results.
    """

    predicted_us: float
    model: str
    bound: str
    roofline_us: float
    launch_us: float
    extra_us: float
    mfma_us: float
    valu_us: float
    lds_us: float
    feed_us: float
    latency_us: float
    hbm_us: float
    write_us: float

    @property
    def roofline_fraction(self) -> float:
        """Roofline time over predicted time."""
        return self.roofline_us / self.predicted_us


def predict(calls: Sequence[CallWork], shape: GemmShape, machine: Machine) -> Prediction:
    """Predicted time of the program that launches ``calls`` in order to compute ``shape``.

    Raises:
        ValueError: There are no calls.
    """
    if not calls:
        raise ValueError("a program has at least one call")
    total = float(total_us(calls, machine))
    times = [kernel_time(work, machine) for work in calls]
    works = [float(time.work_us) for time in times]
    main = times[int(np.argmax(works))]
    terms = {f"{name}_us": float(getattr(main, f"{name}_us")) for name in LIMITS}
    terms["launch_us"] = machine.harness.launch_us
    terms["extra_us"] = total - machine.harness.launch_us - float(main.work_us)
    return Prediction(
        predicted_us=total,
        model=MODEL_VERSION,
        bound=max(terms, key=lambda name: terms[name]).removesuffix("_us"),
        roofline_us=roofline_us(shape, machine),
        **terms,
    )


def total_us(calls: Sequence[CallWork], machine: Machine) -> Number:
    """Predicted time in microseconds of a program, or of each of many programs."""
    harness = machine.harness
    launches = sum(np.asarray(call.workgroups) > 0 for call in calls)
    work = sum(kernel_time(call, machine).work_us for call in calls)
    total: Number = harness.launch_us + (launches - 1) * harness.extra_kernel_us + work
    return total


def roofline_us(shape: GemmShape, machine: Machine) -> float:
    """Time in microseconds below which ``shape`` cannot be computed: A and C in bf16, B packed."""
    return max(
        shape.flops / (machine.fp4_peak_tflops * 1e6),
        shape.unique_bytes / (machine.hbm_peak_tbs * 1e6),
    )


def kernel_time(work: CallWork, machine: Machine) -> KernelTime:
    """Time of one launch beyond its fixed cost."""
    full = work.workgroups // (machine.cu_count * work.resident)
    left = np.ceil((work.workgroups - full * machine.cu_count * work.resident) / machine.cu_count)
    whole, rest = _round(work, work.resident, machine), _round(work, left, machine)
    units = {name: full * whole[name] + rest[name] for name in whole}
    rounds = full * _longest(whole) + _longest(rest)
    write = (work.written_bytes + machine.atomic_cost * work.atomic_bytes) / (machine.write_tbs * 1e6)
    hbm = _hbm_us(work, machine)
    busy = np.where(np.asarray(work.workgroups) > 0, np.maximum(rounds + write, hbm), 0.0)
    return KernelTime(work_us=busy, hbm_us=hbm, write_us=write, **units)


def _longest(limits: dict[str, Number]) -> Number:
    longest: Number = np.maximum.reduce(np.broadcast_arrays(*limits.values()))
    return longest


def _round(work: CallWork, resident: Number, machine: Machine) -> dict[str, Number]:
    """Microseconds of each limit while ``resident`` workgroups share a compute unit; 0 of them take no time."""
    clk_us = 1.0 / machine.clock_mhz
    waves = np.ceil(resident * work.waves / machine.simds)  # on the busiest SIMD
    vector_clks = machine.mfma_blocks_valu_clks * work.mfma + work.valu_clks
    path_clks = work.waves * work.vmem_clks
    return {
        "mfma_us": waves * (work.mfma_clks / machine.mfma_efficiency + work.packed_clks) * clk_us,
        "valu_us": waves * vector_clks * clk_us,
        "lds_us": resident * work.waves / machine.simds * work.lds_clks * clk_us,
        "feed_us": resident * np.maximum(work.feed_bytes / (machine.feed_gbs * 1e3), path_clks * clk_us),
        "latency_us": np.where(resident > 0, _chain_us(work, machine), 0.0),
    }


def _chain_us(work: CallWork, machine: Machine) -> Number:
    """Microseconds of one workgroup alone: its dependent steps and one wave's instructions in order."""
    clk_us = 1.0 / machine.clock_mhz
    latency = (machine.hbm_latency_clks if work.from_hbm else machine.l2_latency_clks) * clk_us
    own = work.mfma_clks + work.valu_clks + work.lds_clks + machine.barrier_clks * work.barriers
    ahead = np.maximum(work.stages - 1, 1)
    pipelined = np.maximum(work.steps * np.maximum(latency / ahead, machine.step_floor_us), own * clk_us)
    chain: Number = np.where(work.stages > 1, pipelined, work.steps * latency + own * clk_us)
    return chain


def _hbm_us(work: CallWork, machine: Machine) -> Number:
    rate = machine.hbm_bandwidth_tbs(np.maximum(work.workgroups, 1)) * 1e6
    return work.read_bytes / rate
