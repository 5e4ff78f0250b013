"""Knobs of the families whose kernels Triton does not make: HIP sources, code objects of AITER, AITER itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from kernels import code_objects
from kernels.config import (
    ACCUMULATORS_PER_LANE,
    LANES,
    SPLIT_RULES,
    KernelConfig,
    Rule,
    at_least_one,
    multiple,
)
from kernels.device import DeviceKey
from kernels.hip_quantize import GROUPS, THREADS, VECTORS
from kernels.problem import GemmShape

LDS_BYTES = 160 * 1024  # of a compute unit of gfx950 (AMD CDNA 4 ISA manual)
LOAD_BYTES = 16  # of a lane, by the widest load
SCALED_K = 256  # elements of K that one word of scales covers
MAX_WAVES = 16  # of a workgroup

MAX_K = 1 << 23
OFFSET_SPAN = 1 << 31  # bytes that a lane's offset reaches

GFX950_ONLY = Rule(lambda c, s, d: d.arch == "gfx950", "these kernels are gfx950 machine code")


def one_of(name: str, values: tuple[int, ...]) -> Rule:
    """The knob has one of these values."""

    def holds(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
        value = getattr(c, name)
        found = value == values[0]
        for other in values[1:]:
            found = found | (value == other)
        return found

    return Rule(holds, f"{name}={{{name}}} is none of {', '.join(map(str, values))}")


HIP_QUANTIZE_RULES = (
    one_of("QUANT_THREADS", THREADS),
    one_of("QUANT_GROUPS", GROUPS),
    one_of("QUANT_VECTOR", VECTORS),
)


def _wave_part_fits(block: str, waves: str) -> Rule:
    """A wave's rows (or columns) are whole matrix instructions that share whole words of scales."""

    def holds(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
        size, count = getattr(c, block), getattr(c, waves)
        part = size // count
        small = (part == 16) & (c.matrix_instr_nonkdim == 16)
        return (size % count == 0) & (part >= 16) & ((part % 32 == 0) | small)

    reason = f"{waves}={{{waves}}} of {block}={{{block}}}: a wave takes 32 * i (or 16, of the 16-row instruction)"
    return Rule(holds, reason)


def hip_lds_bytes(BLOCK_M: Any, BLOCK_K: Any, waves: Any, num_stages: Any) -> Any:
    """LDS of a workgroup of the HIP GEMM: its stages of A, each rounded up to whole copies by all lanes."""
    copy_bytes = LANES * waves * LOAD_BYTES  # that all lanes load at once
    return num_stages * (-(-(BLOCK_M * BLOCK_K // 2) // copy_bytes) * copy_bytes)


def _stages_fit(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
    return hip_lds_bytes(c.BLOCK_M, c.BLOCK_K, c.waves_m * c.waves_n, c.num_stages) <= LDS_BYTES


def _accumulators_fit(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
    waves = c.waves_m * c.waves_n
    per_simd = -(-waves // 4)
    return c.BLOCK_M * c.BLOCK_N * per_simd < LANES * waves * ACCUMULATORS_PER_LANE


@dataclass(frozen=True)
class StagedHipConfig(KernelConfig):
    """Knobs of ``staged_hip``: a HIP quantise kernel, a HIP GEMM, a reduction if ``split_k`` > 1.

    Args:
        BLOCK_M: Rows of C a workgroup computes.
        BLOCK_N: Columns of C a workgroup computes.
        BLOCK_K: Elements of K of one step.
        waves_m: Waves that share the rows.
        waves_n: Waves that share the columns.
        num_stages: Buffers of A in the LDS.
        matrix_instr_nonkdim: Rows and columns of the MFMA instruction, 16 or 32.
        GROUP_M: Tile rows that are visited together.
        num_xcds: Dies over which neighbouring tiles are kept together.
        split_k: Slices of K, each summed by workgroups of its own.
        REDUCE_BLOCK_M: Rows of a tile of the reduction.
        REDUCE_BLOCK_N: Columns of it.
        QUANT_THREADS: Threads of a workgroup of the quantise kernel.
        QUANT_GROUPS: Blocks that a team of its lanes quantises.
        QUANT_VECTOR: Values of a block that one of its lanes holds.
    """

    BLOCK_M: int = 64
    BLOCK_N: int = 128
    BLOCK_K: int = 256
    waves_m: int = 1
    waves_n: int = 4
    num_stages: int = 2
    matrix_instr_nonkdim: int = 16
    GROUP_M: int = 1
    num_xcds: int = 1
    split_k: int = 1
    REDUCE_BLOCK_M: int = 16
    REDUCE_BLOCK_N: int = 64
    QUANT_THREADS: int = 256
    QUANT_GROUPS: int = 1
    QUANT_VECTOR: int = 8

    RULES: ClassVar[tuple[Rule, ...]] = (
        GFX950_ONLY,
        *(at_least_one(name) for name in ("waves_m", "waves_n", "GROUP_M", "num_xcds")),
        one_of("num_stages", (1, 2, 3, 4)),
        Rule(lambda c, s, d: s.K < MAX_K, "K exceeds 2**23, which the kernel's offsets do not reach"),
        Rule(lambda c, s, d: c.BLOCK_M * s.N * 4 < OFFSET_SPAN, "BLOCK_M={BLOCK_M} rows of C exceed 2 GB"),
        Rule(lambda c, s, d: c.BLOCK_M * (s.K // 2) < OFFSET_SPAN, "BLOCK_M={BLOCK_M} rows of A exceed 2 GB"),
        Rule(lambda c, s, d: c.BLOCK_N * (s.K // 2) < OFFSET_SPAN, "BLOCK_N={BLOCK_N} rows of B exceed 2 GB"),
        Rule(lambda c, s, d: (c.BLOCK_K >= SCALED_K) & (c.BLOCK_K % SCALED_K == 0),
             "BLOCK_K={BLOCK_K} is no multiple of 256, the elements of K of a word of scales"),
        one_of("matrix_instr_nonkdim", (16, 32)),
        _wave_part_fits("BLOCK_M", "waves_m"),
        _wave_part_fits("BLOCK_N", "waves_n"),
        Rule(lambda c, s, d: c.waves_m * c.waves_n <= MAX_WAVES, "waves_m={waves_m} x waves_n={waves_n} exceeds 16"),
        Rule(_stages_fit, "num_stages={num_stages} of BLOCK_M={BLOCK_M} x BLOCK_K={BLOCK_K} exceed the LDS"),
        Rule(_accumulators_fit, "BLOCK_M={BLOCK_M} x BLOCK_N={BLOCK_N} accumulators exceed the registers"),
        *SPLIT_RULES,
        multiple("REDUCE_BLOCK_M", 1),
        multiple("REDUCE_BLOCK_N", 16),
        *HIP_QUANTIZE_RULES,
    )  # fmt: skip


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
    """Knobs of ``staged_ck``: a quantise kernel, then one of AITER's code objects.

    Args:
        BLOCK_M: Rows of the code object's tile.
        BLOCK_N: Columns of it.
        log2_k_split: K is cut into 2**log2_k_split slices, which are rounded to bf16 and added by atomics: the result
            is less exact than that of any other configuration, and its bits may differ from run to run.
        quantize_kernel: ``triton`` or ``hip``: which kernel quantises A.
        QUANT_BLOCK_M: Rows of a tile of the Triton quantise kernel.
        QUANT_BLOCK_K: Columns of it.
        QUANT_THREADS: Threads of a workgroup of the HIP quantise kernel.
        QUANT_GROUPS: Blocks that a team of its lanes quantises.
        QUANT_VECTOR: Values of a block that one of its lanes holds.
    """

    BLOCK_M: int = 32
    BLOCK_N: int = 128
    log2_k_split: int = 0
    quantize_kernel: Literal["triton", "hip"] = "triton"
    QUANT_BLOCK_M: int = 32
    QUANT_BLOCK_K: int = 256
    QUANT_THREADS: int = 256
    QUANT_GROUPS: int = 1
    QUANT_VECTOR: int = 8

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
        if refusal is None or described is None or device.arch != "gfx950":
            return refusal
        return code_objects.check(shape, described, self.log2_k_split) or refusal

    @property
    def repeatable(self) -> bool:
        """False where slices of K are added by atomics."""
        return not code_objects.accumulates_in_bf16(self.log2_k_split)


@dataclass(frozen=True)
class AiterConfig(KernelConfig):
    """``aiter`` has no knobs: the library chooses its kernel by the shape."""

    RULES: ClassVar[tuple[Rule, ...]] = (GFX950_ONLY,)
