"""AITER's prebuilt FP4 GEMM kernels for CDNA 4: where they lie, what each computes, and where it may be used.

They are AMD's files and are read where AITER is installed; nothing of AITER is imported. Each kernel multiplies packed
A [M, K] by packed B [N, K] with E8M0 scales and stores bf16 C [M, N], one tile a workgroup.
Source of the limits: the kernels' disassembly (AITER 0.1.7), confirmed by executing every one of them.
"""

from __future__ import annotations

import csv
import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from kernels.device import GFX950
from kernels.errors import InputError, before_cure
from kernels.problem import GemmShape
from kernels.rocm.toolchain import ToolNotFoundError, find_tool

PATH_VARIABLE: Final = "MXFP4_AITER"  # an AITER install, or the folder that an amd-aiter wheel was unpacked to
K_STEP: Final = 256  # elements of K that every kernel consumes at a time
INDEX_NAME: Final = "f4gemm_bf16_per1x32Fp4.csv"
# These store a whole tile's columns whatever N is: a partial tile ends up in the rows below.
UNGUARDED_TILES: Final = frozenset({(256, 256), (192, 256), (224, 256), (128, 512)})
# One tile describes A and B as whole buffers, where the others move the base to their tile with 64 bits. So its byte
# offsets end at 2**32. It also fetches two steps ahead without looking: where A, or a group of 32 rows of A's scales,
# has fewer left, the size that remains wraps from below zero to 2**32, and it reads beyond the end.
WHOLE_BUFFER_TILES: Final = frozenset({(256, 256)})
# What AITER 0.1.7 has for shuffled B: rows of the tile, and columns of the widest one; narrower ones in steps of 128.
TILE_COLUMNS: Final[Mapping[int, int]] = MappingProxyType(
    {32: 1024, 64: 1024, 96: 640, 128: 512, 160: 384, 192: 256, 224: 256, 256: 256}
)
TILE_STEP: Final = 128
SPLIT_TILES: Final = frozenset({(256, 256), (128, 512)})  # the kernels that read log2_k_split
OFFSET_SPAN: Final = 1 << 32
PREFETCH: Final = 2 * K_STEP
ROW_GROUP: Final = 32
_OWN: Final = f"{GFX950.arch}/f4gemm"
_FOLDERS: Final = ("", "f4gemm", _OWN, f"hsa/{_OWN}", f"aiter_meta/hsa/{_OWN}")
_COLUMNS: Final = ("tile_m", "tile_n", "splitk", "bpreshuffle", "knl_name", "co_name")


@dataclass(frozen=True)
class CodeObject:
    """One kernel.

    Args:
        tile_m: Rows of C a workgroup computes.
        tile_n: Columns of C a workgroup computes.
        tile_k: Elements of K of one step.
        splits_k: Whether it reads ``log2_k_split`` and can add slices of K with bf16 atomics.
        preshuffled: Whether it reads B in the order of :func:`kernels.mxfp4.layouts.weight_offset`.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    splits_k: bool
    preshuffled: bool
    symbol: str
    path: Path

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        return self.tile_m, self.tile_n

    @property
    def guards_columns(self) -> bool:
        """Whether it leaves alone what lies beyond column N."""
        return self.tile not in UNGUARDED_TILES

    def __str__(self) -> str:
        return f"{self.tile_m}x{self.tile_n}"


@dataclass(frozen=True)
class Catalogue:
    """The kernels of one AITER."""

    folder: Path
    objects: tuple[CodeObject, ...]

    @property
    def preshuffled(self) -> tuple[CodeObject, ...]:
        """The kernels that read B shuffled, smallest tile first."""
        return tuple(sorted((one for one in self.objects if one.preshuffled), key=lambda one: one.tile))

    def find(self, tile_m: int, tile_n: int) -> CodeObject:
        """The kernel of this tile that reads B shuffled.

        Raises:
            InputError: There is none.
        """
        for one in self.preshuffled:
            if one.tile == (tile_m, tile_n):
                return one
        known = ", ".join(map(str, self.preshuffled))
        raise InputError(f"{self.folder} has no kernel of tile {tile_m}x{tile_n}: choose one of {known}")


def describe(tile_m: int, tile_n: int) -> CodeObject | None:
    """What AITER 0.1.7's kernel of this tile is like, without its file, for :func:`check`; None if there is none."""
    if tile_n < 1 or tile_n % TILE_STEP or tile_n > TILE_COLUMNS.get(tile_m, 0):
        return None
    splits_k = (tile_m, tile_n) in SPLIT_TILES
    return CodeObject(tile_m, tile_n, K_STEP, splits_k, preshuffled=True, symbol="", path=Path())


def find_catalogue(path: Path | None = None) -> Catalogue:
    """The kernels under ``path``, else under the folder that ``MXFP4_AITER`` names now, else of the installed AITER.

    Args:
        path: An AITER install or source tree, an unpacked ``amd-aiter`` wheel, or the ``f4gemm`` folder itself.

    Raises:
        InputError: No index is found, or it is damaged.
    """
    tried = [root / folder for root in aiter_roots(path) for folder in _FOLDERS]
    for folder in tried:
        if (folder / INDEX_NAME).is_file():
            return read_catalogue(folder)
    found = f"no {INDEX_NAME} in {', '.join(map(str, tried))}" if tried else "neither aiter nor aiter_meta is installed"
    raise InputError(f"{found}: set {PATH_VARIABLE} to an AITER install or an unpacked amd-aiter wheel")


DISASSEMBLERS: Final = ("llvm-objdump", "llvm-readelf")


def lacking_code_objects(*, disassembled: bool) -> str | None:
    """What this machine lacks of AITER's code objects, after a semicolon the cure; None if there is nothing.

    Args:
        disassembled: Whether they are to be read as text, as the simulator does.
    """
    try:
        find_catalogue()
        for name in DISASSEMBLERS if disassembled else ():
            find_tool(name)
    except (InputError, ToolNotFoundError) as error:
        return before_cure(error)
    return None


def aiter_roots(path: Path | None = None) -> list[Path]:
    """Folders to search: the one that is named, or those of the installed packages."""
    named = path if path is not None else os.environ.get(PATH_VARIABLE)
    if named:
        return [Path(named)]
    roots: dict[Path, None] = {}
    for package in ("aiter_meta", "aiter"):
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or ()) if spec is not None else ():
            roots |= dict.fromkeys((Path(location), Path(location).parent))
    return list(roots)


def read_catalogue(folder: Path) -> Catalogue:
    """The kernels that the index in ``folder`` lists.

    Raises:
        InputError: A column, a value or a file is missing or wrong; the text names it.
    """
    index = folder / INDEX_NAME
    try:
        text = index.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{index} cannot be read: {error}") from error
    reader = csv.DictReader(text.splitlines(), skipinitialspace=True)
    reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
    missing = [name for name in _COLUMNS if name not in reader.fieldnames]
    if missing:
        raise InputError(f"{index} has no column {', '.join(missing)}: this AITER is not supported")
    try:
        found = Catalogue(folder, tuple(_code_object(index, reader.line_num, row) for row in reader))
    except csv.Error as error:
        raise InputError(f"{index} line {reader.line_num}: {error}: reinstall AITER") from error
    if not found.preshuffled:
        raise InputError(f"{index} lists no kernel that reads B shuffled: this AITER is not supported")
    return found


def _code_object(index: Path, line: int, row: Mapping[str, str | None]) -> CodeObject:
    try:
        tile_m, tile_n, splits_k, preshuffled = (int(row[name] or "") for name in _COLUMNS[:4])
    except ValueError as error:
        raise InputError(f"{index} line {line}: {error}") from error
    symbol, file_name = ((row[name] or "").strip() for name in _COLUMNS[4:])
    path = index.parent / file_name
    if not symbol or not path.is_file():
        raise InputError(f"{index} line {line}: kernel {symbol!r}, file {path} not found: reinstall AITER")
    return CodeObject(tile_m, tile_n, K_STEP, bool(splits_k), bool(preshuffled), symbol, path)


def check(
    shape: GemmShape, code_object: CodeObject, log2_k_split: int = 0, *, zero_scale_pads: bool = False
) -> str | None:
    """Why ``code_object`` cannot compute ``shape``, or None if it can.

    N % 32 == 0, which all of them need, holds for every :class:`GemmShape`.

    Args:
        log2_k_split: K is cut into up to 2**log2_k_split slices.
        zero_scale_pads: Whether the scales of A *and* B hold 0 in the columns between K // 32 and the next multiple
            of 8. Then the codes that a kernel reads beyond K count as good as nothing (2**-254).
    """
    reason = _split_reason(shape, code_object, log2_k_split)
    if reason is not None:
        return reason
    if not code_object.preshuffled:
        return f"the kernel {code_object.symbol} reads B unshuffled"
    if shape.K % K_STEP and not zero_scale_pads:
        return f"K={shape.K} is no multiple of {K_STEP} and the padding of the scales is not known to be zero"
    if shape.N % code_object.tile_n and not code_object.guards_columns:
        return f"N={shape.N} is no multiple of {code_object.tile_n}: tile {code_object} writes beyond the row's end"
    return _buffer_reason(shape, code_object, log2_k_split) if code_object.tile in WHOLE_BUFFER_TILES else None


def _buffer_reason(shape: GemmShape, code_object: CodeObject, log2_k_split: int) -> str | None:
    packed_bytes = max(shape.M, shape.N) * shape.K // 2
    if packed_bytes >= OFFSET_SPAN:
        return f"tile {code_object} cannot address the {packed_bytes} bytes of an operand"
    last = (shape.K - 1) % slice_elements(shape.K, log2_k_split) + 1
    if shape.M <= ROW_GROUP and last < PREFETCH:
        return f"tile {code_object} with M={shape.M} reads beyond the end of A: {last} elements of K in its last slice"
    return None


def _split_reason(shape: GemmShape, code_object: CodeObject, log2_k_split: int) -> str | None:
    if log2_k_split < 0:
        return f"log2_k_split={log2_k_split} is negative"
    if log2_k_split and not code_object.splits_k:
        return f"tile {code_object} cannot split K, log2_k_split={log2_k_split}"
    if shape.K % (1 << log2_k_split):
        return f"K={shape.K} cannot be cut into 2**{log2_k_split} slices"
    return None


def slice_elements(K: int, log2_k_split: int) -> int:
    """Elements of K of every slice but the last: K / 2**log2_k_split rounded up to whole steps."""
    return -(-(K >> log2_k_split) // K_STEP) * K_STEP


def accumulates_in_bf16(log2_k_split: int) -> bool:
    """Whether workgroups add bf16 values to a zeroed C with atomics.

    Then C must be zero before the launch, its bits may differ from run to run, and each slice adds a rounding: an
    error of up to slices x 2**-8 of the sum of the slices' magnitudes instead of half a bf16 step of the result.
    """
    return log2_k_split > 0
