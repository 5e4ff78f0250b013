"""``staged_hip``: knobs, rules, stages. A HIP quantise kernel, a HIP GEMM, a sum where K is split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from kernels.config import (
    GFX950_ONLY,
    GROUPED,
    MFMA_ROWS,
    SPLIT_RULES,
    SPLITS,
    STAGES,
    TILE,
    XCDS,
    KernelConfig,
    Rule,
    at_least_one,
    knob,
    multiple,
    one_of,
)
from kernels.device import GFX950, DeviceKey
from kernels.families.family import Family
from kernels.families.sources import HIP_SOURCES
from kernels.families.stages import HIP_QUANTIZE_RULES, HipQuantize, HipStage, Stage, Sum, cdiv, slices_buffer
from kernels.launches.coverage import TileCoverage
from kernels.launches.native import ArgumentType, HipKernel
from kernels.launches.program import Buffer, KernelCall
from kernels.problem import GemmShape

WAVE: Final = GFX950.architecture.wave
LOAD_BYTES = 16  # of a lane, by the widest load
SCALED_K = 256  # elements of K that one word of scales covers
MAX_WAVES = 16  # of a workgroup
MAX_K = 1 << 23
OFFSET_SPAN = 1 << 31  # bytes that a lane's offset reaches


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
    copy_bytes = WAVE * waves * LOAD_BYTES  # that all lanes load at once
    return num_stages * (-(-(BLOCK_M * BLOCK_K // 2) // copy_bytes) * copy_bytes)


def _stages_fit(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
    return hip_lds_bytes(c.BLOCK_M, c.BLOCK_K, c.waves_m * c.waves_n, c.num_stages) <= device.architecture.lds_bytes


def _accumulators_fit(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
    waves = c.waves_m * c.waves_n
    per_simd = -(-waves // 4)
    return c.BLOCK_M * c.BLOCK_N * per_simd < WAVE * waves * device.architecture.lane_registers


@dataclass(frozen=True)
class StagedHipConfig(KernelConfig):
    """Knobs of ``staged_hip``: a HIP quantise kernel, a HIP GEMM, a reduction if ``split_k`` > 1."""

    BLOCK_M: int = knob(64, "Rows of C a workgroup computes", TILE)
    BLOCK_N: int = knob(128, "Columns of C a workgroup computes", TILE)
    BLOCK_K: int = knob(256, "Elements of K of one step", TILE)
    waves_m: int = knob(1, "Waves that share the rows")
    waves_n: int = knob(4, "Waves that share the columns")
    num_stages: int = knob(2, "Buffers of A in the LDS", STAGES)
    matrix_instr_nonkdim: int = knob(16, "Rows and columns of the MFMA instruction, 16 or 32", MFMA_ROWS)
    GROUP_M: int = knob(1, "Tile rows that are visited together", GROUPED)
    num_xcds: int = knob(1, "Dies over which neighbouring tiles are kept together", XCDS)
    split_k: int = knob(1, "Slices of K, each summed by workgroups of its own", SPLITS)
    REDUCE_BLOCK_M: int = knob(16, "Rows of a tile of the reduction", TILE)
    REDUCE_BLOCK_N: int = knob(64, "Columns of it", TILE)
    QUANT_THREADS: int = knob(256, "Threads of a workgroup of the quantise kernel")
    QUANT_GROUPS: int = knob(1, "Blocks that a team of its lanes quantises")
    QUANT_VECTOR: int = knob(8, "Values of a block that one of its lanes holds")

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


GEMM_SOURCE: Final = "gemm.hip"
GEMM_SYMBOL: Final = "mxfp4_gemm"
GEMM_POINTERS: Final = ("codes_ptr", "a_scale_ptr", "b_ptr", "b_scale_ptr", "out_ptr")
GEMM_INTEGERS: Final = ("M", "N", "K", "stride_om", "split_k", "GROUP_M", "num_xcds")
STORE_OUT, STORE_SLICES = 0, 1  # values of the macro STORE


@dataclass(frozen=True, eq=False)
class HipGemm(HipStage):
    """Multiply with ``hip/gemm.hip``; fp32 slices where K is split.

    Args:
        tile: Knobs of :class:`StagedHipConfig`, or columns of them.
    """

    tile: Any

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """A tile and slice of K a workgroup."""
        tile = self.tile
        return KernelCall(
            gemm_kernel(tile),
            (cdiv(shape.M, tile.BLOCK_M) * cdiv(shape.N, tile.BLOCK_N), tile.split_k, 1),
            {"codes_ptr": "a_codes", "a_scale_ptr": "a_scale", "b_ptr": "b", "b_scale_ptr": "b_scale",
             "out_ptr": "slices" if tile.split_k > 1 else "out", "M": shape.M, "N": shape.N, "K": shape.K,
             "stride_om": shape.N, "split_k": tile.split_k, "GROUP_M": tile.GROUP_M, "num_xcds": tile.num_xcds},
            {},
            TileCoverage(shape.M, shape.N, tile.BLOCK_M, tile.BLOCK_N, tile.GROUP_M, tile.num_xcds, tile.split_k),
        )  # fmt: skip

    def workspaces(self, shape: GemmShape) -> tuple[Buffer, ...]:
        """The slices, where K is split."""
        return (slices_buffer(shape, self.tile.split_k),) if self.tile.split_k > 1 else ()


def staged_hip(c: Any) -> tuple[Stage, ...]:
    """Quantise in HIP, multiply in HIP, and sum where K is split."""
    return (
        HipQuantize(c.QUANT_THREADS, c.QUANT_GROUPS, c.QUANT_VECTOR),
        HipGemm(c),
        Sum(c.REDUCE_BLOCK_M, c.REDUCE_BLOCK_N, c.split_k, when=c.split_k > 1),
    )


def gemm_kernel(config: StagedHipConfig) -> HipKernel:
    """The GEMM of ``kernels/hip`` for these template parameters; every shape shares its build."""
    return HipKernel(
        name=GEMM_SYMBOL,
        arg_names=(*GEMM_POINTERS, *GEMM_INTEGERS),
        threads=WAVE * config.waves_m * config.waves_n,
        source=GEMM_SOURCE,
        defines={
            "BLOCK_M": config.BLOCK_M, "BLOCK_N": config.BLOCK_N, "BLOCK_K": config.BLOCK_K,
            "WAVES_M": config.waves_m, "WAVES_N": config.waves_n, "NUM_STAGES": config.num_stages,
            "MFMA": config.matrix_instr_nonkdim, "STORE": STORE_SLICES if config.split_k > 1 else STORE_OUT,
        },
        arg_types=(*_types("ptr", GEMM_POINTERS), *_types("i32", GEMM_INTEGERS)),
    )  # fmt: skip


def _types(kind: ArgumentType, names: tuple[str, ...]) -> tuple[ArgumentType, ...]:
    return (kind,) * len(names)


STAGED_HIP = Family(
    "staged_hip", StagedHipConfig, staged_hip, True, "HIP quantise kernel, then a packed GEMM in HIP", HIP_SOURCES
)
