"""Kernel Tuner's cachefiles, T4 results and vLLM's JSON: what is written is read again; files of others are named."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.families.fused import SplitKWorkspaceConfig, TileConfig
from kernels.families.staged_triton import StagedConfig
from kernels.problem import GemmShape
from kernels.tables.rows import Made, TableRow, TunedTable
from search.formats import kernel_tuner, t4, vllm_json
from search.formats.format import LeftOut, Trial, grouped, old_json

SHAPE = GemmShape(16, 2112, 7168)
FAST = Trial(
    GFX950, SHAPE, "fused", TileConfig(), time_us=12.5, protocol="cold-graph-v1", started="2026-11-30T10:00:00+00:00",
    compile_s=1.5,
)  # fmt: skip
BROKEN = Trial(GFX950, SHAPE, "fused", TileConfig(BLOCK_M=32), "compile_error", reason="CompilationFailedConfig")
MADE = Made(date(2026, 11, 30), "3.9.0", "2.13.0", "0123456789ab", "cold-graph-v1", "study")


def test_a_cachefile_holds_milliseconds_and_words_for_failures() -> None:
    written = kernel_tuner.write_trials([FAST, BROKEN], {}.get)
    content = json.loads(written.files["gfx950-256cu-16x2112x7168-fused.json"])
    first, second = content["cache"].values()
    assert (first["time"], first["compile_time"], second["time"]) == (0.0125, 1500.0, "CompilationFailedConfig")
    assert content["problem_size"] == [16, 2112, 7168]
    assert content["tune_params"]["BLOCK_M"] == [16, 32]


def test_a_cachefile_comes_back_as_it_was_also_when_it_was_cut_off() -> None:
    (text,) = kernel_tuner.write_trials([FAST, BROKEN], {}.get).files.values()
    whole = kernel_tuner.read(Path("a.json"), text)
    assert [(t.config, t.outcome, t.time_us) for t in whole.trials] == [
        (FAST.config, "ok", 12.5),
        (BROKEN.config, "compile_error", None),
    ]
    content = json.loads(text)
    cut = json.dumps({**content, "cache": dict(list(content["cache"].items())[:1])})
    assert cut.endswith("}}}")
    assert kernel_tuner.read(Path("a.json"), cut[:-2] + ",").trials == whole.trials[:1]


@pytest.mark.parametrize("outcome", ["ok", "slow"])
def test_trials_that_were_not_measured_are_neither_times_nor_failures_of_a_cachefile(outcome: str) -> None:
    guess = Trial(GFX950, SHAPE, "fused", TileConfig(), outcome, predicted_us=9.0)
    written = kernel_tuner.write_trials([guess], {}.get)
    assert (written.files, [one.reason for one in written.left_out]) == (
        {},
        ["not measured; a cachefile holds measured times"],
    )


def test_a_slow_trial_has_the_time_that_was_measured_of_it() -> None:
    slow = replace(FAST, outcome="slow", time_us=90.0)
    (text,) = kernel_tuner.write_trials([slow], {}.get).files.values()
    assert [entry["time"] for entry in json.loads(text)["cache"].values()] == [0.09]


def test_a_cachefile_of_another_kernel_is_left_out() -> None:
    content = {
        "device_name": "NVIDIA GeForce RTX 3090", "kernel_name": "gemm", "problem_size": [4096, 4096],
        "tune_params_keys": ["MWG"], "cache": {"16": {"MWG": 16, "time": 1.0}},
    }  # fmt: skip
    reading = kernel_tuner.read(Path("a.json"), json.dumps(content))
    assert [one.reason for one in reading.left_out] == ["kernel gemm is no family of this project"]


def test_writing_a_cachefile_again_adds_only_what_is_new() -> None:
    files = kernel_tuner.write_trials([FAST], {}.get).files
    again = kernel_tuner.write_trials([FAST, BROKEN], files.get)
    assert (again.added, again.replaced) == (1, 1)


def test_t4_says_units_and_words_and_comes_back_as_it_was() -> None:
    guess = Trial(GFX950, SHAPE, "fused", TileConfig(BLOCK_N=128), predicted_us=9.0)
    (text,) = t4.write_trials([FAST, BROKEN, guess], {}.get).files.values()
    first, second, third = json.loads(text)["results"]
    assert first["measurements"] == [{"name": "time", "value": 12.5, "unit": "us"}]
    assert (second["invalidity"], second["measurements"]) == ("compile", [])
    assert third["measurements"][0]["name"] == "predicted_time"
    reading = t4.read(Path("a.json"), text)
    assert [(t.config, t.outcome, t.time_us, t.predicted_us) for t in reading.trials] == [
        (FAST.config, "ok", 12.5, None),
        (BROKEN.config, "compile_error", None, None),
        (guess.config, "ok", None, 9.0),
    ]


def test_a_place_of_several_entries_is_named_once() -> None:
    left_out = [*(LeftOut("16x64x64", "too small"),) * 3, LeftOut("8x64x64", "too small"), LeftOut("b", "torn")]
    assert grouped(left_out) == ["4 entries: too small (16x64x64, 8x64x64)", "1 entry: torn (b)"]


def test_t4_of_another_problem_is_left_out() -> None:
    content = {"schema_version": "1.0.0", "metadata": {}, "results": [{"configuration": {}, "invalidity": "correct"}]}
    (one,) = t4.read(Path("a.json"), json.dumps(content)).left_out
    assert one.reason == "metadata says no arch, cu_count and problem {M, N, K}"


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_t4_times_are_read_in_their_unit(unit: str) -> None:
    (text,) = t4.write_trials([FAST], {}.get).files.values()
    scale = {"s": 12.5e-6, "ms": 12.5e-3, "us": 12.5, "ns": 12.5e3}[unit]
    changed = text.replace('"value": 12.5', f'"value": {scale}').replace('"unit": "us"', f'"unit": "{unit}"')
    (trial,) = t4.read(Path("a.json"), changed).trials
    assert trial.time_us == pytest.approx(12.5)


def vllm_row(M: int, family: str, config: object) -> TableRow:
    return TableRow(M, 2112, 7168, family, config, "measured", True, MADE, time_us=10.0)  # type: ignore[arg-type]


def test_vllm_files_are_named_as_vllm_looks_them_up_and_come_back_as_they_were() -> None:
    table = TunedTable(
        GFX950,
        (
            vllm_row(16, "staged_triton", StagedConfig(BLOCK_M=32)),
            vllm_row(64, "staged_triton", StagedConfig(split_k=7)),
            vllm_row(32, "fused_splitk_workspace", SplitKWorkspaceConfig()),
        ),
    )
    written = vllm_json.write_table(table, {}.get)
    name = "N=2112,K=7168,device_name=AMD_Instinct_MI350X,dtype=mxfp4_w4a4,block_shape=[1,32].json"
    assert list(written.files) == [name]
    (trial,) = vllm_json.read(Path(name), written.files[name]).trials
    assert (trial.shape, trial.config) == (SHAPE, StagedConfig(BLOCK_M=32))
    assert sorted(one.where for one in written.left_out) == ["32x2112x7168", "64x2112x7168"]


def test_a_vllm_file_of_another_dtype_is_left_out() -> None:
    name = "N=2112,K=7168,device_name=AMD_Instinct_MI350X,dtype=fp8_w8a8,block_shape=[128,128].json"
    text = json.dumps({"triton_version": "3.6.0", "16": {"BLOCK_SIZE_M": 16}})
    assert vllm_json.recognises(Path(name), text)
    (one,) = vllm_json.read(Path(name), text).left_out
    assert one.reason == "dtype fp8_w8a8 is of another operation than MXFP4"


@pytest.mark.parametrize("text", ["{", "[1]", pytest.param("[" * 100_000, id="deep")])
def test_a_file_that_is_there_and_cannot_be_merged_with_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"^old\.json: (cannot be read|holds no mapping)"):
        old_json(lambda _: text, "old.json")
