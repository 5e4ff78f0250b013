"""``fused`` and its two split-K forms: knobs, rules, launches. Quantise and multiply in one Triton kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kernels.config import (
    ACCUMULATORS_PER_LANE,
    LANES,
    MAX_TENSOR_ELEMENTS,
    SPLIT_RULES,
    KernelConfig,
    Rule,
    at_least_one,
    multiple,
)
from kernels.device import DeviceKey
from kernels.families.stages import cdiv, io_buffers, is_wide, reduce_call, round_up, summed, zero_call
from kernels.launches.coverage import TileCoverage
from kernels.launches.program import Buffer, KernelCall, Program
from kernels.problem import GemmShape
from kernels.triton.gemm import fused_gemm_kernel


def _accumulators_fit(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
    lanes = c.num_warps * (LANES if device.is_amd else 32)
    return lanes * (ACCUMULATORS_PER_LANE if device.is_amd else 255) >= c.BLOCK_M * c.BLOCK_N


TILE_RULES = (
    multiple("BLOCK_M", 1),
    multiple("BLOCK_N", 16),  # a row group of the shuffled weight
    multiple("BLOCK_K", 64),  # a column group of the shuffled weight
    at_least_one("GROUP_M"),
    multiple("num_warps", 1),
    at_least_one("num_stages"),
    at_least_one("num_xcds"),
    Rule(lambda c, s, d: c.BLOCK_N <= 256, "BLOCK_N={BLOCK_N} exceeds 256, the row padding of the shuffled scales"),
    Rule(lambda c, s, d: c.num_warps <= 16, "num_warps={num_warps} exceeds 16, the waves of a workgroup"),
    Rule(
        lambda c, s, d: (
            (c.BLOCK_M * c.BLOCK_K <= MAX_TENSOR_ELEMENTS)
            & (c.BLOCK_N * c.BLOCK_K <= MAX_TENSOR_ELEMENTS)
            & (c.BLOCK_M * c.BLOCK_N <= MAX_TENSOR_ELEMENTS)
        ),
        "a tile of BLOCK_M={BLOCK_M}, BLOCK_N={BLOCK_N}, BLOCK_K={BLOCK_K} exceeds Triton's block limit",
    ),
    Rule(
        _accumulators_fit,
        "BLOCK_M={BLOCK_M} x BLOCK_N={BLOCK_N} accumulators exceed the registers of {num_warps} waves",
    ),
    Rule(
        lambda c, s, d: (c.matrix_instr_nonkdim == 16) | (c.matrix_instr_nonkdim == 32) | (c.matrix_instr_nonkdim == 0),
        "matrix_instr_nonkdim={matrix_instr_nonkdim} is none of 0, 16, 32",
    ),
    Rule(
        lambda c, s, d: (c.quantizer == "software") | d.has_scaled_fp4,
        "quantizer=hardware needs the FP4 conversion of gfx950",
    ),
    Rule(
        lambda c, s, d: (c.a_operand == "e2m1") | (not d.has_scaled_fp4),
        "a_operand={a_operand} gives up the FP4 matrix unit of gfx950",
    ),
)


@dataclass(frozen=True)
class TileConfig(KernelConfig):
    """Tile and launch knobs that every Triton family shares; also the configuration of ``fused``.

    Args:
        BLOCK_M: Rows of C a program computes.
        BLOCK_N: Columns of C a program computes.
        BLOCK_K: Elements of K a program consumes each step.
        GROUP_M: Tile rows that are visited together, so that neighbouring programs share weights in L2.
        num_warps: Waves of one program.
        num_stages: Software-pipelining depth of the K loop.
        waves_per_eu: Hint of the AMD compiler: aim at this many waves a SIMD; 0 gives no hint.
        matrix_instr_nonkdim: Rows and columns of the MFMA instruction, 16 or 32; 0 lets the compiler choose.
        cache_modifier: Of the weight loads: "" or ".cg" (cached in L2 only).
        num_xcds: Dies over which neighbouring tiles are kept together; 1 keeps the hardware's round robin.
        quantizer: ``hardware`` uses the conversion instruction of gfx950, ``software`` integer arithmetic.
        a_operand: What is multiplied: packed ``e2m1`` codes of A, or its quantised values as ``bf16``, which GPUs
            without an FP4 matrix unit lower to better code (then ``quantizer`` is not read).
    """

    BLOCK_M: int = 16
    BLOCK_N: int = 64
    BLOCK_K: int = 256
    GROUP_M: int = 1
    num_warps: int = 4
    num_stages: int = 2
    waves_per_eu: int = 0
    matrix_instr_nonkdim: int = 16
    cache_modifier: Literal["", ".cg"] = ""
    num_xcds: int = 1
    quantizer: Literal["hardware", "software"] = "hardware"
    a_operand: Literal["e2m1", "bf16"] = "e2m1"

    RULES: ClassVar[tuple[Rule, ...]] = TILE_RULES

    def launch_options(self) -> dict[str, int]:
        """Options of the compiler and launcher, as opposed to constants of the kernel's source."""
        return {
            "num_warps": self.num_warps,
            "num_stages": self.num_stages,
            "waves_per_eu": self.waves_per_eu,
            "matrix_instr_nonkdim": self.matrix_instr_nonkdim,
        }


@dataclass(frozen=True)
class SplitKAtomicConfig(TileConfig):
    """Knobs of ``fused_splitk_atomic``: ``split_k`` programs add their part of K to each tile."""

    split_k: int = 4

    RULES: ClassVar[tuple[Rule, ...]] = TILE_RULES + SPLIT_RULES


@dataclass(frozen=True)
class SplitKWorkspaceConfig(SplitKAtomicConfig):
    """Knobs of ``fused_splitk_workspace``: ``split_k`` slices, then a reduction with its own tile."""

    REDUCE_BLOCK_M: int = 16
    REDUCE_BLOCK_N: int = 64

    RULES: ClassVar[tuple[Rule, ...]] = (
        *SplitKAtomicConfig.RULES,
        multiple("REDUCE_BLOCK_M", 1),
        multiple("REDUCE_BLOCK_N", 16),
    )


CAST_BLOCK = (16, 64)  # tile of the kernel that rounds the accumulator to bf16


def fused(shape: GemmShape, config: TileConfig, stride_am: int) -> Program:
    """Quantise and multiply in one kernel."""
    return Program(io_buffers(shape), (_fused_call(shape, config, stride_am, 1, "out", "out"),))


def fused_splitk_atomic(shape: GemmShape, config: SplitKAtomicConfig, stride_am: int) -> Program:
    """The same for each slice of K, added to a cleared fp32 accumulator, which is then rounded."""
    sums = Buffer("sums", "fp32", (1, shape.M, shape.N), "workspace")
    gemm = _fused_call(shape, config, stride_am, config.split_k, "atomic", "sums")
    cast = reduce_call(shape, "sums", 1, *CAST_BLOCK)
    return Program((*io_buffers(shape), sums), (zero_call(shape, "sums"), gemm, cast))


def fused_splitk_workspace(shape: GemmShape, config: SplitKWorkspaceConfig, stride_am: int) -> Program:
    """The same for each slice of K, each stored, then summed."""
    gemm = _fused_call(shape, config, stride_am, config.split_k, "workspace", "slices")
    return summed(shape, io_buffers(shape), (gemm,), config.split_k, config.REDUCE_BLOCK_M, config.REDUCE_BLOCK_N)


def _fused_call(shape: GemmShape, config: TileConfig, stride_am: int, split_k: int, store: str, out: str) -> KernelCall:
    constexprs = _gemm_constexprs(shape, config, split_k, store)
    constexprs |= {
        "QUANTIZER": config.quantizer, "A_OPERAND": config.a_operand,
        "WIDE_OFFSETS": _gemm_wide(shape, stride_am, split_k),
    }  # fmt: skip
    return KernelCall(
        fused_gemm_kernel,
        _gemm_grid(shape, config, split_k),
        {"a_ptr": "a", "b_ptr": "b", "b_scale_ptr": "b_scale", "out_ptr": out,
         "M": shape.M, "stride_am": stride_am, "stride_om": shape.N},
        constexprs,
        _coverage(shape, config, split_k),
        config.launch_options(),
    )  # fmt: skip


def _gemm_wide(shape: GemmShape, stride_am: int, split_k: int) -> bool:
    rows = round_up(shape.M, 256)
    return is_wide(rows * stride_am, shape.N * shape.K // 2, split_k * rows * shape.N)


def _gemm_constexprs(shape: GemmShape, config: TileConfig, split_k: int, store: str) -> dict[str, int | str | bool]:
    return {
        "N": shape.N, "K": shape.K,
        "BLOCK_M": config.BLOCK_M, "BLOCK_N": config.BLOCK_N, "BLOCK_K": config.BLOCK_K,
        "GROUP_M": config.GROUP_M, "NUM_XCDS": config.num_xcds, "SPLIT_K": split_k,
        "CACHE": config.cache_modifier, "STORE": store,
    }  # fmt: skip


def _gemm_grid(shape: GemmShape, config: TileConfig, split_k: int) -> tuple[int, int, int]:
    return (cdiv(shape.M, config.BLOCK_M) * cdiv(shape.N, config.BLOCK_N), split_k, 1)


def _coverage(shape: GemmShape, config: TileConfig, split_k: int) -> TileCoverage:
    return TileCoverage(shape.M, shape.N, config.BLOCK_M, config.BLOCK_N, config.GROUP_M, config.num_xcds, split_k)
