"""kernels.mxfp4.layouts: both shuffles against their closed formulas, bijective, padded with zeros."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.mxfp4.layouts import (
    padded_scale_shape,
    scale_offset,
    shuffle_scale_tiles,
    shuffle_scales,
    shuffle_weight,
    unshuffle_scales,
    unshuffle_weight,
    weight_offset,
)


def random_bytes(rows: int, columns: int, seed: int = 0, low: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, 256, (rows, columns), dtype=torch.uint8, generator=generator)


def indices(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    row = torch.arange(rows)[:, None].expand(rows, columns)
    return row, torch.arange(columns)[None, :].expand(rows, columns)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32))
def test_weight_bytes_land_where_the_formula_says(row_tiles: int, byte_tiles: int, seed: int) -> None:
    N, row_bytes = 16 * row_tiles, 32 * byte_tiles
    packed = random_bytes(N, row_bytes, seed)
    shuffled = shuffle_weight(packed)
    n, b = indices(N, row_bytes)
    assert shuffled.shape == packed.shape and shuffled.is_contiguous()
    assert torch.equal(shuffled.flatten()[weight_offset(n, b, row_bytes)], packed)
    assert torch.equal(unshuffle_weight(shuffled), packed)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 600), st.integers(1, 40), st.integers(0, 2**32))
def test_scale_bytes_land_where_the_formula_says(rows: int, groups: int, seed: int) -> None:
    scales = random_bytes(rows, groups, seed, low=1)
    shuffled = shuffle_scales(scales)
    row, group = indices(rows, groups)
    assert shuffled.shape == padded_scale_shape(rows, groups) and shuffled.is_contiguous()
    assert torch.equal(shuffled.flatten()[scale_offset(row, group, shuffled.shape[1])], scales)
    assert torch.equal(unshuffle_scales(shuffled, rows, groups), scales)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 600), st.integers(1, 40))
def test_every_pad_byte_of_the_scales_is_zero(rows: int, groups: int) -> None:
    shuffled = shuffle_scales(torch.full((rows, groups), 0xFF, dtype=torch.uint8))
    assert int((shuffled == 0xFF).sum()) == rows * groups
    assert int((shuffled == 0).sum()) == shuffled.numel() - rows * groups


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(1, 9))
def test_offsets_are_bijective(tiles: int, wide_tiles: int) -> None:
    n, b = indices(16 * tiles, 32 * wide_tiles)
    assert torch.equal(weight_offset(n, b, 32 * wide_tiles).flatten().sort().values, torch.arange(n.numel()))
    row, group = indices(32 * tiles, 8 * wide_tiles)
    assert torch.equal(scale_offset(row, group, 8 * wide_tiles).flatten().sort().values, torch.arange(row.numel()))


@pytest.mark.parametrize(
    ("n", "b", "offset"),
    [(0, 15, 15), (0, 16, 256), (1, 0, 16), (15, 31, 511), (0, 32, 512), (16, 0, 16 * 96), (17, 49, 2321)],
)
def test_weight_offsets_by_hand(n: int, b: int, offset: int) -> None:
    """Rows of 96 bytes. (17, 49): tile row 1 at 1536, tile 1 at 512, second half 256, row 1 at 16, byte 1."""
    assert weight_offset(n, b, 96) == offset


@pytest.mark.parametrize(
    ("row", "group", "offset"),
    [(0, 1, 64), (1, 0, 4), (16, 0, 1), (0, 4, 2), (31, 7, 255), (0, 8, 256), (32, 0, 512), (50, 13, 843)],
)
def test_scale_offsets_by_hand(row: int, group: int, offset: int) -> None:
    """Rows of 16 groups. (50, 13): tile row 1 at 512, tile 1 at 256, group 1 at 64, row 2 at 8, 2 and 1."""
    assert scale_offset(row, group, 16) == offset


def test_poisoned_pads_do_not_reach_the_scales() -> None:
    scales = random_bytes(70, 5, low=1)
    shuffled = shuffle_scales(scales)
    shuffled[shuffled == 0] = 0xFF
    assert torch.equal(unshuffle_scales(shuffled, 70, 5), scales)


def test_results_share_no_memory_with_their_source() -> None:
    packed, scales = random_bytes(16, 32), random_bytes(256, 8)
    results = (shuffle_weight(packed), unshuffle_weight(packed), shuffle_scales(scales))
    restored = unshuffle_scales(scales, 256, 8)
    for source, result in zip((packed, packed, scales, scales), (*results, restored), strict=True):
        assert result.untyped_storage().data_ptr() != source.untyped_storage().data_ptr()


@pytest.mark.parametrize(
    ("rows", "groups", "padded"),
    [(1, 1, (256, 8)), (256, 8, (256, 8)), (257, 9, (512, 16)), (2112, 224, (2304, 224)), (64, 2, (256, 8))],
)
def test_scales_are_padded_to_256_rows_and_8_groups(rows: int, groups: int, padded: tuple[int, int]) -> None:
    assert padded_scale_shape(rows, groups) == padded


def test_wrong_extents_are_named() -> None:
    with pytest.raises(ValueError, match=r"packed weight is \[24, 32\].*multiples of \[16, 32\]"):
        shuffle_weight(random_bytes(24, 32))
    with pytest.raises(ValueError, match=r"shuffled weight is \[16, 48\]"):
        unshuffle_weight(random_bytes(16, 48))
    with pytest.raises(ValueError, match=r"must be a uint8 matrix, got torch\.float32 \(16, 32\)"):
        shuffle_weight(torch.zeros(16, 32))
    with pytest.raises(ValueError, match=r"must be a uint8 matrix, got torch\.uint8 \(32,\)"):
        shuffle_scales(random_bytes(1, 32)[0])
    with pytest.raises(ValueError, match=r"shuffled scales are \(256, 8\) and cannot hold \[257, 8\]"):
        unshuffle_scales(random_bytes(256, 8), 257, 8)
    with pytest.raises(ValueError, match=r"shuffled scales is \[250, 8\]"):
        unshuffle_scales(random_bytes(250, 8), 1, 1)
    with pytest.raises(ValueError, match=r"\[-1, 8\]"):
        padded_scale_shape(-1, 8)


def test_scale_tiles_are_shuffled_without_padding() -> None:
    scales = torch.arange(64 * 24, dtype=torch.int32).reshape(64, 24).to(torch.uint8)
    row, group = torch.arange(64)[:, None], torch.arange(24)[None]
    assert torch.equal(shuffle_scale_tiles(scales).flatten()[scale_offset(row, group, 24)], scales)
    with pytest.raises(ValueError, match=r"multiples of \[32, 8\]"):
        shuffle_scale_tiles(scales[:16])
