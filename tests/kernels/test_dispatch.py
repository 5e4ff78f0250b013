"""The dispatcher: every kind of input and every life of a weight through the interpreter, and the CPU's reference."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
import torch

from kernels.device import GFX950, DeviceKey
from kernels.dispatch import default_dispatcher, gemm_shuffled, load_dispatcher, mxfp4_gemm
from kernels.errors import InputError
from kernels.families.defaults import default_choice
from kernels.families.fused import SplitKAtomicConfig, TileConfig
from kernels.mxfp4.reference import mxfp4_gemm_reference, to_bf16
from kernels.mxfp4.weights import PackedWeight
from kernels.problem import GemmShape
from kernels.runtime.dispatcher import Dispatcher
from kernels.tables.file import write_table
from kernels.tables.rows import Made, TableRow, TunedTable
from search.space.shapes import load_shapes

ROOT = Path(__file__).resolve().parents[2]
DISPATCHED = ROOT / "tests" / "support" / "dispatched.py"
MADE = Made(date(2026, 11, 29), "3.9.0", "2.13.0", "0" * 12, "by hand", "none")


@pytest.fixture(scope="module")
def interpreted() -> dict[str, object]:
    """Findings of a process in which the interpreter was chosen before Triton was imported."""
    done = subprocess.run(
        [sys.executable, str(DISPATCHED)],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_every_kind_of_input_gives_the_reference(interpreted: dict[str, object]) -> None:
    kinds = ("matrix", "batch", "vector", "strided rows", "transposed", "misaligned", "repeated row", "out")
    assert {kind: interpreted[kind] for kind in kinds} == dict.fromkeys(kinds, 0)
    assert interpreted["no rows"] == [0, 64]
    assert interpreted["out is returned"] is True


def test_calls_are_counted_by_the_answer_of_the_table_and_no_rows_are_no_call(interpreted: dict[str, object]) -> None:
    assert interpreted["served by"] == {"miss": 8}


def test_a_product_in_parts_is_the_same_product(interpreted: dict[str, object]) -> None:
    assert (interpreted["in parts"], interpreted["in parts, how"]) == (0, {"above": 1})


def test_tickets_serve_parts_and_replays_and_come_back_to_zero(interpreted: dict[str, object]) -> None:
    """A ticket that were left would keep the sum of a later launch from being made: its output would be wrong."""
    found = {name: value for name, value in interpreted.items() if name.startswith("tickets: ")}
    assert found.pop("tickets: graphs") == 1
    assert found == dict.fromkeys(["tickets: in parts", *(f"tickets: graph, {turn}" for turn in range(4))], 0)


@pytest.mark.parametrize("launch", ["plain", "graph"])
def test_weights_that_alternate_change_in_place_die_and_are_rebuilt_give_their_own_product(
    interpreted: dict[str, object], launch: str
) -> None:
    mismatches = {
        name: found
        for name, found in interpreted.items()
        if name.startswith(launch) and ("turn" in name or "updated" in name or "rebuilt" in name)
    }
    assert len(mismatches) == 8
    assert not any(mismatches.values()), mismatches


@pytest.mark.parametrize("launch", ["plain", "graph"])
def test_the_next_call_leaves_an_earlier_result_alone(interpreted: dict[str, object], launch: str) -> None:
    assert interpreted[f"{launch}: a result stays what it was"] is True


def test_a_graph_is_captured_once_a_weight_and_freed_with_it(interpreted: dict[str, object]) -> None:
    assert interpreted["graph: captures for two layers"] == 2
    assert interpreted["graph: graphs held for two layers"] == 2  # after three more were captured and freed
    # 8 checks of 3 calls; the first call of each of the 5 weights is plain
    assert (interpreted["graph: replays"], interpreted["plain: replays"]) == (19, 0)


def test_shuffled_bytes_give_the_reference(interpreted: dict[str, object]) -> None:
    assert interpreted["shuffled bytes"] == 0


def row(M: int, family: str = "fused", config: TileConfig | None = None, time_us: float = 1.0) -> TableRow:
    return TableRow(M, 128, 192, family, config or TileConfig(), "measured", family == "fused", MADE, time_us=time_us)


def test_the_smallest_row_that_is_large_enough_serves_and_the_largest_above_as_far_as_it_says() -> None:
    small = row(8, config=TileConfig(BLOCK_N=32))
    large = replace(row(64, config=TileConfig(BLOCK_N=128)), serves_to=1000)
    dispatcher = Dispatcher(GFX950, TunedTable(GFX950, (small, large)))
    chosen = [dispatcher.choose(GemmShape(M, 128, 192)) for M in (1, 8, 9, 64, 65, 1000, 32800)]
    assert [choice.lookup.row for choice in chosen] == [small, small, large, large, large, large, None]
    assert [choice.lookup.how for choice in chosen] == [
        "bucket", "exact", "bucket", "exact", "above", "above", "miss",
    ]  # fmt: skip
    assert (chosen[-1].family, chosen[-1].config) == default_choice(GemmShape(32800, 128, 192), GFX950)
    assert chosen[0].config is small.config


def test_an_untuned_layer_gets_a_default_and_the_reason() -> None:
    choice = Dispatcher(GFX950, TunedTable(GFX950, (row(8),))).choose(GemmShape(8, 64, 192))
    assert (choice.lookup.row, choice.lookup.how) == (None, "miss")
    assert "N = 64, K = 192" in choice.lookup.explanation
    assert choice.config.check(GemmShape(8, 64, 192), GFX950) is None


def test_deterministic_only_passes_over_rows_whose_sums_vary() -> None:
    atomic = row(8, "fused_splitk_atomic", SplitKAtomicConfig(split_k=3), time_us=1.0)
    exact = row(8, time_us=2.0)
    table = TunedTable(GFX950, (atomic, exact))
    answers = [Dispatcher(GFX950, table, only).choose(GemmShape(8, 128, 192)) for only in (False, True)]
    assert [choice.lookup.row for choice in answers] == [atomic, exact]


def test_rows_of_another_device_never_serve_and_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    small = DeviceKey("gfx950", 128)
    path = tmp_path / "small.yaml"
    write_table(path, TunedTable(small, (row(8), row(16))))
    with caplog.at_level(logging.WARNING):
        dispatcher = load_dispatcher(GFX950, [path])
    assert dispatcher.choose(GemmShape(8, 128, 192)).lookup.how == "miss"
    mine = next(source for source in dispatcher.sources if source.path == path)
    assert (mine.device, mine.rows, mine.used) == (small, 2, 0)
    assert "gfx950-128cu" in caplog.text and "not used on gfx950-256cu: 2 rows" in caplog.text
    assert load_dispatcher(small, [path]).choose(GemmShape(8, 128, 192)).lookup.how == "exact"


def test_a_table_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.yaml: no such file"):
        load_dispatcher(GFX950, [tmp_path / "nowhere.yaml"])


@pytest.mark.parametrize(
    "a, message",
    [
        (torch.zeros(3, 192), "a must be bfloat16"),
        (torch.zeros(3, 128, dtype=torch.bfloat16), r"a must be bfloat16 \[..., 192\]"),
        (torch.zeros((), dtype=torch.bfloat16), "a must be bfloat16"),
        (torch.zeros(3, 192, dtype=torch.bfloat16, device="meta"), "a is on meta, the weight on cpu"),
    ],
)
def test_an_input_that_no_kernel_takes_is_refused_by_name(a: torch.Tensor, message: str) -> None:
    weight = PackedWeight.from_dense(torch.ones(64, 192))
    with pytest.raises(ValueError, match=message):
        mxfp4_gemm(a, weight)


@pytest.mark.parametrize(
    "out",
    [
        torch.zeros(3, 64),
        torch.zeros(2, 64, dtype=torch.bfloat16),
        torch.zeros(64, 3, dtype=torch.bfloat16).T,
    ],
)
def test_an_output_of_another_form_is_refused(out: torch.Tensor) -> None:
    weight = PackedWeight.from_dense(torch.ones(64, 192))
    with pytest.raises(ValueError, match="out must be contiguous bfloat16"):
        mxfp4_gemm(torch.zeros(3, 192, dtype=torch.bfloat16), weight, out=out)


def test_without_a_gpu_the_reference_answers_and_a_log_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    code = (
        "import logging, torch; logging.basicConfig(format='%(message)s')\n"
        "from kernels.dispatch import mxfp4_gemm; from kernels.mxfp4.weights import PackedWeight\n"
        "weight = PackedWeight.from_dense(torch.ones(64, 64))\n"
        "for _ in range(2): print(mxfp4_gemm(torch.ones(1, 64, dtype=torch.bfloat16), weight)[0, 0].item())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["64.0", "64.0"]  # 64 products of 1 and 1, which MXFP4 holds exactly
    assert done.stderr.count("the float64 reference") == 1


def test_the_shapes_that_the_reference_serves_without_a_row_are_noted_for_the_sweep(tmp_path: Path) -> None:
    write_table(tmp_path / "mine.yaml", TunedTable(GFX950, (row(8),)))
    code = (
        "import torch; from kernels import PackedWeight, mxfp4_gemm\n"
        "for M, N, K in ((5, 64, 64), (8, 64, 64), (9, 64, 64), (3, 128, 192)):\n"
        "    mxfp4_gemm(torch.ones(M, K, dtype=torch.bfloat16), PackedWeight.from_dense(torch.ones(N, K)))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"MXFP4_TABLES": str(tmp_path / "mine.yaml"), "MXFP4_MISSES": str(tmp_path / "misses.txt")}
    subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""},
        check=True,
    )
    assert load_shapes(tmp_path / "misses.txt").shapes == (GemmShape(8, 64, 64), GemmShape(16, 64, 64))


def test_what_is_no_weight_or_no_tensor_is_refused_in_one_line() -> None:
    a, dense = torch.zeros(3, 192, dtype=torch.bfloat16), torch.ones(64, 192)
    with pytest.raises(TypeError, match=r"and a PackedWeight \(from .*\), got Tensor, Tensor$"):
        mxfp4_gemm(a, dense)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got list, PackedWeight"):
        mxfp4_gemm(a.tolist(), PackedWeight.from_dense(dense))


def test_the_reference_serves_batches_rows_in_out_and_bare_tensors() -> None:
    generator = torch.Generator().manual_seed(3)
    weight = PackedWeight.from_dense(torch.randn(128, 192, generator=generator))
    a = torch.randn(2, 3, 192, generator=generator).to(torch.bfloat16)
    expected = to_bf16(mxfp4_gemm_reference(a, weight))
    out = torch.empty(2, 3, 128, dtype=torch.bfloat16)
    assert mxfp4_gemm(a, weight, out=out) is out
    assert torch.equal(out, expected)
    assert torch.equal(gemm_shuffled(a, weight.data, weight.scale), expected)
    assert mxfp4_gemm(a[:0], weight).shape == (0, 3, 128)


def test_bare_tensors_that_are_no_shuffled_weight_are_refused() -> None:
    weight = PackedWeight.from_dense(torch.ones(64, 192))
    a = torch.zeros(3, 192, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="data and scale must be uint8"):
        gemm_shuffled(a, weight.data.to(torch.int8), weight.scale)
    with pytest.raises(ValueError, match=r"data must be \[N, K//2\]"):
        gemm_shuffled(a, weight.data[:32], weight.scale)
    with pytest.raises(ValueError, match=r"scale must be \[256, 8\]"):
        gemm_shuffled(a, weight.data, weight.scale[:128])


def test_the_default_dispatcher_is_made_once_and_reads_the_environment_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.yaml"
    write_table(path, TunedTable(GFX950, (row(8),)))
    monkeypatch.setenv("MXFP4_TABLES", str(path))
    from kernels.dispatch import _default_dispatcher

    _default_dispatcher.cache_clear()
    try:
        assert default_dispatcher(None) is default_dispatcher(None, False)
        assert default_dispatcher(None).choose(GemmShape(8, 128, 192)).lookup.how == "exact"
    finally:
        _default_dispatcher.cache_clear()
