"""AITER's tuned CSV. The rows are shaped like its own; expected values follow from its sources and from the rows."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from kernels.device import GFX950, DeviceKey
from kernels.families.fused import TileConfig
from kernels.families.staged_ck import StagedCkConfig
from kernels.problem import GemmShape
from kernels.tables.rows import Made, TableRow, TunedTable
from search.formats import aiter_csv
from search.formats.format import WHOLE, Trial, grouped

ASM = "_ZN5aiter41f4gemm_bf16_per1x32Fp4_BpreShuffle_64x128E"
SPLITTING = "_ZN5aiter42f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256E"
CK = "a4w4_blockscale_256x64x128x128_16x16_16x16_8x32x1_8x32x1_1x32x1x8_8_2x2_intrawave_v3"
HEADER = "gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio"
MADE = Made(date(2026, 11, 30), "3.9.0", "2.13.0", "0123456789ab", "cold-graph-v1", "study")


def read(*lines: str) -> tuple[tuple[Trial, ...], list[str]]:
    reading = aiter_csv.read(Path("tuned.csv"), "\n".join(lines) + "\n")
    return reading.trials, grouped(reading.left_out)


def test_a_code_object_becomes_a_measured_trial_of_staged_ck() -> None:
    trials, left_out = read(HEADER, f"gfx950,256,1,2112,7168,29,0,8.6,{ASM},0.95,238.64,0.0")
    (trial,) = trials
    assert (trial.device, trial.shape) == (GFX950, GemmShape(1, 2112, 7168))
    assert (trial.family, trial.config) == ("staged_ck", StagedCkConfig(64, 128))
    assert (trial.outcome, trial.time_us, trial.protocol) == ("ok", 8.6, aiter_csv.PROTOCOL)
    assert left_out == []


def test_older_files_name_the_architecture_by_its_compute_units() -> None:
    trials, left_out = read(
        HEADER.removeprefix("gfx,"), f"256, 1, 2112, 7168,29,0,8.6,{ASM},0,0,0", f"64,1,2112,7168,29,0,8.6,{ASM},0,0,0"
    )
    assert [trial.device for trial in trials] == [GFX950]
    assert left_out == ["1 entry: 64 compute units and no column gfx: of an unknown device (line 3)"]


def test_split_k_is_a_binary_logarithm_and_read_by_two_tiles_only() -> None:
    trials, _ = read(
        HEADER,
        f"gfx950,256,64,4096,7168,54,2,20.0,{SPLITTING},0,0,0",
        f"gfx950,256,64,4096,7168,29,2,20.0,{ASM},0,0,0",
    )
    assert [trial.config for trial in trials] == [StagedCkConfig(256, 256, log2_k_split=2), StagedCkConfig(64, 128)]


@pytest.mark.parametrize(("us", "outcome"), [("-1", "illegal"), ("inf", "crashed"), ("nan", "crashed")])
def test_words_for_failures_in_place_of_a_time(us: str, outcome: str) -> None:
    trials, _ = read(HEADER, f"gfx950,256,1,2112,7168,29,0,{us},{ASM},0,0,0")
    assert [(trial.outcome, trial.time_us) for trial in trials] == [(outcome, None)]


@pytest.mark.parametrize(
    ("wrong", "outcome"),
    [("0.0", "ok"), ("0.0161", "ok"), ("", "ok"), ("0.9", "wrong_result"), ("nan", "wrong_result")],
)
def test_a_kernel_with_too_many_elements_off_is_no_winner(wrong: str, outcome: str) -> None:
    (trial,), _ = read(HEADER, f"gfx950,256,1,2112,7168,29,0,1.5,{ASM},0,0,{wrong}")
    assert (trial.outcome, trial.time_us) == (outcome, 1.5 if outcome == "ok" else None)


def test_a_part_of_elements_that_is_no_number_leaves_the_row_out() -> None:
    trials, left_out = read(HEADER, f"gfx950,256,1,2112,7168,29,0,1.5,{ASM},0,0,many")
    assert trials == () and "many" in left_out[0]


def test_rows_that_no_family_runs_are_listed_once_with_their_lines() -> None:
    trials, left_out = read(
        HEADER,
        f"gfx950,256,1,800,5120,29,0,8.6,{ASM},0,0,0",
        f"gfx950,256,1,2112,7168,0,0,9.0,{CK},0,0,0",
        f"gfx950,256,2,2112,7168,0,0,9.0,{CK},0,0,0",
        "gfx950,256,2,2112,7168,0,0,9.0,a8w8_something,0,0,0",
    )
    assert trials == ()
    assert left_out[0] == "2 entries: a CK kernel of a4w4, which no family here runs (line 3, line 4)"
    assert sorted(line.split(": ", 1)[1] for line in left_out[1:]) == [
        "N = 800 must be a positive multiple of 64 (line 2)",
        "a kernel of another operation, which no family here runs (line 5)",
    ]


def row(M: int, us: float | None = 12.5, **changes: object) -> TableRow:
    values: dict[str, object] = {
        "family": "staged_ck", "config": StagedCkConfig(64, 128), "evidence": "measured", "deterministic": True,
        "made": MADE, "time_us": us, **changes,
    }  # fmt: skip
    return TableRow(M, 2112, 7168, **values)  # type: ignore[arg-type]


def test_writing_keeps_the_lines_of_others_as_they_are_and_replaces_the_same_key() -> None:
    foreign = f"gfx950,256, 1 ,16384,16384,0,0,49.0507,{CK},10.95,2737.14,0.0"
    old = "\n".join((HEADER, foreign, f"gfx950,256,16,2112,7168,29,0,20.0,{ASM},0,0,0.0")) + "\n"
    written = aiter_csv.write_table(TunedTable(GFX950, (row(16), row(32))), {WHOLE: old}.get)
    lines = written.files[WHOLE].splitlines()
    assert (written.added, written.replaced) == (1, 1)
    assert lines[:2] == [HEADER, foreign]
    # 2 * 16 * 2112 * 7168 FLOP in 12.5 us; (16 + 2112) * 3584 + 2 * 16 * 2112 bytes.
    assert lines[2] == f"gfx950,256,16,2112,7168,29,0,12.5,{ASM},38.76,615.55,0.0"
    assert lines[3].startswith("gfx950,256,32,2112,7168,29,")


def test_what_is_written_is_read_as_it_was() -> None:
    written = aiter_csv.write_table(TunedTable(GFX950, (row(16),)), {}.get)
    (trial,) = aiter_csv.read(Path("tuned.csv"), written.files[WHOLE]).trials
    assert (trial.shape, trial.config, trial.time_us) == (GemmShape(16, 2112, 7168), StagedCkConfig(64, 128), 12.5)


def test_rows_that_the_file_cannot_say_are_named() -> None:
    table = TunedTable(
        GFX950,
        (
            row(16, family="fused", config=TileConfig()),
            row(32, us=None, evidence="predicted", predicted_us=9.0),
        ),
    )
    written = aiter_csv.write_table(table, {}.get)
    assert written.files[WHOLE] == HEADER + "\n"
    assert [(one.where, one.reason) for one in written.left_out] == [
        ("16x2112x7168", "fused is no kernel that this file can name"),
        ("32x2112x7168", "predicted only; the file holds measured times"),
    ]


def test_another_device_is_refused_by_the_familys_own_rule() -> None:
    assert DeviceKey("gfx942", 304).arch != GFX950.arch
    _, left_out = read(HEADER, f"gfx942,304,1,2112,7168,29,0,8.6,{ASM},0,0,0")
    assert left_out == ["1 entry: these kernels are gfx950 machine code (line 2)"]
