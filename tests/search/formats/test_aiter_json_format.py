"""AITER's Triton JSON. Expected ranges follow from its loader's rules."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from kernels.device import GFX950
from kernels.families.fused import SplitKWorkspaceConfig, TileConfig
from kernels.families.staged_ck import StagedCkConfig
from kernels.families.staged_triton import StagedConfig
from kernels.problem import GemmShape
from kernels.tables.rows import Made, TableRow, TunedTable
from search.formats import aiter_json
from search.formats.aiter_json import effective_split

BODY: dict[str, Any] = {
    "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 256, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3,
    "waves_per_eu": 1, "matrix_instr_nonkdim": 16, "cache_modifier": ".cg", "NUM_KSPLIT": 1,
}  # fmt: skip
NESTED = "configs/gfx950/triton/gemm/gemm_afp4wfp4_preshuffled"
GLUON = "configs/gfx950/gluon/gemm/gemm_afp4wfp4"
MADE = Made(date(2026, 11, 30), "3.9.0", "2.13.0", "0123456789ab", "cold-graph-v1", "study")


def read(path: str, **keys: Any) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """M by key-independent order, and what was left out, of a file with these keys."""
    reading = aiter_json.read(Path(path), json.dumps(keys))
    return {str(i): trial.shape.M for i, trial in enumerate(reading.trials)}, [
        (one.where.split()[-1], one.reason) for one in reading.left_out
    ]


def test_a_key_is_a_trial_at_the_largest_M_that_it_serves() -> None:
    path = Path(f"{NESTED}/GEMM-AFP4WFP4_PRESHUFFLED-N=2112-K=7168.json")
    reading = aiter_json.read(path, json.dumps({"M_LEQ_31": BODY, "any": {**BODY, "cache_modifier": None}}))
    first, last = reading.trials
    config = StagedConfig(BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, num_stages=3, waves_per_eu=1, cache_modifier=".cg")
    assert (first.shape, first.family, first.config) == (GemmShape(31, 2112, 7168), "staged_triton", config)
    assert (first.device, first.time_us) == (GFX950, None)
    assert (last.shape.M, last.config.to_dict()["cache_modifier"]) == (16384, "")


def test_a_key_that_the_operation_never_looks_up_is_dead() -> None:
    plain = "configs/gfx950/triton/gemm/gemm_afp4wfp4/GEMM-AFP4WFP4-N=2112-K=7168.json"
    served, dead = read(plain, M_LEQ_1=BODY, M_LEQ_31=BODY, M_LEQ_32=BODY)
    assert list(served.values()) == [1, 32]
    assert dead == [("M_LEQ_31", "a dead key: it is none of the bounds that the operation looks up")]
    served, dead = read(f"{NESTED}/GEMM-AFP4WFP4_PRESHUFFLED-N=2112-K=7168.json", M_LEQ_1=BODY, M_LEQ_31=BODY)
    assert (list(served.values()), [where for where, _ in dead]) == ([31], ["M_LEQ_1"])


def test_words_of_the_older_files_stand_for_ranges() -> None:
    path = "configs/gemm/MI350X-GEMM-AFP4WFP4-N=2112-K=7168.json"
    assert list(read(path, small=BODY, medium_M32=BODY, large=BODY, xlarge=BODY)[0].values()) == [31, 32, 256, 16384]
    assert list(read(path, small=BODY, small_M16=BODY)[0].values()) == [8, 31]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("gemm/gfx950-GEMM-A8W8-N=2112-K=7168.json", "an operation that no family here computes"),
        ("gemm/gfx950-GEMM-AFP4WFP4.json", "a default for every N and K, which names no shape"),
        (f"{NESTED}/DEFAULT.json", "a default for every N and K, which names no shape"),
        ("gemm/gfx1250-GEMM-A16WFP4-N=512-K=512.json", "for gfx1250, which is not supported"),
        (f"{GLUON}/GEMM-AFP4WFP4-N=64-K=64.json", "an operation that no family here computes"),
    ],
)  # fmt: skip
def test_other_files_are_left_out_as_a_whole(path: str, reason: str) -> None:
    assert aiter_json.recognises(Path(path), "{}")
    assert read(path, any=BODY) == ({}, [("any", reason)])


def test_the_fused_operation_is_split_into_our_families() -> None:
    path = Path("gemm/gfx950-GEMM-A16WFP4_PRESHUFFLED-N=2112-K=7168.json")
    keys = {"M_LEQ_8": {**BODY, "NUM_KSPLIT": 14, "BLOCK_SIZE_K": 512}, "M_LEQ_16": BODY}
    split, whole = aiter_json.read(path, json.dumps(keys)).trials
    assert (split.family, whole.family) == ("fused_splitk_workspace", "fused")
    assert isinstance(split.config, SplitKWorkspaceConfig) and split.config.split_k == 14


@pytest.mark.parametrize(
    ("K", "block_k", "asked", "made"),
    [
        (7168, 512, 14, 14),  # 14 slices of one block
        (7168, 512, 4, 2),  # 1792 is no whole number of blocks: 2048 does not divide 7168, 3584 does
        (2880, 256, 4, 1),  # 2880 is no multiple of 256, so nothing divides it
        (16384, 256, 16, 16),
        (512, 256, 0, 1),
    ],
)
def test_the_launcher_halves_a_split_until_whole_slices_remain(K: int, block_k: int, asked: int, made: int) -> None:
    assert effective_split(K, block_k, asked) == made


def test_an_unknown_knob_is_named() -> None:
    path = "gemm/gfx950-GEMM-AFP4WFP4-N=2112-K=7168.json"
    assert read(path, any={**BODY, "schedule": 1})[1] == [("any", "knob schedule is unknown here")]
    assert read(path, any={**BODY, "BLOCK_SIZE_M": 24})[1][0][1].startswith("BLOCK_M=24 is not a power of two")


def row(M: int, family: str, config: Any) -> TableRow:
    return TableRow(M, 2112, 7168, family, config, "measured", True, MADE, time_us=10.0)


def test_writing_merges_by_key_and_keeps_the_rest() -> None:
    name = "GEMM-AFP4WFP4_PRESHUFFLED-N=2112-K=7168.json"
    old = {"M_LEQ_8": {"theirs": 1}, "M_LEQ_32": {"theirs": 2}, "any": {"theirs": 3}}
    table = TunedTable(
        GFX950, (row(32, "staged_triton", StagedConfig()), row(64, "staged_triton", StagedConfig(split_k=7)))
    )
    written = aiter_json.write_table(table, {name: json.dumps(old)}.get)
    content = json.loads(written.files[name])
    assert list(content) == ["M_LEQ_8", "M_LEQ_32", "M_LEQ_64", "any"]
    assert (content["M_LEQ_8"], content["any"]) == ({"theirs": 1}, {"theirs": 3})
    assert content["M_LEQ_64"]["NUM_KSPLIT"] == 7 and content["M_LEQ_32"]["cache_modifier"] is None
    assert (written.added, written.replaced) == (1, 1)


def test_a_new_file_has_the_key_that_the_loader_needs() -> None:
    written = aiter_json.write_table(TunedTable(GFX950, (row(32, "fused", TileConfig()),)), {}.get)
    content = json.loads(written.files["GEMM-A16WFP4_PRESHUFFLED-N=2112-K=7168.json"])
    assert content["any"] == content["M_LEQ_32"]


def test_rows_that_the_files_cannot_say_are_named() -> None:
    table = TunedTable(
        GFX950,
        (
            row(24, "fused", TileConfig()),
            row(32, "staged_ck", StagedCkConfig()),
            row(64, "fused_splitk_workspace", SplitKWorkspaceConfig(split_k=4, BLOCK_K=512)),
        ),
    )
    written = aiter_json.write_table(table, {}.get)
    assert written.files == {}
    assert [one.reason for one in written.left_out] == [
        "GEMM-A16WFP4_PRESHUFFLED looks up no M of 24",
        "staged_ck is no Triton operation of AITER",
        "AITER's launcher would not split K into 4",
    ]
