"""Predicted time of a program on gfx950: limits of each unit, combined per round of workgroups.

The formula for shortlists of knobs, before anything is compiled. What was executed is timed by the simulation of
:mod:`search.gfx950.model.executed`. Of code that was compiled and cannot win, and so is not executed, the prediction is
the best one's, times the ratio of the two by this formula; its ``model`` ends in ``-code``.

A compute unit works through rounds of resident workgroups. A round first waits for its first load; then it lasts as
long as its busiest unit or the longest chain of one workgroup's dependent steps, by a soft maximum: units overlap, but
never perfectly, and a hard one makes ties of tiles that differ:

    simd    ceil(resident * waves / 4) * max(MFMA clocks / efficiency, 8 clk * MFMA + VALU clocks)
    lds     resident * waves / 4 * LDS clocks
    feed    resident * max(operand bytes / feed rate, waves * vector memory clocks)
    chain   a pipelined loop: max((steps - 1) * max(load latency / (stages - 1), step floor), own clocks)
            without pipelining: (steps - 1) * load latency + own clocks, of all waves of a workgroup on one SIMD
    kernel  launch + max(sum of rounds + written bytes / write rate, unique bytes / HBM rate)
            + a share of the time to read memory once, which nothing hides, where operands are cold
            + what the last workgroup does once all others have ended
    program sum of its kernels

With the tiles of AITER's kernels this is the model fitted to AITER's timings. Every number comes from
``search.gfx950.machine``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from search.gfx950.machine import Machine, Number

FORMULA_VERSION = "gfx950-t4"
SOFTNESS = 3.5  # power of the soft maximum (fit to AITER's tuned code objects)


@dataclass(frozen=True)
class CallWork:
    """One kernel launch, or one launch of each of many configurations.

    Args:
        workgroups: Of the launch; 0 if the program has no such launch.
        resident: Workgroups that fit on a compute unit at once, at least 1.
        mfma: MFMA instructions that one wave executes.
        mfma_clks: Clocks of the matrix core for these.
        valu_clks: Issue clocks of one wave's VALU instructions.
        packed_clks: Of these, instructions that never run beside an MFMA.
        lds_clks: One wave's clocks on its quarter of the LDS bandwidth.
        vmem_clks: One wave's clocks on the compute unit's vector memory path.
        steps: Dependent rounds of loads: trips of the K loop, 1 for a kernel without one.
        stages: Software-pipelining depth of that loop; 1 waits for each load.
        feed_bytes: Bytes that one workgroup loads.
        read_bytes: Distinct bytes that the launch reads.
        written_bytes: Bytes that the launch stores.
        atomic_bytes: Bytes that the launch adds atomically.
        from_hbm: False where an earlier kernel has just written what this one reads.
        tail_clks: What the last workgroup does once all others have ended.
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
    tail_clks: Number = 0


@dataclass(frozen=True)
class KernelTime:
    """Time of one launch in microseconds without the launch itself, and what each limit alone would take.

    Args:
        valu_us: Vector instructions, with the clocks in which MFMA block them.
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


def total_us(calls: Sequence[CallWork], machine: Machine) -> Number:
    """Predicted time in microseconds of a program, or of each of many programs."""
    harness = machine.harness
    launches = sum(np.asarray(call.workgroups) > 0 for call in calls)
    work = sum(kernel_time(call, machine).work_us for call in calls)
    total: Number = harness.formula_us + (launches - 1) * harness.extra_kernel_us + work
    return total


def kernel_time(work: CallWork, machine: Machine) -> KernelTime:
    """Time of one launch beyond its fixed cost."""
    full = work.workgroups // (machine.cu_count * work.resident)
    left = np.ceil((work.workgroups - full * machine.cu_count * work.resident) / machine.cu_count)
    whole, rest = _round(work, work.resident, machine), _round(work, left, machine)
    units = {name: full * whole[name] + rest[name] for name in whole}
    fill = _latency_clks(work, machine) / machine.clock_mhz  # of the first load: nothing computes before it arrives
    rounds = full * (_longest(whole) + fill) + _longest(rest) + fill * (left > 0)
    write = (work.written_bytes + machine.atomic_cost * work.atomic_bytes) / (machine.write_tbs * 1e6)
    hbm = _hbm_us(work, machine)
    late = np.where(_is_cold(work, machine), machine.exposed_share * hbm, 0.0) + work.tail_clks / machine.clock_mhz
    busy = np.where(np.asarray(work.workgroups) > 0, np.maximum(rounds + write, hbm) + late, 0.0)
    return KernelTime(work_us=busy, hbm_us=hbm, write_us=write, **units)


def _longest(limits: dict[str, Number]) -> Number:
    """Soft maximum of ``limits``, over the largest so that no power overflows."""
    values = np.stack(np.broadcast_arrays(*limits.values())).astype(float)
    largest = np.maximum(values.max(axis=0), np.finfo(float).tiny)
    total: Number = largest * ((values / largest) ** SOFTNESS).sum(axis=0) ** (1 / SOFTNESS)
    return np.where(values.max(axis=0) > 0, total, 0.0)


def _is_cold(work: CallWork, machine: Machine) -> Number:
    """Whether operands come from memory: neither an earlier kernel nor the harness left them in the Infinity Cache."""
    cold: Number = np.logical_and(work.from_hbm, np.asarray(work.read_bytes) > machine.harness.warm_bytes)
    return cold


def _latency_clks(work: CallWork, machine: Machine) -> Number:
    clks: Number = np.where(_is_cold(work, machine), machine.hbm_latency_clks, machine.l2_latency_clks) * (
        np.asarray(work.steps) > 0
    )
    return clks


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
    latency = _latency_clks(work, machine) * clk_us
    one = work.mfma_clks + work.valu_clks + work.lds_clks + machine.barrier_clks * work.barriers
    own = one * np.ceil(np.asarray(work.waves) / machine.simds) * clk_us
    further = np.maximum(np.asarray(work.steps) - 1, 0)
    ahead = np.maximum(np.asarray(work.stages) - 1, 1)
    pipelined = np.maximum(further * np.maximum(latency / ahead, machine.step_floor_us), own)
    chain: Number = np.where(np.asarray(work.stages) > 1, pipelined, further * latency + own)
    return chain


def _hbm_us(work: CallWork, machine: Machine) -> Number:
    cold = machine.hbm_bandwidth_tbs(np.maximum(work.workgroups, 1))
    rate = np.where(_is_cold(work, machine), cold, machine.cache_tbs) * 1e6
    return work.read_bytes / rate
