"""The planner: one plan a shape whatever the threads, rejected configurations, misses, counts, bounds."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from triton.runtime.errors import OutOfResources

from kernels.device import GFX950
from kernels.families import FAMILIES
from kernels.families.defaults import default_choice
from kernels.families.fused import TileConfig
from kernels.families.staged_triton import StagedConfig
from kernels.launches.program import KernelCall, PointerSpec, Runner
from kernels.problem import GemmShape
from kernels.rocm.code_objects import PATH_VARIABLE
from kernels.runtime.planner import Planner
from kernels.runtime.runner import make_runner
from kernels.tables import Choice, Lookup
from kernels.tables.misses import MissRecorder

TUNED = TileConfig(BLOCK_M=32, BLOCK_N=128, num_stages=4)
KEY = (16, 128, 192, 192, 0, -1)  # M, N, K, row stride, misaligned operands, no GPU


def compiles(call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
    return lambda *values: None


def tuned(shape: GemmShape) -> Choice:
    return Choice("fused", TUNED, Lookup(None, "bucket", "as if from a table"))


def untuned(shape: GemmShape) -> Choice:
    return Choice(*default_choice(shape, GFX950), Lookup(None, "miss", "no table"))


def test_threads_that_ask_together_share_one_plan_made_once() -> None:
    made: list[str] = []
    together = threading.Barrier(8)

    def slow(call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
        made.append(call.name)
        threading.Event().wait(0.05)
        return compiles(call, pointers)

    planner = Planner(GFX950, tuned, slow, limit_bytes=1 << 30)
    found: list[object] = []

    def ask() -> None:
        together.wait()
        found.append(planner.planned(KEY))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["fused_gemm_kernel"]
    assert len(found) == 8 and len(set(map(id, found))) == 1


def test_another_stride_alignment_or_shape_is_another_plan() -> None:
    planner = Planner(GFX950, tuned, compiles, limit_bytes=1 << 30)
    keys = [KEY, (17, *KEY[1:]), (*KEY[:3], 256, 0, -1), (*KEY[:4], 1, -1)]
    plans = [planner.planned(key) for key in keys]
    assert len(set(map(id, plans))) == 4
    assert [planner.planned(key) for key in keys] == plans


@pytest.mark.parametrize("error", [OutOfResources(300_000, 163_840, "shared memory"), RuntimeError("pass failed")])
def test_a_configuration_that_the_compiler_rejects_is_replaced_by_the_default_and_never_tried_again(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    def rejects_four_stages(call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
        tried.append(call.options["num_stages"])
        if call.options["num_stages"] == 4:
            raise error
        return compiles(call, pointers)

    planner = Planner(GFX950, tuned, rejects_four_stages, limit_bytes=1 << 30)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            planner.planned(KEY)
    assert tried == [4, 2]
    assert planner.statistics().rejected == 1
    assert caplog.text.count("cannot be used here") == 1


def test_where_the_default_is_rejected_too_the_least_demanding_configuration_serves() -> None:
    def takes_one_stage(call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
        if call.options["num_stages"] > 1:
            raise OutOfResources(300_000, 163_840, "shared memory")
        return compiles(call, pointers)

    planner = Planner(GFX950, tuned, takes_one_stage, limit_bytes=1 << 30)
    planned = planner.planned(KEY)
    assert len(planned.plan.launches) == 1
    assert (planned.choice.config.num_stages, planned.choice.lookup.how) == (1, "bucket")


def test_what_no_configuration_survives_is_raised() -> None:
    def broken(call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
        raise RuntimeError("no driver")

    with pytest.raises(RuntimeError, match="no driver"):
        Planner(GFX950, tuned, broken, limit_bytes=1 << 30).planned(KEY)


def test_a_mistake_in_the_program_is_not_taken_for_a_rejection() -> None:
    def mistaken(call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
        raise KeyError("M")

    with pytest.raises(KeyError):
        Planner(GFX950, tuned, mistaken, limit_bytes=1 << 30).planned(KEY)


def test_a_layer_without_rows_is_logged_once_and_recorded_by_bucket(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    planner = Planner(GFX950, untuned, compiles, 1 << 30, MissRecorder(tmp_path / "misses.txt"))
    with caplog.at_level(logging.WARNING):
        for M in (5, 6, 8, 16):
            planner.planned((M, *KEY[1:]))
        planner.planned((5, 64, *KEY[2:]))
    assert [record.getMessage().split()[0] for record in caplog.records] == ["5x128x192", "5x64x192"]
    lines = (tmp_path / "misses.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["8x128x192", "16x128x192", "8x64x192"]


def test_calls_are_counted_even_of_plans_that_were_dropped() -> None:
    planner = Planner(GFX950, tuned, compiles, 1 << 30, max_plans=2)
    for M in (1, 2, 3, 4, 4):
        planner.planned((M, *KEY[1:])).calls += 1
    statistics = planner.statistics()
    assert statistics.calls == {"bucket": 5}
    assert statistics.shapes == {"bucket": 2}


def test_nothing_is_compiled_while_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    planner = Planner(GFX950, tuned, compiles, limit_bytes=1 << 30)
    with pytest.raises(RuntimeError, match=r"16x128x192 has no plan .* before the capture"):
        planner.planned((*KEY[:5], 0))


def test_a_gpu_of_another_kind_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr("kernels.runtime.planner.local_device", lambda index: None)
    planner = Planner(GFX950, tuned, compiles, limit_bytes=1 << 30)
    with pytest.raises(ValueError, match="the dispatcher serves gfx950-256cu"):
        planner.planned((*KEY[:5], 0))


def test_a_row_tuned_for_few_rows_serves_many_within_the_limit() -> None:
    def above(shape: GemmShape) -> Choice:
        return Choice("staged_triton", StagedConfig(split_k=16), Lookup(None, "above", "as if from a table"))

    planned = Planner(GFX950, above, compiles, limit_bytes=512 << 20).planned((32768, 7168, 2048, 2048, 0, -1))
    assert planned.plan.workspace_bytes <= 512 << 20
    assert len(planned.plan.launches) == 3 * 32  # 1024 rows at a time: quantise, multiply, reduce


@pytest.mark.parametrize(
    ("family", "reason"),
    [("staged_ck", "set MXFP4_AITER to an AITER install"), ("aiter", "import aiter fails"),
     ("staged_hip", "machine code, which Triton's interpreter does not run")],
)  # fmt: skip
def test_a_row_whose_kernels_cannot_run_here_gives_way_to_the_default_with_the_reason(
    family: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    monkeypatch.setitem(sys.modules, "aiter", None)
    monkeypatch.setattr("kernels.triton.interpreter.interpreting", lambda: True)

    def native_row(shape: GemmShape) -> Choice:
        return Choice(family, FAMILIES[family].config({}), Lookup(None, "exact", "as if from a table"))

    def make(call: KernelCall, pointers: Mapping[str, PointerSpec]) -> Runner:
        return compiles(call, pointers) if call.constexprs else make_runner(call, pointers)

    planner = Planner(GFX950, native_row, make, limit_bytes=1 << 30)
    with caplog.at_level(logging.WARNING):
        planned = planner.planned((16, 128, 512, 512, 0, -1))
    assert planned.choice.family == default_choice(GemmShape(16, 128, 512), GFX950)[0]
    assert reason in caplog.text
    assert planner.statistics().rejected == 1
