"""kernels.rocm.code_objects: where a catalogue is found, what a damaged one says, and which kernel may compute what."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.rocm.code_objects import (
    INDEX_NAME,
    PATH_VARIABLE,
    CodeObject,
    check,
    find_catalogue,
    read_catalogue,
    slice_elements,
)

HEADER = "tile_m,tile_n,splitK,bpreshuffle,knl_name,co_name"
ROWS = ("256,256,0,0,plain,plain.co", "256,256,1,1,split,split.co", "32,128,0,1,small,small.co")


def write_catalogue(folder: Path, rows: tuple[str, ...] = ROWS, header: str = HEADER) -> Path:
    folder.mkdir(parents=True)
    (folder / INDEX_NAME).write_text("\n".join((header, *rows)) + "\n")
    for row in rows:
        (folder / row.split(",")[-1]).touch()
    return folder


def code_object(tile_m: int, tile_n: int, splits_k: bool = False, preshuffled: bool = True) -> CodeObject:
    return CodeObject(tile_m, tile_n, 256, splits_k, preshuffled, "k", Path("k.co"))


@pytest.mark.parametrize("inside", ["", "f4gemm", "hsa/gfx950/f4gemm", "aiter_meta/hsa/gfx950/f4gemm"])
def test_finds_the_kernels_in_an_install_a_source_tree_a_wheel_or_the_folder_itself(
    tmp_path: Path, inside: str
) -> None:
    folder = write_catalogue(tmp_path / "root" / inside)
    found = find_catalogue(tmp_path / "root")
    assert [(one.tile, one.splits_k, one.symbol) for one in found.preshuffled] == [
        ((32, 128), False, "small"),
        ((256, 256), True, "split"),
    ]
    assert len(found.objects) == 3
    assert found.find(256, 256).path == folder / "split.co"
    assert found.find(32, 128).tile_k == 256


def test_the_argument_goes_before_the_variable_which_is_read_at_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = write_catalogue(tmp_path / "one"), write_catalogue(tmp_path / "two")
    monkeypatch.setenv(PATH_VARIABLE, str(one))
    assert find_catalogue().folder == one
    assert find_catalogue(two).folder == two
    monkeypatch.setenv(PATH_VARIABLE, str(two))
    assert find_catalogue().folder == two


@pytest.mark.parametrize("place", ["aiter_meta/hsa/gfx950/f4gemm", "hsa/gfx950/f4gemm", "aiter/hsa/gfx950/f4gemm"])
def test_finds_the_kernels_of_an_installed_aiter_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "__init__.py").write_text("raise ImportError('no GPU')\n")
    folder = tmp_path / place
    if place.startswith("aiter/"):
        (tmp_path / "aiter_meta").mkdir()  # an empty one must not hide the other
    write_catalogue(folder)
    monkeypatch.delenv(PATH_VARIABLE, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_catalogue().folder == folder
    assert "aiter" not in sys.modules


def test_a_named_folder_without_kernels_is_an_error_that_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_catalogue(tmp_path / "good")
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "good"))
    with pytest.raises(InputError) as caught:
        find_catalogue(tmp_path / "bad")
    text = str(caught.value)
    assert os.path.join(tmp_path, "bad", "aiter_meta", "hsa", "gfx950", "f4gemm") in text
    assert PATH_VARIABLE in text
    assert "\n" not in text


def test_without_any_aiter_one_line_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PATH_VARIABLE, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=f"^neither aiter nor aiter_meta is installed: set {PATH_VARIABLE}"):
        find_catalogue()


def test_columns_may_come_in_another_order_and_case_and_with_more_of_them(tmp_path: Path) -> None:
    write_catalogue(
        tmp_path / "new", ("gfx950,k,1,512,128,1,a.co",), "arch, knl_name,splitk,TILE_N,tile_M,bPreshuffle,co_name"
    )
    (only,) = read_catalogue(tmp_path / "new").objects
    assert (only.tile, only.splits_k, only.preshuffled, only.symbol) == ((128, 512), True, True, "k")


@pytest.mark.parametrize(
    ("rows", "header", "said"),
    [
        (("1,2,3",), "tile_m,tile_n,co_name", "no column splitk, bpreshuffle, knl_name"),
        (("32,x,0,1,k,k.co",), HEADER, "line 2: .*'x'"),
        (("32,128,0,1,k,k.co", "32,256,0"), HEADER, "line 3"),
        (("32,128,0,1,,k.co",), HEADER, "line 2: kernel ''"),
        ((), "", "no column tile_m"),
        ((), HEADER, "lists no kernel that reads B shuffled"),
        (("256,256,0,0,plain,plain.co",), HEADER, "lists no kernel that reads B shuffled"),
        (("1" * 200_000 + ",128,0,1,k,k.co",), HEADER, "field larger than field limit"),
    ],
)
def test_a_damaged_index_is_an_error_that_names_the_place(
    tmp_path: Path, rows: tuple[str, ...], header: str, said: str
) -> None:
    folder = write_catalogue(tmp_path / "x", rows, header)
    with pytest.raises(InputError, match=said):
        read_catalogue(folder)


def test_an_index_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    folder = write_catalogue(tmp_path / "x")
    (folder / INDEX_NAME).write_bytes(b"\xef\xbb\xbf" + (folder / INDEX_NAME).read_bytes())
    assert [one.tile for one in read_catalogue(folder).preshuffled] == [(32, 128), (256, 256)]


def test_a_listed_file_that_is_absent_is_an_error(tmp_path: Path) -> None:
    folder = write_catalogue(tmp_path / "x")
    (folder / "small.co").unlink()
    with pytest.raises(InputError, match=r"line 4: .*small\.co not found"):
        read_catalogue(folder)


def test_an_unknown_tile_is_answered_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no kernel of tile 16x16: choose one of 32x128, 256x256"):
        read_catalogue(write_catalogue(tmp_path / "x")).find(16, 16)


@pytest.mark.parametrize("tile", [(256, 256), (192, 256), (224, 256), (128, 512)])
def test_tiles_without_a_column_guard_need_whole_tiles_in_N(tile: tuple[int, int]) -> None:
    assert check(GemmShape(7, 2 * tile[1], 512), code_object(*tile)) is None
    reason = check(GemmShape(7, 2 * tile[1] + 64, 512), code_object(*tile))
    assert reason is not None
    assert f"multiple of {tile[1]}" in reason


def test_guarded_tiles_take_any_N() -> None:
    for tile in [(32, 128), (32, 1024), (128, 256), (256, 128), (96, 640)]:
        assert check(GemmShape(7, 2112, 7168), code_object(*tile)) is None


def test_a_tail_of_K_needs_scale_pads_that_are_known_to_be_zero() -> None:
    shape = GemmShape(7, 2112, 320)
    assert "K=320" in (check(shape, code_object(32, 128)) or "")
    assert check(shape, code_object(32, 128), zero_scale_pads=True) is None


def test_only_a_kernel_that_can_split_K_may_be_asked_to() -> None:
    shape = GemmShape(7, 512, 2048)
    assert check(shape, code_object(128, 512, splits_k=True), 3) is None
    assert "cannot split K" in (check(shape, code_object(128, 512), 1) or "")
    assert "negative" in (check(shape, code_object(128, 512, splits_k=True), -1) or "")
    assert "2**12 slices" in (check(shape, code_object(128, 512, splits_k=True), 12) or "")
    assert "2**65536 slices" in (check(shape, code_object(128, 512, splits_k=True), 1 << 16) or "")


def test_a_kernel_for_unshuffled_weights_is_refused() -> None:
    assert "unshuffled" in (check(GemmShape(7, 512, 512), code_object(256, 256, preshuffled=False)) or "")


def test_operands_of_4_GiB_are_beyond_the_one_tile_with_32_bit_offsets() -> None:
    last, first = GemmShape(131072, 512, 65280), GemmShape(131072, 512, 65536)  # M * K // 2 around 2**32
    assert check(last, code_object(256, 256)) is None
    assert "4294967296 bytes" in (check(first, code_object(256, 256)) or "")
    assert "4294967296 bytes" in (check(GemmShape(1, 131072, 65536), code_object(256, 256)) or "")
    assert check(first, code_object(224, 256)) is None
    assert check(first, code_object(32, 128)) is None


def test_one_tile_reads_beyond_few_rows_unless_every_slice_has_two_steps() -> None:
    tile = code_object(256, 256, splits_k=True)
    legal = [
        (M, K, split)
        for M, K, split in (
            (32, 256, 0),
            (33, 256, 0),
            (1, 512, 0),
            (1, 768, 0),
            (1, 768, 1),
            (1, 1024, 1),
            (1, 1024, 2),
        )
        if check(GemmShape(M, 256, K), tile, split) is None
    ]
    assert legal == [(33, 256, 0), (1, 512, 0), (1, 768, 0), (1, 1024, 1)]
    assert check(GemmShape(1, 256, 256), code_object(224, 256)) is None


def test_slices_are_whole_steps() -> None:
    assert [slice_elements(K, s) for K, s in ((1024, 0), (1024, 1), (768, 1), (768, 2), (256, 1), (7168, 3))] == [
        1024, 512, 512, 256, 256, 1024,
    ]  # fmt: skip
