"""What a device can do at most, and how much it remembers: the floor of a time, the size of a cold rotation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.device import DeviceKey
from kernels.problem import GemmShape

LAUNCH_FLOOR_US = 0.3  # no kernel of these ends sooner, whatever it computes: a shorter time measured nothing
FLOOR_MARGIN = 0.9  # data sheets round, and part of a rotation may survive in a cache that is not strictly LRU


@dataclass(frozen=True)
class Peak:
    """Ceilings of an architecture.

    Args:
        hbm_gbs: Memory bandwidth, GB/s.
        tflops: Dense rate of the matrix unit that multiplies MXFP4 here, TFLOP/s.
        cache_bytes: Last-level cache that the runtime does not report as L2; None where L2 is the last level.
        compute_units: That reach ``tflops`` together, where a process may be lent a partition of them.
    """

    hbm_gbs: float
    tflops: float
    cache_bytes: int | None = None
    compute_units: int | None = None

    def tflops_of(self, device: DeviceKey) -> float:
        """Rate of what ``device`` has of the GPU. A partition may use all of its memory's bandwidth."""
        share = 1.0 if self.compute_units is None else min(1.0, device.cu_count / self.compute_units)
        return self.tflops * share


PEAKS: Mapping[str, Peak] = {
    # MI355X: 8 TB/s, 10 PFLOP/s of FP4, 256 MB of Infinity Cache behind the L2s (AMD CDNA 4 white paper).
    "gfx950": Peak(8000.0, 10_000.0, 256 << 20, 256),
    # MI300X: 5.3 TB/s, 1307 TFLOP/s of bf16, 256 MB of Infinity Cache (AMD CDNA 3 white paper).
    "gfx942": Peak(5300.0, 1307.0, 256 << 20, 304),
    # H200: 4.8 TB/s, 989 TFLOP/s of dense bf16, to which FP4 operands are lowered (NVIDIA data sheet).
    "sm_90": Peak(4800.0, 989.0),
}


def roofline_us(shape: GemmShape, device: DeviceKey) -> float | None:
    """Least time that FLOPs and unique bytes allow, in microseconds; None for an architecture without a row."""
    peak = PEAKS.get(device.arch)
    if peak is None:
        return None
    return max(shape.flops / peak.tflops_of(device) * 1e-6, shape.unique_bytes / peak.hbm_gbs * 1e-3)


def floor_us(shape: GemmShape, device: DeviceKey, *, cold: bool) -> float:
    """Time in microseconds below which a measurement is broken; warm data may come from a cache."""
    peak = PEAKS.get(device.arch)
    if peak is None:
        return LAUNCH_FLOOR_US
    compute_us = shape.flops / peak.tflops_of(device) * 1e-6
    memory_us = shape.unique_bytes / peak.hbm_gbs * 1e-3 if cold else 0.0
    return max(LAUNCH_FLOOR_US, FLOOR_MARGIN * max(compute_us, memory_us))


def last_level_cache_bytes(device: DeviceKey, l2_bytes: int) -> int:
    """Bytes of the cache next to memory: the table's where it has one, else the L2 that the runtime reports."""
    peak = PEAKS.get(device.arch)
    return peak.cache_bytes if peak is not None and peak.cache_bytes is not None else l2_bytes
