"""search.device.peaks: the floor of a time, worked out by hand."""

from __future__ import annotations

import pytest

from kernels.device import GFX950, DeviceKey
from kernels.problem import GemmShape
from search.device.peaks import LAUNCH_FLOOR_US, floor_us, last_level_cache_bytes, roofline_us

H200 = DeviceKey("sm_90", 132)
SMALL_M = GemmShape(16, 2112, 7168)
# A and C in bf16, B at half a byte and a scale byte per 32: 229376 + 67584 + 7569408 + 473088 bytes.
SMALL_M_BYTES = 8_339_456
SQUARE = GemmShape(8192, 8192, 8192)  # 1.0995e12 FLOP


def test_a_small_m_is_bound_by_memory() -> None:
    assert roofline_us(SMALL_M, H200) == pytest.approx(SMALL_M_BYTES / 4.8e12 * 1e6)
    assert roofline_us(SMALL_M, GFX950) == pytest.approx(SMALL_M_BYTES / 8e12 * 1e6)


def test_a_large_square_is_bound_by_the_matrix_unit() -> None:
    assert roofline_us(SQUARE, H200) == pytest.approx(2 * 8192**3 / 989e12 * 1e6, rel=1e-3)
    assert roofline_us(SQUARE, GFX950) == pytest.approx(2 * 8192**3 / 10e15 * 1e6, rel=1e-2)


def test_warm_data_may_be_faster_than_memory_but_not_than_the_matrix_unit() -> None:
    assert floor_us(SMALL_M, H200, cold=True) == pytest.approx(0.9 * SMALL_M_BYTES / 4.8e12 * 1e6)
    assert floor_us(SMALL_M, H200, cold=False) == pytest.approx(0.9 * 2 * 16 * 2112 * 7168 / 989e12 * 1e6, rel=1e-3)
    assert floor_us(GemmShape(1, 64, 64), H200, cold=True) == LAUNCH_FLOOR_US


def test_an_unknown_architecture_has_no_roofline_and_the_least_floor() -> None:
    assert roofline_us(SMALL_M, DeviceKey("sm_75", 40)) is None
    assert floor_us(SMALL_M, DeviceKey("sm_75", 40), cold=True) == LAUNCH_FLOOR_US


def test_the_infinity_cache_counts_where_there_is_one_else_the_l2() -> None:
    assert last_level_cache_bytes(GFX950, 4 << 20) == 256 << 20
    assert last_level_cache_bytes(H200, 60 << 20) == 60 << 20


def test_a_partition_has_its_share_of_the_matrix_units_and_may_use_all_of_the_bandwidth() -> None:
    part = DeviceKey("gfx950", 32)  # one of eight dies
    assert roofline_us(SQUARE, part) == pytest.approx(8 * 2 * 8192**3 / 10e15 * 1e6, rel=1e-2)
    assert roofline_us(SMALL_M, part) == pytest.approx(SMALL_M_BYTES / 8e12 * 1e6)
