"""Hardware numbers of gfx950: what fits on a compute unit, how fast each part is, and what a harness adds.

Each number's comment gives its unit and source: *doc* vendor document or compiler source, *meas* measured on a
device in public work, *fit* fitted to AITER's published a4w4 timings, *assumed* by this project for want of better.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernels.device import GFX950, DeviceKey

ARCH = GFX950.architecture
Number: TypeAlias = float | NDArray[Any]  # a value, or one value for each of many configurations


@dataclass(frozen=True)
class Harness:
    """What a way of measuring adds to and allows of a kernel.

    Args:
        name: ``aiter``, ``gpumode``, ``cold`` or ``warm``.
        launch_us: What is measured besides the simulated work of a program of one kernel.
        extra_kernel_us: What each further kernel adds before it does anything.
        formula_us: As ``launch_us``, for the formula, whose work lacks all that a kernel does before its first load.
        hbm_tbs: (active workgroups, TB/s) of reading inputs; linear between points, constant beyond.
        interval: Relative: nine of ten measured times of rows that were not fitted lie within this of the prediction.
        tie: Relative: half of the pairs of one shape miss their ratio by more, so that closer ones are not told apart.
        warm_bytes: Operands of at most as many bytes are still in the Infinity Cache when they are read again.
    """

    name: str
    launch_us: float
    extra_kernel_us: float
    formula_us: float
    hbm_tbs: tuple[tuple[int, float], ...]
    interval: float = 0.12  # benchmarks/fit_timing.py: 371 tuned code objects of AITER (--every 3), layers left out
    tie: float = 0.046  # benchmarks/fit_timing.py: 96 pairs of logged configurations, layers left out
    warm_bytes: float = 0.0

    def is_warm(self, operand_bytes: float) -> bool:
        """Whether operands of as many bytes are in the Infinity Cache."""
        return operand_bytes <= self.warm_bytes


# AITER rotates copies of the arguments and sums the device time of the kernels, so each pays the launch.
AITER = Harness(
    name="aiter",
    launch_us=2.35,  # us, fit to its tuned code objects; the least that it reports for an empty kernel is 3.2 (meas)
    extra_kernel_us=2.2,  # us: device times of kernels are added
    formula_us=3.15,  # us, fit; an empty kernel takes 3.2 to 3.4 (meas)
    hbm_tbs=((1, 8.0),),  # TB/s, the peak, of which the exposed share takes its part; a compute unit limits small grids
    warm_bytes=2.5e6,  # it goes round at most 101 copies of the operands, which then fit the Infinity Cache
)
# GPU MODE fills 64 GB before each call, so that L2 and Infinity Cache are cold, and times between events.
GPUMODE = Harness(
    name="gpumode",
    launch_us=4.24,  # us, fit; the harness with no kernel takes 4.24 to 4.36 (meas)
    extra_kernel_us=1.45,  # us, fit: launch of a further kernel, its work excluded
    formula_us=5.1,  # us: as much more than launch_us as in AITER's harness
    hbm_tbs=((0, 0.0), (32, 1.53), (64, 2.86), (128, 4.58), (192, 5.63), (256, 6.44)),  # TB/s, meas
    interval=0.10,  # benchmarks/fit_timing.py: 30 logged configurations, layers left out
)


# This project's protocol (search.device.timing): replays of a graph of many launches, so that no launch is paid by the
# host. No time of a gfx950 under it is published: the numbers stand until one is calibrated.
COLD = Harness(
    name="cold",
    launch_us=1.2,  # us, set: AITER's, less what its profiler counts of an empty kernel
    extra_kernel_us=1.2,  # us, set: within 0.4 between queued kernels (meas) and AITER's
    formula_us=2.0,  # us, set: as above
    hbm_tbs=((1, 8.0),),  # TB/s, AITER's
)
WARM = replace(COLD, name="warm", warm_bytes=float(256 << 20))  # operands that fit stay in the Infinity Cache


@dataclass(frozen=True)
class Machine:
    """One gfx950 device seen through one harness. The defaults are an MI355X under AITER's harness."""

    name: str = "MI355X"
    harness: Harness = AITER
    cu_count: int = GFX950.cu_count  # compute units: 8 XCDs x 32 (doc); other gfx950 products have fewer
    clock_mhz: float = ARCH.clock_mhz  # MHz, peak engine clock (doc)
    simds: int = 4  # a compute unit (doc)
    max_waves_per_simd: int = 8  # waves of 64 lanes (doc)
    vgprs: int = ARCH.lane_registers  # registers of a lane, Arch + Acc (doc)
    vgpr_step: int = 8  # registers, allocation granularity (doc)
    lds_bytes: int = ARCH.lds_bytes  # B a compute unit (doc)
    lds_step_bytes: int = 1280  # B, allocation granularity (meas)
    mfma_efficiency: float = 0.80  # of the peak, before the soft maximum (fit; 5.8 of 10 PFLOP/s are sustained, meas)
    mfma_blocks_valu_clks: float = 8.0  # clk of each MFMA in which no VALU instruction issues (meas)
    l1_bytes_per_clk: float = 64.0  # B/clk a compute unit: dwordx4 16 clk a wave (meas)
    feed_gbs: float = 65.4  # GB/s of operands a compute unit takes in, before the soft maximum (fit)
    write_tbs: float = 4.0  # TB/s of results, all compute units together (fit)
    atomic_cost: float = 2.0  # bytes written that one byte of atomics counts as: read and write (assumed)
    l2_latency_clks: float = 300.0  # clk, load round trip of an idle machine (fit)
    hbm_latency_clks: float = 920.0  # clk, the same (fit)
    cache_tbs: float = 8.5  # TB/s, Infinity Cache (doc)
    exposed_share: float = 0.44  # of the time to read cold operands once (fit)
    step_floor_us: float = 0.054  # us, shortest step of a K loop (fit)
    barrier_clks: float = 100.0  # clk that a wave loses at a barrier, LDS round trip included (assumed)

    def waves_by_registers(self, vgprs: Number) -> Number:
        """Waves a SIMD holds at ``vgprs`` registers a lane: 64 -> 8, 72 -> 7, ... 256 -> 2."""
        steps = np.ceil(np.maximum(vgprs, 1) / self.vgpr_step)
        held: Number = np.minimum(self.max_waves_per_simd, self.vgprs // (steps * self.vgpr_step))
        return held

    def resident_workgroups(self, vgprs: Number, lds_bytes: Number, waves_per_workgroup: Number) -> Number:
        """Workgroups a compute unit holds at once; 0 if not even one fits.

        Args:
            vgprs: Registers of a lane, accumulation registers included.
            lds_bytes: LDS of a workgroup, allocated at launch.
            waves_per_workgroup: Waves of 64 lanes.
        """
        by_registers = self.simds * self.waves_by_registers(vgprs) // waves_per_workgroup
        allocated = np.maximum(1, np.ceil(np.asarray(lds_bytes) / self.lds_step_bytes)) * self.lds_step_bytes
        resident: Number = np.minimum(by_registers, self.lds_bytes // allocated)
        return resident

    def occupancy_waves_per_simd(self, vgprs: Number, lds_bytes: Number, waves_per_workgroup: Number) -> Number:
        """Average waves on each SIMD of a full compute unit."""
        resident = self.resident_workgroups(vgprs, lds_bytes, waves_per_workgroup)
        return resident * waves_per_workgroup / self.simds

    def hbm_bandwidth_tbs(self, workgroups: Number) -> Number:
        """Read bandwidth in TB/s of ``workgroups``, as many as there are compute units at most."""
        counts, rates = zip(*self.harness.hbm_tbs, strict=True)
        reached: Number = np.interp(np.minimum(workgroups, self.cu_count), counts, rates)
        return reached


MI355X = Machine()


def machine_of(device: DeviceKey) -> Machine | None:
    """What this model knows ``device`` as; None where it is of another architecture, for which it says nothing."""
    return Machine(cu_count=device.cu_count) if device.arch == GFX950.arch else None
