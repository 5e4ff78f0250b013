"""Executes every one of AITER's kernels for shuffled weights on the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, lru_cache
from itertools import product

import pytest
import torch
from native_checks import CheckedRun, Operands, Tile, code_object_run_checked, random_operands

from kernels.errors import InputError, WrongResultError
from kernels.launches.code_object import CodeObjectCoverage, launch_grid
from kernels.mxfp4.reference import mxfp4_gemm_reference
from kernels.problem import GemmShape
from kernels.rocm.code_objects import UNGUARDED_TILES, Catalogue, CodeObject, check, find_catalogue
from kernels.rocm.toolchain import ToolNotFoundError, find_tool
from search.gfx950.simulator import DecodedKernel, InstructionClass, load_code_object

# The tiles of AITER 0.1.7, so that a test has a name without any AITER; another AITER's further ones are not tested.
TILES = (
    *((32, 128 * columns) for columns in range(1, 9)),
    *((64, 128 * columns) for columns in range(1, 9)),
    *((96, 128 * columns) for columns in range(1, 6)),
    *((128, 128 * columns) for columns in range(1, 5)),
    *((160, 128 * columns) for columns in range(1, 4)),
    *((rows, 128 * columns) for rows in (192, 224, 256) for columns in (1, 2)),
)
SPLIT_TILES = ((256, 256), (128, 512))
KS = (256, 512, 1024)
M_KINDS = ("one row", "tail", "one short")
N_KINDS = ("one tile", "several tiles", "partial tile")


@cache
def catalogue() -> Catalogue | str:
    try:
        find_tool("llvm-objdump")
        return find_catalogue()
    except (InputError, ToolNotFoundError) as error:
        return str(error)


@lru_cache(maxsize=2)
def loaded(code_object: CodeObject) -> DecodedKernel:
    return load_code_object(code_object.path, code_object.symbol)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small tensors, and other processes on the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def code_object(tile: tuple[int, int]) -> CodeObject:
    found = catalogue()
    if isinstance(found, str):
        pytest.skip(f"AITER's kernels are not tested: {found}")
    return found.find(*tile)


def shape_of(tile: tuple[int, int], m_kind: str, n_kind: str, K: int) -> GemmShape:
    """A shape whose last tile has the tails that the kinds name."""
    tile_m, tile_n = tile
    M = {"one row": 1, "tail": tile_m + tile_m // 2 + 1, "one short": 2 * tile_m - 1}[m_kind]
    N = {"one tile": tile_n, "several tiles": 3 * tile_n, "partial tile": 2 * tile_n - 64}[n_kind]
    return GemmShape(M, N, K)


def corners(shape: GemmShape) -> list[Tile]:
    """An element of the first and of the last tile of the last tile row."""
    last = range(shape.M - 1, shape.M)
    return [(last, range(0, 1)), (last, range(shape.N - 1, shape.N))]


def run(
    tile: tuple[int, int], shape: GemmShape, log2_k_split: int = 0, tiles: list[Tile] | None = None, pad: int = 0xFF
) -> CheckedRun:
    one = code_object(tile)
    operands = random_operands(shape, 7, pad)
    return code_object_run_checked(loaded(one), one, operands, log2_k_split, corners(shape) if tiles is None else tiles)


def run_if_legal(tile: tuple[int, int], shape: GemmShape, log2_k_split: int = 0) -> None:
    """What the legality check refuses is wrong, what it allows is right."""
    if check(shape, code_object(tile), log2_k_split) is None:
        run(tile, shape, log2_k_split)
        return
    with pytest.raises(WrongResultError):
        run(tile, shape, log2_k_split)


def n_kinds(tile: tuple[int, int]) -> tuple[str, ...]:
    return N_KINDS[:2] if tile in UNGUARDED_TILES else N_KINDS


def drawn(number: int, tile: tuple[int, int]) -> tuple[str, str, int]:
    """One of the combinations; neighbouring tiles differ in all three."""
    kinds = n_kinds(tile)
    K = KS[(number // 9 + number) % 3]
    legal_K = max(K, 512) if tile == (256, 256) else K
    return M_KINDS[number % 3], kinds[(number // 3 + number) % len(kinds)], legal_K


def expected_mfma(tile: tuple[int, int], K: int) -> int:
    """16 x 16 x 128 matrix instructions of one workgroup."""
    return tile[0] * tile[1] * K // (16 * 16 * 128)


def test_the_catalogue_has_34_kernels_for_shuffled_weights() -> None:
    code_object((32, 128))
    found = catalogue()
    assert isinstance(found, Catalogue)
    assert [one.tile for one in found.preshuffled] == sorted(TILES)
    assert {one.tile for one in found.preshuffled if one.splits_k} == set(SPLIT_TILES)


@pytest.mark.parametrize(("number", "tile"), list(enumerate(TILES)), ids=lambda v: str(v).replace(", ", "x"))
def test_every_kernel_computes_a_shape_with_tails(number: int, tile: tuple[int, int]) -> None:
    shape = shape_of(tile, *drawn(number, tile))
    result = run(tile, shape)
    workgroups = min(launch_grid(shape, code_object(tile))[0], 2)
    assert result.histogram.waves == 4 * workgroups
    assert result.histogram.by_class[InstructionClass.MFMA] == workgroups * expected_mfma(tile, shape.K)


def test_the_drawn_shapes_reach_every_kind_of_tail() -> None:
    kinds = [drawn(number, tile) for number, tile in enumerate(TILES)]
    assert {(m, n) for m, n, _ in kinds} == set(product(M_KINDS, N_KINDS))
    assert {(n, K) for _, n, K in kinds} == set(product(N_KINDS, KS))


@pytest.mark.slow
@pytest.mark.parametrize("K", KS)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_every_kernel_computes_every_combination_of_tails(tile: tuple[int, int], K: int) -> None:
    for m_kind, n_kind in product(M_KINDS, n_kinds(tile)):
        run_if_legal(tile, shape_of(tile, m_kind, n_kind, K))


@pytest.mark.parametrize(
    ("tile", "n_kind", "K", "log2_k_split"),
    [
        ((256, 256), "one tile", 1024, 2),
        ((256, 256), "several tiles", 768, 1),  # slices of 512 and 256
        ((128, 512), "one tile", 512, 1),
        ((128, 512), "several tiles", 1024, 1),
    ],
)
def test_slices_of_K_add_up_within_the_bound_of_bf16_sums(
    tile: tuple[int, int], n_kind: str, K: int, log2_k_split: int
) -> None:
    shape = shape_of(tile, "tail", n_kind, K)
    result = run(tile, shape, log2_k_split)
    slices = launch_grid(shape, code_object(tile), log2_k_split)[2]
    assert slices > 1
    assert result.histogram.waves == 4 * min(shape.N // tile[1], 2) * slices


@pytest.mark.slow
@pytest.mark.parametrize("tile", SPLIT_TILES, ids=str)
def test_every_split_of_K_adds_up(tile: tuple[int, int]) -> None:
    for m_kind, n_kind, K, split in product(M_KINDS, N_KINDS[:2], (*KS, 768, 2048), (1, 2, 3)):
        run_if_legal(tile, shape_of(tile, m_kind, n_kind, K), split)


@pytest.mark.parametrize(("M", "K", "log2_k_split"), [(1, 256, 0), (32, 256, 0), (1, 768, 1), (1, 1024, 2)])
def test_a_tile_that_fetches_ahead_is_caught_reading_beyond_few_rows(M: int, K: int, log2_k_split: int) -> None:
    shape = GemmShape(M, 256, K)
    assert check(shape, code_object((256, 256)), log2_k_split) is not None
    with pytest.raises(WrongResultError, match="out_of_bounds"):
        run((256, 256), shape, log2_k_split)


@pytest.mark.parametrize(("M", "K", "log2_k_split"), [(1, 512, 0), (33, 256, 0), (1, 768, 0), (1, 1024, 1)])
def test_it_is_right_as_soon_as_two_steps_are_left(M: int, K: int, log2_k_split: int) -> None:
    shape = GemmShape(M, 256, K)
    assert check(shape, code_object((256, 256)), log2_k_split) is None
    run((256, 256), shape, log2_k_split)


def test_a_wrong_element_of_B_is_found_despite_the_bound_of_bf16_sums() -> None:
    one = code_object((256, 256))
    operands = random_operands(GemmShape(200, 256, 512), 7)
    altered = operands.b_values.clone()
    altered[17, 300] += 4 * operands.b_values.abs().max()
    with pytest.raises(WrongResultError, match="elements are wrong"):
        code_object_run_checked(loaded(one), one, replace(operands, b_values=altered), 1)


@pytest.mark.parametrize("tile", [(32, 128), (224, 128), (96, 640)], ids=str)
def test_a_tail_of_K_is_right_with_zero_scale_pads_and_wrong_with_others(tile: tuple[int, int]) -> None:
    shape = shape_of(tile, "tail", "partial tile", 320)
    assert check(shape, code_object(tile)) is not None
    run(tile, shape, pad=0)
    with pytest.raises(WrongResultError):
        run(tile, shape, pad=0xFF)


@pytest.mark.parametrize("tile", sorted(UNGUARDED_TILES), ids=str)
def test_a_tile_without_column_guard_is_caught_writing_into_the_next_rows(tile: tuple[int, int]) -> None:
    shape = GemmShape(40, tile[1] + 64, 256)
    assert check(shape, code_object(tile)) is not None
    with pytest.raises(WrongResultError, match=r"C\[1, 0\] and \d+ more elements beside the tiles were written"):
        run(tile, shape, tiles=[(range(shape.M), range(tile[1], shape.N))])


@pytest.mark.parametrize("tile", [(32, 128), (256, 128)], ids=str)
def test_a_guarded_tile_leaves_the_next_rows_alone(tile: tuple[int, int]) -> None:
    shape = GemmShape(40, tile[1] + 64, 256)
    assert check(shape, code_object(tile)) is None
    run(tile, shape, tiles=[(range(shape.M), range(tile[1], shape.N))])


@pytest.mark.parametrize(
    ("tile", "shape", "tiles"),
    [
        ((32, 128), GemmShape(40, 35 * 128, 256), [(0, 31), (1, 3), (1, 33)]),
        ((192, 256), GemmShape(8 * 192 + 7, 34 * 256, 256), [(3, 5), (2, 32), (7, 33), (8, 7)]),
    ],
    ids=["panels", "blocks"],
)
def test_workgroups_compute_the_tiles_that_the_coverage_says(
    tile: tuple[int, int], shape: GemmShape, tiles: list[tuple[int, int]]
) -> None:
    chosen = [
        CodeObjectCoverage(shape, code_object(tile)).extent(
            range(m * tile[0], m * tile[0] + 1), range(n * tile[1], n * tile[1] + 1)
        )
        for m, n in tiles
    ]
    run(tile, shape, tiles=chosen)


def test_the_reference_of_the_check_is_that_of_the_project() -> None:
    operands: Operands = random_operands(GemmShape(33, 128, 256), 7)
    a, b = operands.values((range(33), range(128)))
    assert torch.equal(a @ b.T, mxfp4_gemm_reference(operands.a_values.to(torch.bfloat16), operands.weight))
