"""``fused`` and its split-K forms of several kernels: knobs, rules, stages. One Triton kernel quantises and multiplies.

The form of one kernel is in :mod:`kernels.families.fused_splitk_ticket`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from kernels.config import (
    GROUPED,
    MAX_TENSOR_ELEMENTS,
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
)
from kernels.device import DeviceKey
from kernels.families.family import Family
from kernels.families.stages import Clear, Gemm, Stage, Sum
from kernels.problem import GemmShape


def _accumulators_fit(c: Any, shape: GemmShape, device: DeviceKey) -> Any:
    lanes = c.num_warps * device.architecture.wave
    return lanes * device.architecture.lane_registers >= c.BLOCK_M * c.BLOCK_N


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
        "quantizer=hardware needs the FP4 conversion instruction",
    ),
    Rule(
        lambda c, s, d: (c.a_operand == "e2m1") | (not d.has_scaled_fp4),
        "a_operand={a_operand} gives up the FP4 matrix unit",
    ),
)


@dataclass(frozen=True)
class TileConfig(KernelConfig):
    """Tile and launch knobs that every Triton family shares; also the configuration of ``fused``."""

    BLOCK_M: int = knob(16, "Rows of C a program computes", TILE)
    BLOCK_N: int = knob(64, "Columns of C a program computes", TILE)
    BLOCK_K: int = knob(256, "Elements of K a program consumes each step", TILE)
    GROUP_M: int = knob(1, "Tile rows visited together, so that neighbouring programs share weights in L2", GROUPED)
    num_warps: int = knob(4, "Waves of one program", (1, 32))
    num_stages: int = knob(2, "Software-pipelining depth of the K loop", STAGES)
    waves_per_eu: int = knob(0, "Hint of the AMD compiler: aim at this many waves a SIMD; 0 gives no hint", (0, 20))
    matrix_instr_nonkdim: int = knob(16, "Rows of the MFMA instruction: 16, 32, or 0: the compiler chooses", MFMA_ROWS)
    cache_modifier: Literal["", ".cg"] = knob("", 'Of the weight loads: "" or ".cg" (cached in L2 only)')
    num_xcds: int = knob(1, "Dies that neighbouring tiles are kept together on; 1 keeps the round robin", XCDS)
    quantizer: Literal["hardware", "software"] = knob(
        "hardware", "hardware: the FP4 conversion instruction; software: integer arithmetic"
    )
    a_operand: Literal["e2m1", "bf16"] = knob(
        "e2m1", "e2m1: packed codes of A; bf16: its quantised values, for GPUs without an FP4 matrix unit"
    )

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

    split_k: int = knob(4, "Slices of K, each summed by programs of its own", SPLITS)

    RULES: ClassVar[tuple[Rule, ...]] = TILE_RULES + SPLIT_RULES


@dataclass(frozen=True)
class SplitKWorkspaceConfig(SplitKAtomicConfig):
    """Knobs of ``fused_splitk_workspace``: ``split_k`` slices, then a reduction with its own tile."""

    REDUCE_BLOCK_M: int = knob(16, "Rows of a tile of the reduction", TILE)
    REDUCE_BLOCK_N: int = knob(64, "Columns of it", TILE)

    RULES: ClassVar[tuple[Rule, ...]] = (
        *SplitKAtomicConfig.RULES,
        multiple("REDUCE_BLOCK_M", 1),
        multiple("REDUCE_BLOCK_N", 16),
    )


CAST_BLOCK = (16, 64)  # tile of the kernel that rounds the accumulator to bf16


def fused(c: Any) -> tuple[Stage, ...]:
    """Quantise and multiply in one kernel."""
    return (Gemm(c),)


def fused_splitk_atomic(c: Any) -> tuple[Stage, ...]:
    """The same for each slice of K, added to a cleared fp32 accumulator, which is then rounded."""
    return Clear("sums"), Gemm(c, split_k=c.split_k, atomic=True), Sum(*CAST_BLOCK, slices=1, buffer="sums")


def fused_splitk_workspace(c: Any) -> tuple[Stage, ...]:
    """The same for each slice of K, each stored, then summed."""
    return Gemm(c, split_k=c.split_k, sliced=True), Sum(c.REDUCE_BLOCK_M, c.REDUCE_BLOCK_N, c.split_k)


FUSED = Family("fused", TileConfig, fused, True, "quantise and multiply in one kernel")
FUSED_SPLITK_ATOMIC = Family(
    "fused_splitk_atomic", SplitKAtomicConfig, fused_splitk_atomic, False, "fused, K split, fp32 atomics"
)
FUSED_SPLITK_WORKSPACE = Family(
    "fused_splitk_workspace", SplitKWorkspaceConfig, fused_splitk_workspace, True,
    "fused, K split into slices, then a reduction",
)  # fmt: skip
