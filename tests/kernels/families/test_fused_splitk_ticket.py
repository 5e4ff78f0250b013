"""``fused_splitk_ticket``: one launch, even shares of K, tickets; and calls that may run at once, on a stand-in."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date

import pytest
import torch

from kernels.device import GFX950
from kernels.families import FAMILIES
from kernels.families.fused_splitk_ticket import SplitKTicketConfig
from kernels.launches.program import Buffer, KernelCall, PointerSpec, Runner
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from kernels.runtime.dispatcher import Dispatcher
from kernels.runtime.tickets import Tickets
from kernels.tables.rows import Made, TableRow, TunedTable
from kernels.triton.tiles import steps_of_split

CONFIG = SplitKTicketConfig(BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, split_k=4)
SHAPE = GemmShape(40, 192, 1024)
TILES = 3 * 3


def test_one_launch_stores_slices_takes_tickets_and_writes_the_output() -> None:
    program = FAMILIES["fused_splitk_ticket"].program(SHAPE, CONFIG, 1088)
    (call,) = program.calls
    assert call.grid == (TILES, 4, 1)
    assert program.workspaces == (Buffer("slices", "fp32", (4, 40, 192), "workspace"),)
    assert program.tickets == (Buffer("tickets", "i32", (TILES,), "tickets"),)
    assert {*call.args, *call.constexprs} == set(call.kernel.arg_names)
    assert call.args["stride_am"] == 1088


@pytest.mark.parametrize(("split_k", "legal"), [(1, True), (4, True), (5, False)])
def test_a_slice_without_a_step_is_refused(split_k: int, legal: bool) -> None:
    config = SplitKTicketConfig(BLOCK_K=256, split_k=split_k)
    for K in (1024, 960):  # four steps, of which the last may be a part
        refusal = config.check(GemmShape(16, 64, K), GFX950)
        assert refusal == (None if legal else "split_k=5 leaves slices without a step of BLOCK_K=256")


@pytest.mark.parametrize(("steps", "split_k"), [(7, 3), (28, 14), (28, 16), (5, 5)])
def test_shares_of_k_cover_all_steps_and_differ_by_one_at_most(steps: int, split_k: int) -> None:
    shares = [range(*steps_of_split.fn(split, steps, split_k)) for split in range(split_k)]
    assert [step for share in shares for step in share] == list(range(steps))
    assert {len(share) for share in shares} <= {steps // split_k, -(-steps // split_k)}


@dataclass
class Launches:
    """Stands for the kernel: takes tickets, lets others run, and leaves zeros, unless it is killed."""

    seen: list[int] = field(default_factory=list)
    killed: threading.Event = field(default_factory=threading.Event)

    def make(self, call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
        position = call.kernel.arg_names.index("tickets_ptr")

        def run(*arguments: int) -> None:
            tickets = (ctypes.c_int32 * TILES).from_address(arguments[position])
            self.seen.append(sum(tickets))
            tickets[0] = 1
            time.sleep(1e-4)
            if self.killed.is_set():
                raise KeyboardInterrupt
            tickets[0] = 0

        return run


def dispatcher(launches: Launches) -> Dispatcher:
    made = Made(date(2026, 11, 30), "", "", "0" * 12, "by hand", "none")
    row = TableRow(
        SHAPE.M, SHAPE.N, SHAPE.K, "fused_splitk_ticket", CONFIG, "predicted", True, made, predicted_us=1.0
    )  # fmt: skip
    return Dispatcher(GFX950, TunedTable(GFX950, (row,)), make=launches.make, tickets=Tickets())


def operands() -> tuple[torch.Tensor, PackedWeight]:
    weight = PackedWeight.from_dense(torch.randn(SHAPE.N, SHAPE.K).to(torch.bfloat16))
    return torch.randn(SHAPE.M, SHAPE.K).to(torch.bfloat16), weight


def test_no_two_calls_at_once_share_tickets() -> None:
    launches, (a, weight) = Launches(), operands()
    chosen = dispatcher(launches)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: chosen.gemm(a, weight), range(200)))
    assert launches.seen == [0] * 200


def test_a_call_after_a_killed_launch_finds_zeros() -> None:
    launches, (a, weight) = Launches(), operands()
    chosen = dispatcher(launches)
    launches.killed.set()
    with pytest.raises(KeyboardInterrupt):
        chosen.gemm(a, weight)
    launches.killed.clear()
    chosen.gemm(a, weight)
    assert launches.seen == [0, 0]
