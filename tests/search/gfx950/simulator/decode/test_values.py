"""How operands of each type are read and results written: values worked out from the formats."""

from __future__ import annotations

import numpy as np
import pytest

from search.gfx950.simulator.decode.values import (
    HALVES,
    WRITERS,
    bf16_bits,
    bits_of,
    computed,
    from_bits,
    rows_swapped,
    saturated,
)


def test_bits_come_back_as_the_number() -> None:
    numbers = np.array([[1, 0x80000000, 0xDEADBEEF]], np.uint32)
    assert bits_of(numbers)[0, 1].tolist() == [0] * 31 + [1]
    assert from_bits(bits_of(numbers), np.uint32).tolist() == numbers.tolist()


def test_missing_bits_are_zero() -> None:
    assert from_bits(np.array([[1, 0, 1]], np.uint8), np.uint64).tolist() == [0b101]


def test_halves_of_a_register() -> None:
    low, high = HALVES["f16"](np.array([0xC0003C00], np.uint32))
    assert (low[0], high[0]) == (1.0, -2.0)
    low, high = HALVES["bf16"](np.array([0xC0003F80], np.uint32))
    assert (low[0], high[0]) == (1.0, -2.0)


def test_bf16_rounds_to_even_and_keeps_nan() -> None:
    values = np.array([0x3F808000, 0x3F818000, 0x7F800001], np.uint32).view(np.float32)  # two ties, a signalling NaN
    assert bf16_bits(values).tolist() == [0x3F80, 0x3F82, 0x7FC0]


def test_sums_are_clamped_to_the_type() -> None:
    x, y = np.array([0xFFFFFFFF, 1], np.uint32), np.array([2, 2], np.uint32)
    assert saturated(np.add, np.uint32)(x, y).tolist() == [0xFFFFFFFF, 3]
    assert saturated(np.subtract, np.uint32)(x, y).tolist() == [0xFFFFFFFD, 0]


def test_odd_rows_of_the_first_and_even_rows_of_the_second_change_places() -> None:
    x, y = np.zeros((1, 64), np.uint32), np.ones((1, 64), np.uint32)
    first, second = rows_swapped(16)(x, y)
    assert first[0, ::16].tolist() == [0, 1, 0, 1]
    assert second[0, ::16].tolist() == [0, 1, 0, 1]


def test_an_operation_has_one_to_four_sources() -> None:
    with pytest.raises(ValueError, match="one to four sources expected"):
        computed(np.add, "", WRITERS["u32"])
