"""staged_hip: which knobs of the native families are legal, judged by hand from the kernels' own limits."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.config import KernelConfig, violations
from kernels.device import GFX950, DeviceKey
from kernels.families.aiter import AiterConfig
from kernels.families.staged_ck import StagedCkConfig
from kernels.families.staged_hip import StagedHipConfig
from kernels.problem import GemmShape

SHAPE = GemmShape(64, 7168, 2048)
H200 = DeviceKey("sm_90", 132)


@pytest.mark.parametrize("config", [StagedHipConfig(), StagedCkConfig(), AiterConfig()], ids=lambda c: type(c).__name__)
def test_the_defaults_are_for_gfx950_only(config: KernelConfig) -> None:
    assert config.check(SHAPE, GFX950) is None
    assert config.check(SHAPE, H200) == "these kernels are gfx950 machine code"


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"BLOCK_K": 128}, "BLOCK_K=128 is no multiple of 256"),
        ({"BLOCK_M": 48, "waves_m": 2}, "waves_m=2 of BLOCK_M=48"),  # 24 rows a wave
        ({"BLOCK_M": 16, "matrix_instr_nonkdim": 32}, "waves_m=1 of BLOCK_M=16"),
        ({"BLOCK_N": 64, "matrix_instr_nonkdim": 32}, "waves_n=4 of BLOCK_N=64"),  # 16 columns a wave
        ({"matrix_instr_nonkdim": 0}, "matrix_instr_nonkdim=0 is none of 16, 32"),
        ({"num_stages": 5}, "num_stages=5 is none of 1, 2, 3, 4"),
        ({"BLOCK_M": 256, "BLOCK_N": 64, "BLOCK_K": 512, "num_stages": 3}, "exceed the LDS"),  # 3 x 64 KiB
        ({"BLOCK_M": 512, "BLOCK_N": 512, "num_stages": 1}, "accumulators exceed the registers"),
        ({"BLOCK_N": 1024, "waves_n": 32}, "waves_m=1 x waves_n=32 exceeds 16"),
        ({"split_k": 0}, "split_k=0 is less than 1"),
        ({"QUANT_VECTOR": 2}, "QUANT_VECTOR=2 is none of 4, 8, 16, 32"),
        ({"QUANT_THREADS": 96}, "QUANT_THREADS=96 is none of"),
    ],
)
def test_a_hip_tile_that_cannot_be_built_is_refused_with_its_reason(knobs: dict[str, int], reason: str) -> None:
    assert reason in (StagedHipConfig(**knobs).check(SHAPE, GFX950) or "")


@pytest.mark.parametrize(
    ("knobs", "operand"),
    [
        ({"BLOCK_M": 1024, "BLOCK_N": 16, "waves_m": 8, "waves_n": 1, "num_stages": 1}, "A"),
        ({"BLOCK_M": 16, "BLOCK_N": 1024, "waves_n": 4}, "B"),
    ],
)
def test_an_operand_of_a_tile_stays_below_the_offset_of_lanes_that_are_outside(
    knobs: dict[str, int], operand: str
) -> None:
    config = StagedHipConfig(**knobs)
    assert config.check(GemmShape(1024, 1024, (1 << 22) - 64), GFX950) is None  # 1024 x 2**21 bytes: 2**31 less 2**15
    refusal = config.check(GemmShape(1024, 1024, 1 << 22), GFX950)
    assert refusal is not None and f"=1024 rows of {operand} exceed 2 GB" in refusal


@pytest.mark.parametrize(
    "knobs",
    [
        {"BLOCK_M": 16, "BLOCK_N": 64},  # 16 columns a wave, of the 16-row instruction
        {"BLOCK_M": 96, "waves_m": 1}, {"BLOCK_M": 192, "waves_m": 2, "waves_n": 2},
        {"BLOCK_M": 256, "BLOCK_N": 256, "waves_m": 2, "waves_n": 2, "num_stages": 4},  # 4 x 32 KiB; 256 accumulators
        {"BLOCK_M": 256, "BLOCK_K": 512, "num_stages": 2, "matrix_instr_nonkdim": 32},  # 128 KiB
    ],
)  # fmt: skip
def test_a_hip_tile_that_fits_is_legal(knobs: dict[str, int]) -> None:
    assert StagedHipConfig(**knobs).check(SHAPE, GFX950) is None


@pytest.mark.parametrize(
    ("shape", "knobs", "reason"),
    [
        (SHAPE, {"BLOCK_M": 48}, "AITER has no kernel of tile BLOCK_M=48 x BLOCK_N=128"),
        (SHAPE, {"BLOCK_M": 96, "BLOCK_N": 768}, "AITER has no kernel of tile"),  # the widest has 640 columns
        (SHAPE, {"log2_k_split": 1}, "tile 32x128 cannot split K, log2_k_split=1"),
        (GemmShape(64, 7168, 2112), {}, "K=2112 is no multiple of 256"),
        (GemmShape(256, 2112, 512), {"BLOCK_M": 256, "BLOCK_N": 256}, "tile 256x256 writes beyond the row's end"),
        (GemmShape(16, 2048, 256), {"BLOCK_M": 256, "BLOCK_N": 256}, "reads beyond the end of A"),
        (SHAPE, {"QUANT_GROUPS": 3}, "QUANT_GROUPS=3 is none of 1, 2, 4"),
    ],
)
def test_a_code_object_is_refused_in_its_own_terms(shape: GemmShape, knobs: dict[str, int], reason: str) -> None:
    assert reason in (StagedCkConfig(**knobs).check(shape, GFX950) or "")


def test_a_split_is_legal_where_the_tile_has_it_and_is_not_repeatable() -> None:
    split = StagedCkConfig(BLOCK_M=128, BLOCK_N=512, log2_k_split=2)
    assert split.check(SHAPE, GFX950) is None
    assert not split.repeatable
    assert StagedCkConfig().repeatable


@pytest.mark.parametrize("shape", [SHAPE, GemmShape(300, 2112, 512), GemmShape(64, 7168, 2112)], ids=str)
def test_columns_are_judged_as_single_configurations_are(shape: GemmShape) -> None:
    rng = np.random.default_rng(3)
    for config_type, choices in (
        (StagedCkConfig, {"BLOCK_M": [32, 48, 96, 128, 256], "BLOCK_N": [128, 192, 256, 512, 640],
                          "log2_k_split": [0, 1, 2]}),
        (StagedHipConfig, {"BLOCK_M": [16, 32, 48, 256], "BLOCK_N": [32, 64, 256], "waves_m": [1, 2, 4],
                           "waves_n": [1, 4, 8], "matrix_instr_nonkdim": [0, 16, 32], "BLOCK_K": [128, 256, 512]}),
    ):  # fmt: skip
        default = config_type().to_dict()
        columns = {name: rng.choice(choices.get(name, [value]), 200) for name, value in default.items()}
        broken = np.zeros(200, bool)
        for _, where in violations(config_type, columns, shape, GFX950):
            broken |= where
        singles = [
            config_type(**{name: values[i].item() for name, values in columns.items()}).check(shape, GFX950)
            for i in range(200)
        ]
        assert broken.tolist() == [reason is not None for reason in singles]
        assert 0 < broken.sum() <= 200
