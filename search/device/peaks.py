"""What a device can do at most, and how much it remembers: the floor of a time, the size of a cold rotation."""

from __future__ import annotations

from kernels.device import DeviceKey
from kernels.problem import GemmShape

LAUNCH_FLOOR_US = 0.3  # no kernel of these ends sooner, whatever it computes: a shorter time measured nothing
FLOOR_MARGIN = 0.9  # data sheets round, and part of a rotation may survive in a cache that is not strictly LRU


def roofline_us(shape: GemmShape, device: DeviceKey) -> float | None:
    """Least time that FLOPs and unique bytes allow, in microseconds; None for an architecture without a row.

    A partition has its share of the matrix units, and may use all of the memory's bandwidth.
    """
    return max(_limits_us(shape, device), default=None)


def _limits_us(shape: GemmShape, device: DeviceKey) -> tuple[float, ...]:
    return device.architecture.limits_us(device.cu_count, shape.flops, shape.unique_bytes)


def floor_us(shape: GemmShape, device: DeviceKey, *, cold: bool) -> float:
    """Time in microseconds below which a measurement is broken; warm data may come from a cache."""
    limits = _limits_us(shape, device)
    return max((LAUNCH_FLOOR_US, *(FLOOR_MARGIN * limit for limit in (limits if cold else limits[:1]))))


def last_level_cache_bytes(device: DeviceKey, l2_bytes: int) -> int:
    """Bytes of the cache next to memory: the architecture's where it has one, else the L2 that the runtime reports."""
    return device.architecture.cache_bytes or l2_bytes
