"""kernels.launches.code_object: argument bytes, grids, and which workgroup owns which tile."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.launches.code_object import CodeObjectCoverage, launch_grid, prebuilt_kernel
from kernels.problem import GemmShape
from kernels.rocm.code_objects import CodeObject

POINTERS = {"out": 0x7F0000001100, "a": 0x22, "b": 0x33, "a_scale": 0x44, "b_scale": 0x7F0000005500}
TILES = ((32, 128), (96, 640), (256, 128), (256, 256), (192, 256), (224, 256), (128, 512))


def code_object(tile_m: int, tile_n: int) -> CodeObject:
    return CodeObject(tile_m, tile_n, 256, False, True, "k", Path("k.co"))


def test_each_argument_lies_where_the_kernels_load_it() -> None:
    packed = prebuilt_kernel(code_object(32, 128), GemmShape(33, 192, 320), log2_k_split=3).pack(POINTERS)
    assert len(packed) == 372
    expected = bytearray(372)
    for offset, code, value in (  # offsets of the s_load instructions in the disassembly
        (0x00, "Q", 0x7F0000001100), (0x20, "Q", 0x22), (0x30, "Q", 0x33), (0x40, "f", 1.0), (0x80, "I", 192),
        (0xA0, "I", 320), (0xC0, "I", 320), (0xE0, "I", 33), (0xF0, "I", 192), (0x100, "I", 320), (0x110, "Q", 0x44),
        (0x120, "Q", 0x7F0000005500), (0x130, "I", 16), (0x150, "I", 16), (0x170, "i", 3),
    ):  # fmt: skip
        struct.pack_into(f"<{code}", expected, offset, value)
    assert packed == bytes(expected)


def test_a_kernel_takes_the_five_addresses_and_knows_the_rest() -> None:
    kernel = prebuilt_kernel(code_object(32, 128), GemmShape(33, 192, 256))
    assert (kernel.name, kernel.path, kernel.threads) == ("k", Path("k.co"), 256)
    assert sorted(kernel.arg_names) == sorted(POINTERS)
    with pytest.raises(ValueError, match="'b_scale'"):
        kernel.pack({name: 1 for name in POINTERS if name != "b_scale"})


def test_the_grid_has_tile_columns_tile_rows_and_slices() -> None:
    tile = code_object(128, 512)
    assert launch_grid(GemmShape(129, 1024, 7168), tile) == (2, 2, 1)
    assert launch_grid(GemmShape(128, 1088, 7168), tile, 3) == (3, 1, 7)  # slices of 1024
    assert launch_grid(GemmShape(1, 64, 768), tile, 1) == (1, 1, 2)  # 512 and 256
    assert launch_grid(GemmShape(1, 64, 512), tile, 4) == (1, 1, 2)  # never less than a step


def test_panels_of_32_tile_columns_are_filled_first() -> None:
    rows, columns = CodeObjectCoverage(GemmShape(64, 35 * 128, 256), code_object(32, 128)).tiles()
    tiles = list(zip(rows.tolist(), columns.tolist(), strict=True))
    assert tiles[:2] == [(0, 0), (0, 1)]
    assert tiles[32] == (1, 0)
    assert tiles[64:] == [(0, 32), (0, 33), (0, 34), (1, 32), (1, 33), (1, 34)]


def test_two_tiles_go_through_blocks_of_8_by_32_first() -> None:
    shape = GemmShape(9 * 192, 33 * 256, 256)
    rows, columns = CodeObjectCoverage(shape, code_object(192, 256)).tiles()
    tiles = list(zip(rows.tolist(), columns.tolist(), strict=True))
    assert tiles[:2] == [(0, 0), (0, 1)]
    assert tiles[32] == (1, 0)
    assert tiles[256:265] == [(row, 32) for row in range(8)] + [(8, 0)]
    assert tiles[-1] == (8, 32)


def test_one_tile_goes_row_by_row() -> None:
    rows, columns = CodeObjectCoverage(GemmShape(256, 40 * 512, 256), code_object(128, 512)).tiles()
    assert (rows[39], columns[39]) == (0, 39)
    assert (rows[40], columns[40]) == (1, 0)


@given(st.sampled_from(TILES), st.integers(1, 9000), st.integers(1, 400))
def test_every_tile_has_one_workgroup(tile: tuple[int, int], M: int, blocks: int) -> None:
    coverage = CodeObjectCoverage(GemmShape(M, 64 * blocks, 256), code_object(*tile))
    num_n, num_m, _ = launch_grid(coverage.shape, coverage.code_object)
    rows, columns = coverage.tiles()
    assert ((rows >= 0) & (rows < num_m) & (columns >= 0) & (columns < num_n)).all()
    assert len(np.unique(rows * num_n + columns)) == num_m * num_n


def test_a_region_names_the_workgroups_of_all_its_tiles_and_slices() -> None:
    coverage = CodeObjectCoverage(GemmShape(300, 2048, 1024), code_object(128, 512), 1)
    assert coverage.workgroups(range(130, 300), range(1000, 1024)) == ((1, 1, 0), (1, 2, 0), (1, 1, 1), (1, 2, 1))
    assert coverage.extent(range(130, 300), range(1000, 1024)) == (range(128, 300), range(512, 1024))
