"""How AITER's FP4 GEMM kernels are launched: kernel arguments, grid, and which workgroup computes which tile.

Source: the kernels' disassembly (AITER 0.1.7), confirmed by executing every one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from kernels.launches.coverage import GridIndex, Indices
from kernels.launches.native import PrebuiltKernel
from kernels.mxfp4.layouts import padded_scale_shape
from kernels.problem import BLOCK, GemmShape
from kernels.rocm.code_objects import CodeObject, slice_elements

THREADS: Final = 256  # of a workgroup: 4 waves
SLOT_BYTES: Final = 16  # each field has a slot of its own
POINTERS: Final = ("out", "a", "b", "a_scale", "b_scale")
# Name and struct code of each field in order. Read by no kernel that takes B shuffled: stride_d*, the strides *1, c
# and beta; alpha by those that split K. The row stride of the output is stride_c0.
FIELDS: Final = (
    ("out", "Q"), ("c", "Q"), ("a", "Q"), ("b", "Q"), ("alpha", "f"), ("beta", "f"), ("stride_d0", "I"),
    ("stride_d1", "I"), ("stride_c0", "I"), ("stride_c1", "I"), ("stride_a0", "I"), ("stride_a1", "I"),
    ("stride_b0", "I"), ("stride_b1", "I"), ("M", "I"), ("N", "I"), ("K", "I"), ("a_scale", "Q"), ("b_scale", "Q"),
    ("stride_a_scale0", "I"), ("stride_a_scale1", "I"), ("stride_b_scale0", "I"), ("stride_b_scale1", "I"),
    ("log2_k_split", "i"),
)  # fmt: skip
ARGUMENT_BYTES: Final = SLOT_BYTES * (len(FIELDS) - 1) + 4  # the last slot is not padded
PANEL: Final = 32  # tile columns that are computed together
XCD_ROWS: Final = 8  # tile rows of a block of the two tiles that spread blocks over the dies
_BLOCKED_TILES: Final = frozenset({(192, 256), (224, 256)})
_PLAIN_TILES: Final = frozenset({(128, 512)})


def prebuilt_kernel(code_object: CodeObject, shape: GemmShape, log2_k_split: int = 0) -> PrebuiltKernel:
    """``code_object`` with everything in its argument buffer but the addresses, for contiguous operands.

    Its arguments are the device addresses of ``out`` bf16 [M, N], ``a`` codes [M, K // 2], ``b`` shuffled codes
    [N, K // 2], ``a_scale`` and ``b_scale``, shuffled, of :func:`kernels.mxfp4.layouts.padded_scale_shape`.

    Args:
        log2_k_split: See :func:`kernels.rocm.code_objects.check`.
    """
    scale_stride = padded_scale_shape(1, shape.K // BLOCK)[1]  # bytes
    constants: dict[str, int | float] = {name: 0 for name, _ in FIELDS if name not in POINTERS}
    constants |= {"alpha": 1.0, "M": shape.M, "N": shape.N, "K": shape.K, "log2_k_split": log2_k_split}
    constants |= {"stride_c0": shape.N, "stride_a0": shape.K, "stride_b0": shape.K}  # elements; two of A or B a byte
    constants |= {"stride_a_scale0": scale_stride, "stride_b_scale0": scale_stride}
    return PrebuiltKernel(
        name=code_object.symbol,
        arg_names=POINTERS,
        threads=THREADS,
        path=code_object.path,
        fields=tuple((name, code, SLOT_BYTES * slot) for slot, (name, code) in enumerate(FIELDS)),
        constants=constants,
        size=ARGUMENT_BYTES,
    )


def launch_grid(shape: GemmShape, code_object: CodeObject, log2_k_split: int = 0) -> tuple[int, int, int]:
    """Workgroups in x (tile columns), y (tile rows) and z (slices of K)."""
    slices = -(-shape.K // slice_elements(shape.K, log2_k_split)) if log2_k_split else 1
    return -(-shape.N // code_object.tile_n), -(-shape.M // code_object.tile_m), slices


@dataclass(frozen=True)
class CodeObjectCoverage:
    """Which workgroups compute which tiles; a :class:`kernels.launches.coverage.Coverage`."""

    shape: GemmShape
    code_object: CodeObject
    log2_k_split: int = 0

    @property
    def BLOCK_M(self) -> int:
        """Rows of a tile."""
        return self.code_object.tile_m

    @property
    def BLOCK_N(self) -> int:
        """Columns of a tile."""
        return self.code_object.tile_n

    @property
    def num_m(self) -> int:
        """Tile rows."""
        return launch_grid(self.shape, self.code_object)[1]

    @property
    def num_n(self) -> int:
        """Tile columns."""
        return launch_grid(self.shape, self.code_object)[0]

    def tiles(self) -> tuple[Indices, Indices]:
        """(tile row, tile column) of workgroup (x, y) at index y * grid_x + x; the same for every z."""
        num_n, num_m, _ = launch_grid(self.shape, self.code_object)
        linear = np.arange(num_m * num_n)
        if self.code_object.tile in _PLAIN_TILES:
            return linear // num_n, linear % num_n
        if self.code_object.tile in _BLOCKED_TILES:
            blocked_rows = self.shape.M // (XCD_ROWS * self.code_object.tile_m) * XCD_ROWS
            return _blocked(linear, num_n, blocked_rows, self.shape.N // (PANEL * self.code_object.tile_n))
        panel, inside = np.divmod(linear, PANEL * num_m)
        width = np.minimum(num_n - panel * PANEL, PANEL)
        return inside // width, panel * PANEL + inside % width

    def workgroups(self, rows: range, columns: range) -> tuple[GridIndex, ...]:
        """Every workgroup, of all slices, whose tile meets these rows and columns of C."""
        num_n, _, slices = launch_grid(self.shape, self.code_object, self.log2_k_split)
        tile_m, tile_n = self.tiles()
        wanted = _meets(tile_m, self.code_object.tile_m, rows) & _meets(tile_n, self.code_object.tile_n, columns)
        found = np.flatnonzero(wanted).tolist()
        return tuple((index % num_n, index // num_n, z) for z in range(slices) for index in found)

    def grid_of(self, M: int, N: int) -> GridIndex:
        """Tile columns in x, tile rows in y, slices of K in z."""
        return launch_grid(replace(self.shape, M=M, N=N), self.code_object, self.log2_k_split)

    def extent(self, rows: range, columns: range) -> tuple[range, range]:
        """The region grown to whole tiles."""
        tile_m, tile_n = self.code_object.tile
        return _grown(rows, tile_m, self.shape.M), _grown(columns, tile_n, self.shape.N)


def _blocked(linear: Indices, num_n: int, blocked_rows: int, panels: int) -> tuple[Indices, Indices]:
    """Blocks of 8 x 32 tiles as long as whole ones fit, then the columns right of them, then the rows below."""
    row, column = linear // num_n, linear % num_n
    blocked_columns = panels * PANEL
    whole = linear < blocked_rows * blocked_columns
    block, inside = linear // (XCD_ROWS * PANEL), linear % (XCD_ROWS * PANEL)
    per_row = max(panels, 1)
    beside = linear - blocked_rows * blocked_columns
    rest = max(num_n - blocked_columns, 1)
    above = linear < blocked_rows * num_n
    row = np.where(whole, block // per_row * XCD_ROWS + inside // PANEL, np.where(above, beside // rest, row))
    right = blocked_columns + beside % rest
    return row, np.where(whole, block % per_row * PANEL + inside % PANEL, np.where(above, right, column))


def _meets(tile: Indices, size: int, span: range) -> npt.NDArray[np.bool_]:
    return (tile >= span.start // size) & (tile <= (span.stop - 1) // size)


def _grown(span: range, size: int, extent: int) -> range:
    return range(span.start // size * size, min(-(-span.stop // size) * size, extent))
