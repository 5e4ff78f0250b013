"""Run the dispatcher through Triton's interpreter, in a process of its own; prints one JSON object of findings.

Usage: TRITON_INTERPRET=1 python dispatched.py
A finding is the number of elements further than one bf16 step from the float64 reference, unless its name says more.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date

import torch

from kernels.device import GFX950
from kernels.dispatch import default_dispatcher, gemm_shuffled, mxfp4_gemm
from kernels.families.fused import SplitKWorkspaceConfig
from kernels.families.fused_splitk_ticket import SplitKTicketConfig
from kernels.mxfp4.reference import compare, mxfp4_gemm_reference
from kernels.mxfp4.weights import PackedWeight
from kernels.runtime.dispatcher import Dispatcher
from kernels.runtime.graphs import GraphCache
from kernels.tables.rows import Made, TableRow, TunedTable

N, K = 64, 192
MADE = Made(date(2026, 11, 29), "3.9.0", "2.13.0", "0" * 12, "by hand", "none")
SPLIT = SplitKWorkspaceConfig(BLOCK_M=16, BLOCK_N=32, BLOCK_K=64, split_k=3)
ROW = TableRow(4, N, K, "fused_splitk_workspace", SPLIT, "measured", True, MADE, time_us=1.0, serves_to=1000)
TABLE = TunedTable(GFX950, (ROW,))
TICKETS = SplitKTicketConfig(BLOCK_M=16, BLOCK_N=32, BLOCK_K=64, split_k=3)
TICKET_TABLE = TunedTable(GFX950, (replace(ROW, family="fused_splitk_ticket", config=TICKETS),))


@dataclass
class ReplayingBackend:
    """Stands for the GPU's graphs: replaying runs the captured launches again, on the same addresses."""

    captures: int = 0
    replays: int = 0
    doubtful: bool = False

    def available(self, index: int) -> bool:
        return True

    def stream(self, index: int) -> int:
        return 0

    def capture(self, launch: Callable[[], None], index: int) -> Callable[[], None]:
        self.captures += 1

        def replay() -> None:
            self.replays += 1
            launch()

        return replay


@dataclass
class Findings:
    generator: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(11))
    found: dict[str, object] = field(default_factory=dict)

    def randn(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator).to(torch.bfloat16)

    def weight(self, n: int = N, k: int = K) -> PackedWeight:
        return PackedWeight.from_dense(self.randn(n, k))

    def compare(self, name: str, actual: torch.Tensor, a: torch.Tensor, weight: PackedWeight) -> None:
        rows = mxfp4_gemm_reference(a.reshape(-1, weight.K), weight)
        reference = rows.reshape(*a.shape[:-1], weight.N)
        self.found[name] = compare(actual, reference).mismatches

    def inputs(self) -> None:
        weight = self.weight()
        self.found["no rows"] = list(mxfp4_gemm(self.randn(0, K), weight).shape)
        cases = {
            "matrix": self.randn(3, K),
            "batch": self.randn(2, 2, K),
            "vector": self.randn(K),
            "strided rows": self.randn(3, 2 * K)[:, :K],
            "transposed": self.randn(K, 3).T,
            "misaligned": self.randn(2, K + 8)[:, 1 : K + 1],
            "repeated row": self.randn(1, K).expand(3, K),
        }
        for name, a in cases.items():
            self.compare(name, mxfp4_gemm(a, weight), a, weight)
        a, out = self.randn(2, 2, K), torch.full((2, 2, N), float("nan"), dtype=torch.bfloat16)
        self.found["out is returned"] = mxfp4_gemm(a, weight, out=out) is out
        self.compare("out", out, a, weight)
        self.found["served by"] = default_dispatcher(None).statistics.calls

    def parts(self) -> None:
        """One row of slices takes 3 * 64 * 4 = 768 bytes, so 256 rows take 192 KiB."""
        dispatcher = Dispatcher(GFX950, TABLE, workspace_limit_bytes=200 << 10)
        weight, a = self.weight(), self.randn(300, K + 64)[:, :K]
        self.compare("in parts", dispatcher.gemm(a, weight), a, weight)
        self.found["in parts, how"] = dispatcher.statistics.calls

    def weights(self, graph: bool) -> None:
        backend = ReplayingBackend()
        dispatcher = Dispatcher(GFX950, TABLE, graphs=GraphCache(backend))
        name = "graph" if graph else "plain"
        first, second = self.weight(), self.weight()
        a, out = self.randn(3, K), torch.empty(3, N, dtype=torch.bfloat16)

        def check(what: str, weight: PackedWeight, expected: PackedWeight) -> None:
            wrong = 0
            for _ in range(3 if graph else 1):  # seen, captured, replayed
                a.copy_(self.randn(3, K))
                dispatcher.gemm(a, weight, out=out.fill_(float("nan")), graph=graph)
                wrong += compare(out, mxfp4_gemm_reference(a, expected)).mismatches
            self.found[f"{name}: {what}"] = wrong

        for turn in range(4):
            weight = (first, second)[turn % 2]
            check(f"two layers in turn, {turn}", weight, weight)
        self.found[f"{name}: captures for two layers"] = backend.captures
        first.data.copy_(second.data)
        first.scale.copy_(second.scale)
        check("updated in place", first, second)
        for turn in range(3):  # the allocator gives the new weight the memory of the old one
            del first
            gc.collect()
            first = self.weight()
            check(f"freed and rebuilt, {turn}", first, first)
        self.found[f"{name}: graphs held for two layers"] = len(dispatcher.graphs)
        self.found[f"{name}: replays"] = backend.replays
        earlier = dispatcher.gemm(a, first, graph=graph)
        kept = earlier.clone()
        for _ in range(3):
            dispatcher.gemm(self.randn(3, K), first, graph=graph)
        self.found[f"{name}: a result stays what it was"] = torch.equal(earlier, kept)

    def tickets(self) -> None:
        """Plain, captured and replayed calls, and a part of rows each: 2 parts take their tickets from one place."""
        dispatcher = Dispatcher(
            GFX950, TICKET_TABLE, graphs=GraphCache(ReplayingBackend()), workspace_limit_bytes=200 << 10
        )
        weight, a, out = self.weight(), self.randn(300, K), torch.empty(3, N, dtype=torch.bfloat16)
        self.compare("tickets: in parts", dispatcher.gemm(a, weight), a, weight)
        few = a[:3].clone()
        for turn in range(4):
            few.copy_(self.randn(3, K))
            self.compare(f"tickets: graph, {turn}", dispatcher.gemm(few, weight, out=out, graph=True), few, weight)
        self.found["tickets: graphs"] = len(dispatcher.graphs)

    def shuffled(self) -> None:
        weight, a = self.weight(), self.randn(5, K)
        self.compare("shuffled bytes", gemm_shuffled(a, weight.data, weight.scale), a, weight)


if __name__ == "__main__":
    findings = Findings()
    findings.inputs()
    findings.parts()
    findings.weights(graph=False)
    findings.weights(graph=True)
    findings.tickets()
    findings.shuffled()
    print(json.dumps(findings.found))
