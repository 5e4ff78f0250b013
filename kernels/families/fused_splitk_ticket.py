"""``fused_splitk_ticket``: ``fused`` with K split, in one launch: the last workgroup of a tile sums its slices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from kernels.config import Rule
from kernels.families.family import Family
from kernels.families.fused import SplitKAtomicConfig
from kernels.families.sources import TRITON_SOURCES
from kernels.families.stages import Gemm, Stage, cdiv
from kernels.launches.program import Buffer, KernelCall
from kernels.launches.triton_kernel import TritonKernel
from kernels.problem import GemmShape
from kernels.triton.ticket import fused_ticket_kernel

HANDED = {"slices_ptr": "slices", "tickets_ptr": "tickets", "out_ptr": "out"}  # in the place of the output


@dataclass(frozen=True)
class SplitKTicketConfig(SplitKAtomicConfig):
    """Knobs of ``fused_splitk_ticket``: those of the GEMM. Slices of K differ by one step of BLOCK_K at most."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        *SplitKAtomicConfig.RULES,
        Rule(
            lambda c, s, d: c.split_k * c.BLOCK_K < s.K + c.BLOCK_K,
            "split_k={split_k} leaves slices without a step of BLOCK_K={BLOCK_K}",
        ),
    )


@dataclass(frozen=True, eq=False)
class TicketGemm(Gemm):
    """Multiply with Triton, K split, and sum in the same launch."""

    FUNCTIONS: ClassVar[tuple[Any, ...]] = (fused_ticket_kernel,)

    @property
    def function(self) -> Any:
        """The kernel."""
        return fused_ticket_kernel

    def call(self, shape: GemmShape, stride_am: int) -> KernelCall:
        """A tile and slice of K a program."""
        sliced = super().call(shape, stride_am)
        arguments: dict[str, str | int] = {}
        for name, value in sliced.args.items():
            arguments |= HANDED if name == "out_ptr" else {name: value}
        constants = {name: value for name, value in sliced.constexprs.items() if name != "STORE"}
        return replace(sliced, kernel=TritonKernel(self.function, waits=True), args=arguments, constexprs=constants)

    def workspaces(self, shape: GemmShape) -> tuple[Buffer, ...]:
        """The slices, and a ticket a tile."""
        tiles = cdiv(shape.M, self.tile.BLOCK_M) * cdiv(shape.N, self.tile.BLOCK_N)
        return (*super().workspaces(shape), Buffer("tickets", "i32", (tiles,), "tickets"))


def fused_splitk_ticket(c: Any) -> tuple[Stage, ...]:
    """Quantise, multiply and sum in one kernel."""
    return (TicketGemm(c, split_k=c.split_k, sliced=True),)


FUSED_SPLITK_TICKET = Family(
    "fused_splitk_ticket", SplitKTicketConfig, fused_splitk_ticket, True,
    "fused, K split into slices, the last program of a tile sums them", (*TRITON_SOURCES, "triton/ticket.py"),
)  # fmt: skip
