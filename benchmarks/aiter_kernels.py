"""AITER's Triton kernels as programs of this project: found where AITER is found, imported without AITER itself.

``MXFP4_AITER`` names an installed or unpacked AITER. Its package initialisers ask for a GPU, so they are passed by: the
kernel modules are imported from folders without code of their own. Both the layout of AITER 0.1.7 and the later one,
in rooms, are known.
"""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import triton

from kernels.errors import InputError
from kernels.launches.coverage import Indices, TileCoverage
from kernels.launches.program import Buffer, KernelCall, Program
from kernels.launches.triton_kernel import TritonKernel
from kernels.problem import GemmShape
from kernels.rocm.code_objects import PATH_VARIABLE

PACKAGE = "aiter.ops.triton"
MODULES = {  # of a kernel, in the later and in the earlier layout
    "_gemm_a16wfp4_preshuffle_kernel": ("gemm.basic.gemm_a16wfp4",),
    "_gemm_afp4wfp4_preshuffle_kernel": ("gemm.basic.gemm_afp4wfp4",),
    "_gemm_afp4_wfp4_kernel_preshuffled_weight_scales": ("gemm_afp4wfp4",),
    "_gemm_splitk_reduce_kernel": ("common.splitk_reduce",),
    "_gemm_afp4_wfp4_reduce_kernel": ("gemm_afp4wfp4",),
    "_dynamic_mxfp4_quant_kernel": ("quant.quant", "quant"),
}
FUSED = ("_gemm_a16wfp4_preshuffle_kernel",)
PACKED = ("_gemm_afp4wfp4_preshuffle_kernel", "_gemm_afp4_wfp4_kernel_preshuffled_weight_scales")
REDUCE = ("_gemm_splitk_reduce_kernel", "_gemm_afp4_wfp4_reduce_kernel")
QUANTIZE = ("_dynamic_mxfp4_quant_kernel",)


@dataclass(frozen=True)
class Knobs:
    """A configuration under AITER's names for its knobs, in lower case.

    Args:
        block_m, block_n, block_k: Tile; block_k in elements.
        split_k: Slices of K.
        num_warps, num_stages, waves_per_eu, matrix_instr_nonkdim: Launch options.
        cache_modifier: Of the weight loads.
        group_m: Tile rows visited together.
        reduce_n: Columns of a tile of the reduction.
    """

    block_m: int
    block_n: int
    block_k: int
    split_k: int = 1
    num_warps: int = 4
    num_stages: int = 2
    waves_per_eu: int = 2
    matrix_instr_nonkdim: int = 16
    cache_modifier: str = ".cg"
    group_m: int = 1
    reduce_n: int = 64

    @property
    def options(self) -> dict[str, int]:
        """Launch options of the GEMM."""
        names = ("num_warps", "num_stages", "waves_per_eu", "matrix_instr_nonkdim")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class SplitFirst(TileCoverage):
    """AITER's order: the slices of a tile come one after the other."""

    def tiles(self) -> tuple[Indices, Indices, Indices]:
        """(tile row, tile column, slice) of each workgroup."""
        linear, split = np.divmod(np.arange(self.num_m * self.num_n * self.split_k), self.split_k)
        if self.split_k > 1:
            return linear // self.num_n, linear % self.num_n, split
        return TileCoverage(self.M, self.N, self.BLOCK_M, self.BLOCK_N, self.GROUP_M).tiles()

    def workgroups(self, rows: range, columns: range) -> tuple[tuple[int, int, int], ...]:
        """All slices of the tiles that meet the region; the grid has one axis."""
        x = self.num_m * self.num_n
        return tuple((i + x * j, 0, 0) for i, j, _ in super().workgroups(rows, columns))


def aiter_folder() -> Path:
    """The folder that holds AITER's ``aiter`` package.

    Raises:
        InputError: ``MXFP4_AITER`` is not set, or names another folder.
    """
    named = os.environ.get(PATH_VARIABLE)
    if not named:
        raise InputError(f"{PATH_VARIABLE} is not set: name an AITER install or an unpacked amd-aiter wheel")
    root = Path(named)
    if not (root / "aiter/ops/triton/_triton_kernels").is_dir():
        raise InputError(f"{root} holds no aiter/ops/triton/_triton_kernels: name an AITER install in {PATH_VARIABLE}")
    return root


@cache
def kernel(names: tuple[str, ...]) -> Any:
    """The first of AITER's kernels called ``names`` that there is, as a plain ``triton.jit`` function.

    Raises:
        InputError: This AITER has none of them.
    """
    _lay_out(aiter_folder())
    for name in names:
        for module in MODULES[name]:
            found = _imported(f"{PACKAGE}._triton_kernels.{module}", name)
            if found is not None:
                return found
    raise InputError(f"{aiter_folder()} has no kernel {' or '.join(names)}: name a newer AITER in {PATH_VARIABLE}")


def _imported(module: str, name: str) -> Any:
    try:
        found = vars(importlib.import_module(module)).get(name)
    except ModuleNotFoundError:
        return None
    while found is not None and not isinstance(found, triton.JITFunction):
        found = found.fn
    return found


def _lay_out(root: Path) -> None:
    """Register AITER's folders as packages without code."""
    folders = [root / "aiter", *(root / "aiter/ops/triton").glob("_triton_kernels/**/"), root / "aiter/ops"]
    folders += [root / "aiter/ops/triton", root / "aiter/ops/triton/utils", root / "aiter/ops/triton/utils/_triton"]
    for folder in folders:
        if folder.is_dir():
            package = ModuleType(".".join(folder.relative_to(root).parts))
            package.__path__ = [str(folder)]
            sys.modules.setdefault(package.__name__, package)
    chooser = ModuleType(f"{PACKAGE}.utils.gemm_config_utils")  # reads the device when it is imported
    chooser.get_gemm_config = None  # type: ignore[attr-defined]
    sys.modules.setdefault(chooser.__name__, chooser)


def split_block(packed_k: int, knobs: Knobs) -> tuple[int, Knobs]:
    """Elements of K of a slice, and the knobs that AITER's wrapper takes instead of ``knobs``.

    Source: AITER's ``get_splitk``: it halves the split or the step until K divides.
    """
    split, block_k = knobs.split_k, knobs.block_k
    slice_k = _slice(packed_k, split, block_k)
    while split > 1 and block_k > 16:
        if packed_k % (slice_k // 2):
            split //= 2
        elif packed_k % (block_k // 2):
            block_k //= 2
        else:
            break
        slice_k = _slice(packed_k, split, block_k)
    if split == 1:
        slice_k = 2 * packed_k
    if block_k >= 2 * packed_k:
        block_k, split, slice_k = triton.next_power_of_2(2 * packed_k), 1, 2 * packed_k
    return slice_k, replace(knobs, split_k=split, block_k=block_k, block_n=max(knobs.block_n, 32))


def _slice(packed_k: int, split: int, block_k: int) -> int:
    whole = 2 * -(-packed_k // split)
    return -(-whole // block_k) * block_k


def gemm_program(shape: GemmShape, asked: Knobs, *, fused: bool) -> Program:
    """AITER's GEMM with preshuffled B, and its reduction where K is split.

    Args:
        shape: Problem.
        asked: Configuration; AITER's wrapper may lower its split or its step.
        fused: A is bf16 and quantised in the loop; else it is packed, with shuffled scales from BLOCK_M = 32 on.
    """
    slice_k, knobs = split_block(shape.K // 2, asked)
    out = "slices" if knobs.split_k > 1 else "out"
    coverage = SplitFirst(shape.M, shape.N, knobs.block_m, knobs.block_n, GROUP_M=knobs.group_m, split_k=knobs.split_k)
    fn = kernel(FUSED if fused else PACKED)
    args, constants = _arguments(shape, knobs, slice_k, out, fused)
    known = {name: value for name, value in constants.items() if name in fn.arg_names}
    grid = (coverage.num_m * coverage.num_n * knobs.split_k, 1, 1)
    gemm = KernelCall(TritonKernel(fn), grid, args, known, coverage, knobs.options)
    buffers = _buffers(shape, knobs)
    if knobs.split_k == 1:
        return Program(buffers, (gemm,))
    return Program(buffers, (gemm, _reduce_call(shape, knobs, -(-shape.K // slice_k))))


def _buffers(shape: GemmShape, knobs: Knobs) -> tuple[Buffer, ...]:
    rows = -(-shape.N // 256) * 256
    return (
        Buffer("a", "bf16", (shape.M, shape.K), "input"),
        Buffer("a_codes", "u8", (shape.M, shape.K // 2), "workspace"),
        Buffer("a_scale", "u8", (-(-shape.M // 256) * 256, -(-shape.K // 256) * 8), "workspace"),
        Buffer("b", "u8", (shape.N, shape.K // 2), "input"),
        Buffer("b_scale", "u8", (rows, -(-shape.K // 256) * 8), "input"),
        Buffer("out", "bf16", (shape.M, shape.N), "output"),
        Buffer("slices", "fp32", (knobs.split_k, shape.M, shape.N), "workspace"),
    )


def _arguments(
    shape: GemmShape, knobs: Knobs, slice_k: int, out: str, fused: bool
) -> tuple[dict[str, str | int], dict[str, int | str | bool]]:
    """Run-time arguments and compile-time ones; strides of 1 are compiled in, as the launcher does."""
    M, N, K = shape.M, shape.N, shape.K // 2
    args: dict[str, str | int] = {"a_ptr": "a" if fused else "a_codes", "b_ptr": "b", "c_ptr": out}
    args |= {} if fused else {"a_scales_ptr": "a_scale"}
    args |= {
        "b_scales_ptr": "b_scale", "M": M, "N": N, "K": K, "stride_am": shape.K if fused else K,
        "stride_bn": 16 * K, "stride_ck": M * N if knobs.split_k > 1 else 0, "stride_cm": N, "stride_bsn": shape.K,
    }  # fmt: skip
    if not fused:
        args["stride_asm"] = shape.K // 32 if knobs.block_m < 32 else shape.K
    constants: dict[str, int | str | bool] = dict.fromkeys(
        ("stride_ak", "stride_bk", "stride_cn", "stride_bsk", "stride_ask"), 1
    )
    constants |= {
        "BLOCK_SIZE_M": knobs.block_m, "BLOCK_SIZE_N": knobs.block_n, "BLOCK_SIZE_K": knobs.block_k,
        "GROUP_SIZE_M": knobs.group_m, "NUM_KSPLIT": knobs.split_k, "SPLITK_BLOCK_SIZE": slice_k, "EVEN_K": True,
        "GRID_MN": -(-M // knobs.block_m) * -(-N // knobs.block_n), "PREQUANT": True,
        "cache_modifier": knobs.cache_modifier, **knobs.options,
    }  # fmt: skip
    return args, constants


def _reduce_call(shape: GemmShape, knobs: Knobs, slices: int) -> KernelCall:
    fn = kernel(REDUCE)
    block_m, block_n = 16, knobs.reduce_n
    args: dict[str, str | int] = {
        "c_in_ptr": "slices", "c_out_ptr": "out", "M": shape.M, "N": shape.N, "stride_c_in_k": shape.M * shape.N,
        "stride_c_in_m": shape.N, "stride_c_out_m": shape.N,
    }  # fmt: skip
    constants: dict[str, Any] = {
        "bias_ptr": None, "stride_c_in_n": 1, "stride_c_out_n": 1, "BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n,
        "ACTUAL_KSPLIT": slices, "MAX_KSPLIT": triton.next_power_of_2(knobs.split_k), "ADD_BIAS": False,
        "activation": "", "use_activation": False, "KERNEL_NAME": "reduce",
    }  # fmt: skip
    known = {name: value for name, value in constants.items() if name in fn.arg_names}
    grid = (-(-shape.M // block_m), -(-shape.N // block_n), 1)
    coverage = _Rectangles(shape.M, shape.N, block_m, block_n)
    return KernelCall(TritonKernel(fn), grid, args, known, coverage, {"num_warps": 4})


@dataclass(frozen=True)
class _Rectangles(TileCoverage):
    """Tiles of C on a grid of two axes: x along the rows."""

    def workgroups(self, rows: range, columns: range) -> tuple[tuple[int, int, int], ...]:
        """The tiles that meet the region."""
        found = super().workgroups(rows, columns)
        return tuple((i // self.num_n, i % self.num_n, 0) for i, _, _ in found)
