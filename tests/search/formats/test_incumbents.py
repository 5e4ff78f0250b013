"""search.formats.aiter_json: what AITER's own files choose for a shape, in both of its layouts."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiter_sources import write_configs, write_kernels

from kernels.errors import InputError
from kernels.families.aiter_triton import AiterPackedConfig, AiterTritonConfig
from kernels.problem import GemmShape
from kernels.rocm.code_objects import PATH_VARIABLE
from search.formats.aiter_json import incumbents

NEW, OLD = "gfx950/triton/gemm/gemm_afp4wfp4_preshuffled", "gemm"
FUSED = "gemm/gfx950-GEMM-A16WFP4_PRESHUFFLED.json"


def body(rows: int, step: int = 256, split: int = 1, **other: object) -> dict[str, object]:
    """AITER's words for a configuration."""
    return {
        "BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": step, "GROUP_SIZE_M": 4, "num_warps": 2,
        "num_stages": 2, "waves_per_eu": 1, "matrix_instr_nonkdim": 16, "cache_modifier": None, "NUM_KSPLIT": split,
        **other,
    }  # fmt: skip


@pytest.fixture
def aiter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_kernels(tmp_path)
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    return tmp_path


def rows_of(shape: GemmShape) -> int:
    ((family, config),) = incumbents(shape)
    assert family == "aiter_triton_a4w4" and isinstance(config, AiterPackedConfig)
    return config.BLOCK_M


def test_the_smallest_bound_that_holds_m_serves_and_any_the_rest(aiter: Path) -> None:
    write_configs(aiter, f"{NEW}/DEFAULT.json", {"M_LEQ_8": body(8), "M_LEQ_64": body(32), "any": body(128)})
    assert [rows_of(GemmShape(M, 512, 512)) for M in (1, 8, 9, 64, 65, 30000)] == [8, 8, 32, 32, 128, 128]


def test_a_key_that_the_operation_does_not_look_up_is_dead(aiter: Path) -> None:
    # Bounds of the preshuffled operation: 4, 8, 16, 31, 32, ...; 24 is none of them.
    write_configs(aiter, f"{NEW}/DEFAULT.json", {"M_LEQ_24": body(8), "M_LEQ_31": body(16), "any": body(64)})
    assert rows_of(GemmShape(20, 512, 512)) == 16


def test_the_file_of_the_layer_wins_over_the_default(aiter: Path) -> None:
    write_configs(aiter, f"{NEW}/DEFAULT.json", {"any": body(32)})
    write_configs(aiter, f"{NEW}/GEMM-AFP4WFP4_PRESHUFFLED-N=512-K=1024.json", {"any": body(64)})
    assert rows_of(GemmShape(64, 512, 1024)) == 64
    assert rows_of(GemmShape(64, 512, 512)) == 32


def test_words_of_older_releases(aiter: Path) -> None:
    words = {"small": body(8), "small_M16": body(16), "medium_M32": body(32), "medium_M64": body(32), "large": body(64)}
    write_configs(aiter, f"{OLD}/MI350X-GEMM-AFP4WFP4_PRESHUFFLED.json", {**words, "xlarge": body(128)})
    assert [rows_of(GemmShape(M, 512, 512)) for M in (8, 16, 32, 256, 4096)] == [8, 16, 32, 64, 128]


def test_split_and_step_are_those_that_the_launcher_makes(aiter: Path) -> None:
    write_configs(aiter, FUSED, {"any": body(16, step=512, split=8, BLOCK_SIZE_N=16)})
    # 1536 = 3 steps of 512: of 8 slices 3 have a step.
    three = AiterTritonConfig(BLOCK_N=32, BLOCK_K=512, num_warps=2, waves_per_eu=1, split_k=3)
    assert incumbents(GemmShape(16, 512, 1536)) == [("aiter_triton_a16w4", three)]
    ((_, short),) = incumbents(GemmShape(16, 512, 256))
    assert (short.to_dict()["BLOCK_K"], short.to_dict()["split_k"]) == (256, 1)


def test_a_split_that_leaves_part_of_a_slice_is_halved(aiter: Path) -> None:
    write_configs(aiter, FUSED, {"any": body(16, split=10)})
    # 7168 = 28 steps of 256: a tenth are 3 steps, a fifth 6, neither divides 28; two slices of 14 do.
    ((_, config),) = incumbents(GemmShape(16, 512, 7168))
    assert config.to_dict()["split_k"] == 2


def test_nothing_is_chosen_without_aiter_or_its_files(aiter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert incumbents(GemmShape(16, 512, 512)) == []
    monkeypatch.setenv(PATH_VARIABLE, str(aiter / "nothing"))
    assert incumbents(GemmShape(16, 512, 512)) == []


@pytest.mark.parametrize("text", ["{", pytest.param("[" * 100_000, id="deep")])
def test_a_torn_file_is_named(aiter: Path, text: str) -> None:
    write_configs(aiter, f"{NEW}/DEFAULT.json", {})
    path = aiter / "aiter/ops/triton/configs" / NEW / "DEFAULT.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"DEFAULT\.json: cannot be read"):
        incumbents(GemmShape(16, 512, 512))


def test_a_choice_has_no_larger_group_than_there_are_rows_of_tiles(aiter: Path) -> None:
    write_configs(aiter, f"{NEW}/DEFAULT.json", {"any": body(32)})  # GROUP_SIZE_M 4
    groups = [incumbents(GemmShape(M, 512, 512))[0][1].to_dict()["GROUP_M"] for M in (32, 64, 512)]
    assert groups == [1, 2, 4]
