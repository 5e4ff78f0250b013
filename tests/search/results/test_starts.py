"""Published winners as first trials."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pandas as pd
import pytest
from result_rows import measured, predicted, results

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.families.fused import TileConfig
from kernels.problem import GemmShape
from kernels.tables.file import write_table
from kernels.tables.rows import Made, TableRow, TunedTable
from search.results.starts import read_starts, start_lines, starts_for, starts_of

SHAPE = GemmShape(16, 2112, 7168)


def test_the_winner_of_the_next_larger_M_starts_a_shape() -> None:
    frame = results(measured(12.0), measured(11.0, trial=1, BLOCK_N=128), measured(20.0, M=64, study="b"))
    starts = starts_for(
        starts_of(frame), [GemmShape(8, 2112, 7168), GemmShape(32, 2112, 7168), GemmShape(128, 2112, 7168)]
    )
    assert [(str(shape), members[0].shape.M, members[0].time_us) for shape, members in starts.items()] == [
        ("8x2112x7168", 16, 11.0),
        ("32x2112x7168", 64, 20.0),
        ("128x2112x7168", 64, 20.0),
    ]
    assert starts_for(starts_of(frame), [GemmShape(16, 64, 64)]) == {}


def test_configurations_without_a_time_start_it_too(tmp_path: Path) -> None:
    body = (
        '{"M_LEQ_16": {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 256, "GROUP_SIZE_M": 1, "num_warps": 4,'
        '"num_stages": 2, "waves_per_eu": 0, "matrix_instr_nonkdim": 16, "cache_modifier": null, "NUM_KSPLIT": 1}}'
    )
    path = tmp_path / "gfx950-GEMM-A16WFP4-N=2112-K=7168.json"
    path.write_text(body)
    ((start,),) = starts_for(read_starts(path)[0], [SHAPE]).values()
    assert (start.point, start.time_us) == (("fused", TileConfig()), None)


def test_a_row_of_a_tuned_table_starts_the_shapes_that_it_serves(tmp_path: Path) -> None:
    made = Made(date(2026, 11, 30), "3.9.0", "2.13.0", "0123456789ab", "gfx950-s2-aiter", "study")
    serving = TableRow(16, 2112, 7168, "fused", TileConfig(num_warps=8), "measured", True, made, time_us=12.0)
    larger = TableRow(64, 2112, 7168, "fused", TileConfig(), "predicted", True, made, predicted_us=9.0)
    write_table(tmp_path / "tuned.yaml", TunedTable(GFX950, (serving, larger)))
    starts, left_out = read_starts(tmp_path / "tuned.yaml")
    ((start,),) = starts_for(starts, [GemmShape(8, 2112, 7168)]).values()
    assert (start.point, start.time_us, list(left_out)) == (("fused", TileConfig(num_warps=8)), 12.0, [])
    with pytest.raises(InputError, match=r"none\.yaml: no such file"):
        read_starts(tmp_path / "none.yaml")


def test_a_line_says_what_was_published_and_what_it_takes_here() -> None:
    starts = starts_for(starts_of(results(measured(12.0))), [SHAPE])
    here = results(predicted(9.0), predicted(8.0, trial=1, BLOCK_N=128))
    assert start_lines(here, starts) == [
        "published 16x2112x7168: fused made for M = 16, 12.00 us (cold-v1); here 9.00 us predicted; the winner 8.00 us"
    ]
    only_near = results(predicted(8.0, BLOCK_N=128))
    assert "here its nearest legal point 8.00 us predicted" in start_lines(only_near, starts)[0]
    assert start_lines(pd.DataFrame(here.iloc[:0]), starts)[0].endswith("here not tried")
