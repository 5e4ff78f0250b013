"""``staged_ck``: knobs, rules, stages. A quantise kernel, then one of AITER's code objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from kernels.config import GFX950_ONLY, TILE, KernelConfig, Rule, knob, multiple
from kernels.device import GFX950, DeviceKey
from kernels.errors import InputError, UnavailableError
from kernels.families.family import Family
from kernels.families.sources import CODE_OBJECT_SOURCES
from kernels.families.stages import HIP_QUANTIZE_RULES, Clear, HipQuantize, Quantize, Stage
from kernels.launches.code_object import CodeObjectCoverage, launch_grid, prebuilt_kernel
from kernels.launches.program import KernelCall
from kernels.problem import GemmShape
from kernels.rocm import code_objects
from kernels.rocm.code_objects import accumulates_in_bf16, find_catalogue, lacking_code_objects, slice_elements


def _tile_exists(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
    widest = np.vectorize(lambda tile_m: code_objects.TILE_COLUMNS.get(int(tile_m), 0), otypes=[np.int64])(c.BLOCK_M)
    return (c.BLOCK_N >= 128) & (c.BLOCK_N % 128 == 0) & (widest >= c.BLOCK_N)


def _code_object_allows(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
    def allows(tile_m: int, tile_n: int, log2_k_split: int) -> bool:
        described = code_objects.describe(int(tile_m), int(tile_n))
        return described is None or code_objects.check(shape, described, int(log2_k_split)) is None

    return np.vectorize(allows, otypes=[np.bool_])(c.BLOCK_M, c.BLOCK_N, c.log2_k_split)


@dataclass(frozen=True)
class StagedCkConfig(KernelConfig):
    """Knobs of ``staged_ck``: a quantise kernel, then one of AITER's code objects."""

    BLOCK_M: int = knob(32, "Rows of the code object's tile", TILE)
    BLOCK_N: int = knob(128, "Columns of it", TILE)
    log2_k_split: int = knob(0, "K is cut into 2**this slices, added in bf16 by atomics: less exact, not repeatable")
    quantize_kernel: Literal["triton", "hip"] = knob("triton", "``triton`` or ``hip``: which kernel quantises A")
    QUANT_BLOCK_M: int = knob(32, "Rows of a tile of the Triton quantise kernel", TILE)
    QUANT_BLOCK_K: int = knob(256, "Columns of it", TILE)
    QUANT_THREADS: int = knob(256, "Threads of a workgroup of the HIP quantise kernel")
    QUANT_GROUPS: int = knob(1, "Blocks that a team of its lanes quantises")
    QUANT_VECTOR: int = knob(8, "Values of a block that one of its lanes holds")

    RULES: ClassVar[tuple[Rule, ...]] = (
        GFX950_ONLY,
        Rule(lambda c, s, d: s.K % code_objects.K_STEP == 0,
             "K is no multiple of 256, and the padding of the scales is not known to be zero"),
        Rule(_tile_exists, "AITER has no kernel of tile BLOCK_M={BLOCK_M} x BLOCK_N={BLOCK_N}"),
        Rule(_code_object_allows, "tile {BLOCK_M}x{BLOCK_N} with log2_k_split={log2_k_split} cannot compute the shape"),
        multiple("QUANT_BLOCK_M", 1),
        multiple("QUANT_BLOCK_K", 32),
        *HIP_QUANTIZE_RULES,
    )  # fmt: skip

    def check(self, shape: GemmShape, device: DeviceKey) -> str | None:
        """Why this configuration cannot run ``shape`` on ``device``, in the code object's own terms, or None."""
        refusal = super().check(shape, device)
        described = code_objects.describe(self.BLOCK_M, self.BLOCK_N)
        if refusal is None or described is None or device.arch != GFX950.arch:
            return refusal
        return code_objects.check(shape, described, self.log2_k_split) or refusal

    @property
    def repeatable(self) -> bool:
        """False where slices of K are added by atomics."""
        return not code_objects.accumulates_in_bf16(self.log2_k_split)


@dataclass(frozen=True, eq=False)
class CodeObjectGemm(Stage):
    """Multiply with AITER's code object of one tile; slices of K are added to a cleared C."""

    BLOCK_M: Any
    BLOCK_N: Any
    log2_k_split: Any

    ARCH: ClassVar[str | None] = GFX950.arch

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """A tile a workgroup.

        Raises:
            UnavailableError: There is no AITER here, or it has no such kernel.
        """
        try:
            code_object = find_catalogue().find(self.BLOCK_M, self.BLOCK_N)
        except InputError as error:
            raise UnavailableError(str(error)) from error
        return KernelCall(
            prebuilt_kernel(code_object, shape, self.log2_k_split),
            launch_grid(shape, code_object, self.log2_k_split),
            {"out": "out", "a": "a_codes", "b": "b", "a_scale": "a_scale", "b_scale": "b_scale"},
            {},
            CodeObjectCoverage(shape, code_object, self.log2_k_split),
        )

    def bf16_slice_k(self, shape: GemmShape) -> int | None:
        """Elements of K of a slice, where it is split."""
        split = accumulates_in_bf16(self.log2_k_split)
        return slice_elements(shape.K, self.log2_k_split) if split else None

    def lacking(self, *, offline: bool) -> str | None:
        """AITER's code objects; a disassembler too where the simulator executes them."""
        return lacking_code_objects(disassembled=offline)


def staged_ck(c: Any) -> tuple[Stage, ...]:
    """Quantise, then multiply with the code object of this tile; into a cleared C where K is split."""
    by_hip = c.quantize_kernel == "hip"
    return (
        HipQuantize(c.QUANT_THREADS, c.QUANT_GROUPS, c.QUANT_VECTOR, when=by_hip),
        Quantize(c.QUANT_BLOCK_M, c.QUANT_BLOCK_K, "hardware", when=np.logical_not(by_hip)),
        Clear("out", when=accumulates_in_bf16(c.log2_k_split)),
        CodeObjectGemm(c.BLOCK_M, c.BLOCK_N, c.log2_k_split),
    )


STAGED_CK = Family(
    "staged_ck", StagedCkConfig, staged_ck, True, "quantise kernel, then a code object of AITER", CODE_OBJECT_SOURCES
)
