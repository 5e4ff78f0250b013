"""The dispatcher itself, with a compiler and a graph runtime that only take notes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date

import pytest
import torch

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.families.fused import TileConfig
from kernels.launches.program import KernelCall, PointerSpec, Runner
from kernels.mxfp4.weights import PackedWeight
from kernels.runtime.dispatcher import Dispatcher
from kernels.runtime.graphs import GraphCache
from kernels.tables.rows import Made, TableRow, TunedTable

MADE = Made(date(2026, 11, 29), "3.9.0", "2.13.0", "0" * 12, "by hand", "none")


@dataclass
class Notes:
    """Compiler and graph runtime."""

    compiled: int = 0
    launches: list[tuple[object, ...]] = field(default_factory=list)
    captures: int = 0
    replays: int = 0
    doubtful: bool = False

    def make(self, call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
        self.compiled += 1
        return lambda *values: self.launches.append(values)

    def available(self, index: int) -> bool:
        return True

    def stream(self, index: int) -> int:
        return 0

    def capture(self, launch: Callable[[], None], index: int) -> Callable[[], None]:
        self.captures += 1
        return self.replay

    def replay(self) -> None:
        self.replays += 1


def tuned(notes: Notes, *, graph: bool) -> Dispatcher:
    row = TableRow(8, 64, 128, "fused", TileConfig(), "measured", True, MADE, time_us=1.0, graph=graph)
    return Dispatcher(GFX950, TunedTable(GFX950, (row,)), make=notes.make, graphs=GraphCache(notes))


@pytest.fixture
def weight() -> PackedWeight:
    return PackedWeight.from_dense(torch.ones(64, 128))


A = torch.zeros(8, 128, dtype=torch.bfloat16)


def test_a_shape_is_compiled_once_and_each_call_launches_on_its_own_tensors(weight: PackedWeight) -> None:
    notes = Notes()
    dispatcher = tuned(notes, graph=False)
    other = PackedWeight.from_dense(torch.ones(64, 128))
    outs = [dispatcher.gemm(A, w) for w in (weight, other, weight)]
    assert notes.compiled == 1
    expected = [
        (A.data_ptr(), w.data.data_ptr(), w.scale.data_ptr(), out.data_ptr())
        for w, out in zip((weight, other, weight), outs, strict=True)
    ]
    assert [values[:4] for values in notes.launches] == expected
    assert dispatcher.statistics.calls == {"exact": 3}


def test_a_prepared_shape_compiles_nothing_when_called(weight: PackedWeight) -> None:
    notes = Notes()
    dispatcher = tuned(notes, graph=False)
    dispatcher.prepare(weight, [1, 8, 9])
    assert (notes.compiled, notes.launches, dispatcher.statistics.calls) == (
        3,
        [],
        {"exact": 0, "bucket": 0, "miss": 0},  # a measured row serves no M above its own
    )
    dispatcher.gemm(A, weight)
    dispatcher.gemm(A[:1], weight)
    assert notes.compiled == 3


@pytest.mark.parametrize("row, call, replays", [(True, None, 2), (True, False, 0), (False, None, 0), (False, True, 2)])
def test_a_row_or_a_call_asks_for_replay_and_the_call_decides(
    weight: PackedWeight, row: bool, call: bool | None, replays: int
) -> None:
    notes, out = Notes(), torch.empty(8, 64, dtype=torch.bfloat16)
    dispatcher = tuned(notes, graph=row)
    for _ in range(3):
        dispatcher.gemm(A, weight, out=out, graph=call)
    assert (notes.captures, notes.replays, len(notes.launches)) == (replays // 2, replays, 3 - replays)


def test_operands_on_two_devices_are_refused(weight: PackedWeight) -> None:
    notes = Notes()
    with pytest.raises(ValueError, match="a is on cpu, the weight on meta"):
        tuned(notes, graph=False).gemm(A, weight.to("meta"))
    assert not notes.launches


def test_a_weight_on_the_cpu_is_refused_in_one_line_before_anything_is_chosen(
    weight: PackedWeight, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = Dispatcher(GFX950)
    for call in (lambda: dispatcher.prepare(weight, [1, 5]), lambda: dispatcher.gemm(A, weight)):
        with pytest.raises(InputError, match=r"^the weight is on the CPU, .* set TRITON_INTERPRET=1 .*$"):
            call()
    assert not caplog.records
    assert dispatcher.statistics.shapes == {}
    dispatcher.prepare(weight, [])


def test_an_output_that_is_an_input_is_refused_before_anything_is_launched() -> None:
    notes = Notes()
    square, a = PackedWeight.from_dense(torch.ones(128, 128)), torch.zeros(8, 128, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="out shares memory with a"):
        tuned(notes, graph=False).gemm(a, square, out=a)
    assert notes.launches == []
