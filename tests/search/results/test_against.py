"""Winners beside other winners: verdicts by hand-made intervals."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from result_rows import measured, predicted, results

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from kernels.tables.file import write_table
from kernels.tables.rows import Made, TableRow, TunedTable
from search.results import save
from search.results.against import Best, Comparison, alone_line, best_of, compare, load_best, signed, slower, total_line

SHAPE = GemmShape(16, 2112, 7168)


def best(us: float, spread_us: float | None = 0.2, evidence: str = "measured", how: str = "cold-v1") -> Best:
    return Best(GFX950, SHAPE, "fused", TileConfig(), evidence, us, spread_us, how)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (best(9.0), best(10.0), "faster"),
        (best(10.0), best(9.0), "slower"),
        (best(10.1), best(10.0), "equal"),  # inside the interval of 0.2 us
        (best(10.1, spread_us=None), best(10.0, spread_us=None), "slower"),
        (best(10.0, evidence="predicted", how="t1"), best(10.0), "not comparable"),
        (best(10.0, how="warm-v1"), best(10.0), "not comparable"),
        (best(10.005, None, "predicted", "t1"), best(10.0, None, "predicted", "t1"), "equal"),
        (best(10.02, None, "predicted", "t1"), best(10.0, None, "predicted", "t1"), "slower"),
    ],
)
def test_a_verdict_needs_one_kind_of_time_and_a_difference_beyond_the_noise(
    ours: Best, theirs: Best, verdict: str
) -> None:
    assert Comparison(ours, theirs).verdict == verdict


@pytest.mark.parametrize(
    ("warps", "verdict", "why"), [(4, "slower", "one model"), (8, "equal", "cannot tell them apart")]
)
def test_what_the_model_does_not_tell_apart_is_not_slower(warps: int, verdict: str, why: str) -> None:
    before, now = results(predicted(10.0)), results(predicted(10.3, num_warps=warps, predicted_tie=0.05))
    (one,) = compare(best_of(now), best_of(before))
    assert one.verdict == verdict and one.confidence.endswith(why)
    (beyond,) = compare(best_of(results(predicted(10.6, num_warps=8, predicted_tie=0.05))), best_of(before))
    assert beyond.verdict == "slower"


def test_winners_that_a_tie_chose_among_the_same_trials_are_equal() -> None:
    tied = (predicted(10.0, num_warps=8, predicted_tie=0.05), predicted(10.4, predicted_tie=0.05))
    (one,) = compare(best_of(results(*tied)), best_of(results(tied[0])))
    assert one.change > 0 and (one.verdict, slower([one], 0.0)) == ("equal", [])


def test_only_shapes_that_got_slower_by_more_are_named_the_worst_first() -> None:
    pairs = [Comparison(best(11.0), best(10.0)), Comparison(best(13.0), best(10.0)), Comparison(best(10.1), best(10.0))]
    assert slower(pairs, 0.05) == [pairs[1], pairs[0]]
    assert slower(pairs, 0.2) == [pairs[1]]
    assert slower(pairs, 0.31) == []


def test_shapes_that_only_one_side_has_are_counted() -> None:
    both, ours, theirs = (replace(best(10.0), shape=GemmShape(M, 2112, 7168)) for M in (1, 2, 4))
    assert alone_line([both, ours], [both]) == "not compared: 1 shape only here"
    assert alone_line([both], [both, ours, theirs]) == "not compared: 2 shapes only there"
    assert alone_line([ours], [theirs]) == "not compared: 1 shape only here, 1 shape only there"
    assert alone_line([both], [both]) is None


def test_the_sum_says_times_mean_and_counts() -> None:
    # 10 + 40 before, 5 + 40 after: a tenth less; the geometric mean of 0.5 and 1 is 0.7071.
    pairs = [Comparison(best(5.0), best(10.0)), Comparison(best(40.0), best(40.0))]
    line = (
        "2 shapes in sum 50.00 us before, 45.00 us now (-10.0 %), geometric mean -29.3 %: 1 faster, 0 slower, 1 equal"
    )
    assert total_line(pairs) == line
    apart = Comparison(best(10.0, how="warm-v1"), best(10.0))
    assert total_line([apart]) == "no shape can be compared; 1 shape not comparable"


def test_nothing_has_no_sign() -> None:
    assert [signed(part) for part in (0.0, -0.0001, 0.0001, -0.1, 0.1)] == [
        "0.0 %",
        "0.0 %",
        "0.0 %",
        "-10.0 %",
        "+10.0 %",
    ]


def test_results_tables_and_published_files_can_be_compared_with(tmp_path: Path) -> None:
    save(results(measured(12.0, 0.5)), tmp_path / "r.parquet")
    made = Made(date(2026, 11, 30), "3.9.0", "2.13.0", "0123456789ab", "cold-v1", "study")
    row = TableRow(16, 2112, 7168, "fused", TileConfig(), "measured", True, made, time_us=10.0, spread_us=0.1)
    write_table(tmp_path / "t.yaml", TunedTable(GFX950, (row,)))
    kernel = "_ZN5aiter41f4gemm_bf16_per1x32Fp4_BpreShuffle_64x128E"
    (tmp_path / "aiter.csv").write_text(
        f"gfx,cu_num,M,N,K,splitK,us,kernelName\ngfx950,256,16,2112,7168,0,20.5,{kernel}\n"
    )
    loaded = {name: load_best(tmp_path / name) for name in ("r.parquet", "t.yaml", "aiter.csv")}
    assert {name: [one.cost_us for one in found] for name, found in loaded.items()} == {
        "r.parquet": [12.0], "t.yaml": [10.0], "aiter.csv": [20.5],
    }  # fmt: skip
    assert [one.verdict for one in compare(loaded["r.parquet"], loaded["t.yaml"])] == ["slower"]
    assert [one.verdict for one in compare(loaded["r.parquet"], loaded["aiter.csv"])] == ["not comparable"]


def test_a_file_without_times_is_nothing_to_compare_with(tmp_path: Path) -> None:
    path = tmp_path / "N=2112,K=7168,device_name=AMD_Instinct_MI350X,dtype=mxfp4_w4a4.json"
    path.write_text('{"16": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 256}}')
    with pytest.raises(InputError, match="has no time of any shape; name results, a tuned table"):
        load_best(path)


def test_shapes_of_one_side_only_are_not_compared() -> None:
    assert compare(best_of(results(predicted(9.0))), best_of(results(predicted(9.0, M=32)))) == []
