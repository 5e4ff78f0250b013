"""``staged_triton``: knobs, rules, stages. A quantise kernel, a GEMM on what it stored, a sum where K is split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernels.config import SPLITS, TILE, Rule, knob, multiple
from kernels.families.family import Family
from kernels.families.fused import SplitKWorkspaceConfig
from kernels.families.stages import Gemm, Quantize, Round, Stage, Sum


@dataclass(frozen=True)
class StagedConfig(SplitKWorkspaceConfig):
    """Knobs of ``staged_triton``: a quantise kernel with its own tile, a GEMM, a reduction if ``split_k`` > 1."""

    split_k: int = knob(1, "Slices of K, each summed by programs of its own", SPLITS)
    QUANT_BLOCK_M: int = knob(32, "Rows of a tile of the quantise kernel", TILE)
    QUANT_BLOCK_K: int = knob(256, "Columns of it", TILE)

    RULES: ClassVar[tuple[Rule, ...]] = (
        *SplitKWorkspaceConfig.RULES,
        multiple("QUANT_BLOCK_M", 1),
        multiple("QUANT_BLOCK_K", 32),
        Rule(lambda c, s, d: c.BLOCK_M <= 256, "BLOCK_M={BLOCK_M} exceeds 256, the row padding of the shuffled scales"),
        Rule(
            lambda c, s, d: (c.a_operand == "e2m1") | ((c.QUANT_BLOCK_K % 128 == 0) & (c.BLOCK_K % 128 == 0)),
            "a_operand={a_operand}: BLOCK_K={BLOCK_K} and QUANT_BLOCK_K={QUANT_BLOCK_K} must be multiples of 128",
        ),
    )


def staged_triton(c: Any) -> tuple[Stage, ...]:
    """Quantise or round A, multiply, and sum where K is split."""
    split, rounded = c.split_k > 1, c.a_operand == "bf16"
    return (
        Quantize(c.QUANT_BLOCK_M, c.QUANT_BLOCK_K, c.quantizer, when=np.logical_not(rounded)),
        Round(c.QUANT_BLOCK_M, c.QUANT_BLOCK_K, c, when=rounded),
        Gemm(c, staged=True, rounded=rounded, split_k=c.split_k, sliced=split),
        Sum(c.REDUCE_BLOCK_M, c.REDUCE_BLOCK_N, c.split_k, when=split),
    )


STAGED_TRITON = Family("staged_triton", StagedConfig, staged_triton, True, "quantise kernel, then a packed GEMM")
