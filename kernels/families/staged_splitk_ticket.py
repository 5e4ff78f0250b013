"""``staged_splitk_ticket``: a quantise kernel, then a GEMM with K split whose last workgroup of a tile sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernels.config import TILE, Rule, knob
from kernels.families.family import Family
from kernels.families.fused import SplitKWorkspaceConfig
from kernels.families.fused_splitk_ticket import SplitKTicketConfig, TicketGemm
from kernels.families.sources import TRITON_SOURCES
from kernels.families.staged_triton import StagedConfig
from kernels.families.stages import Quantize, Round, Stage
from kernels.triton.staged_ticket import decoded_ticket_kernel, staged_ticket_kernel


@dataclass(frozen=True)
class StagedTicketConfig(SplitKTicketConfig):
    """Knobs of ``staged_splitk_ticket``: those of the GEMM, and the tile of the quantise kernel."""

    QUANT_BLOCK_M: int = knob(32, "Rows of a tile of the quantise kernel", TILE)
    QUANT_BLOCK_K: int = knob(256, "Columns of it", TILE)

    RULES: ClassVar[tuple[Rule, ...]] = (
        *SplitKTicketConfig.RULES,
        *(rule for rule in StagedConfig.RULES if rule not in SplitKWorkspaceConfig.RULES),
    )


@dataclass(frozen=True, eq=False)
class StagedTicketGemm(TicketGemm):
    """Multiply with Triton what a stage before quantised or rounded, K split, and sum in the same launch."""

    FUNCTIONS: ClassVar[tuple[Any, ...]] = (staged_ticket_kernel, decoded_ticket_kernel)

    @property
    def function(self) -> Any:
        """The kernel for what A was made to."""
        return decoded_ticket_kernel if self.rounded else staged_ticket_kernel


def staged_splitk_ticket(c: Any) -> tuple[Stage, ...]:
    """Quantise or round A, multiply and sum in one kernel."""
    rounded = c.a_operand == "bf16"
    return (
        Quantize(c.QUANT_BLOCK_M, c.QUANT_BLOCK_K, c.quantizer, when=np.logical_not(rounded)),
        Round(c.QUANT_BLOCK_M, c.QUANT_BLOCK_K, c, when=rounded),
        StagedTicketGemm(c, staged=True, rounded=rounded, split_k=c.split_k, sliced=True),
    )


STAGED_SPLITK_TICKET = Family(
    "staged_splitk_ticket", StagedTicketConfig, staged_splitk_ticket, True,
    "quantise kernel, then a packed GEMM, K split, the last program of a tile sums",
    (*TRITON_SOURCES, "families/fused_splitk_ticket.py", "families/staged_triton.py", "triton/staged_ticket.py",
     "triton/ticket.py"),
)  # fmt: skip
