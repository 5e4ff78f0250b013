"""search.study.priors: points that will probably spill are known, tried last, and never lost."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pytest
from small_search import points

from kernels.device import GFX950, DeviceKey
from kernels.families.fused import TileConfig
from kernels.families.staged_ck import StagedCkConfig
from kernels.families.staged_hip import StagedHipConfig
from search.gfx950.machine import MI355X
from search.study.points import Points
from search.study.priors import doubtful, doubtful_on


def judged(**knobs: int) -> bool:
    frame = pd.DataFrame([TileConfig(**knobs).to_dict()])  # type: ignore[arg-type]
    return bool(doubtful("fused", frame, MI355X)[0])


def test_a_small_tile_is_trusted_and_one_of_more_accumulators_than_registers_is_not() -> None:
    assert not judged(BLOCK_M=16, BLOCK_N=64, BLOCK_K=256, num_warps=4)
    # 256 x 256 accumulators over 2 waves of 64 lanes are 512 a lane: all the registers there are.
    assert judged(BLOCK_M=256, BLOCK_N=256, BLOCK_K=256, num_warps=2)


def test_a_hint_of_more_waves_leaves_fewer_registers() -> None:
    # 8 waves a SIMD leave 64 registers a lane, fewer than the 96 that 64 x 64 x 256 needs for its operands alone.
    tile = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 256, "num_warps": 4}
    assert not judged(**tile)
    assert judged(**tile, waves_per_eu=8)


def test_doubtful_points_come_after_all_others_and_are_not_lost() -> None:
    plain = points()
    masks = {family: (legal.frame["num_warps"] == 8).to_numpy() for family, legal in plain.legal.items()}
    ordered = Points(plain.legal, 0, masks)
    promising = sum(int((~mask).sum()) for mask in masks.values())
    seen = []
    while ordered.untried:
        family, config = ordered.random()
        ordered.mark(family, config)
        seen.append(config.num_warps)
    assert len(seen) == plain.total
    assert 8 not in seen[:promising]
    assert set(seen[promising:]) == {8}


def test_a_hip_tile_whose_accumulators_fill_the_registers_is_doubtful() -> None:
    # 256 x 256 over 4 waves: 256 accumulators a lane, and as much again for two steps of B in flight.
    tiles = [{"BLOCK_M": 256, "BLOCK_N": 256}, {"BLOCK_M": 128, "BLOCK_N": 256}, {}]
    frame = pd.DataFrame([StagedHipConfig(**tile).to_dict() for tile in tiles])
    assert doubtful("staged_hip", frame, MI355X).tolist() == [True, False, False]


def test_what_is_built_already_is_never_doubtful() -> None:
    assert doubtful("staged_ck", pd.DataFrame([StagedCkConfig().to_dict()] * 2), MI355X).tolist() == [False, False]
    assert doubtful("aiter", pd.DataFrame(index=range(1)), MI355X).tolist() == [False]


H200 = DeviceKey("sm_90", 132)
# Of 128 lanes: 16 x 256 accumulators are 32 registers a lane; (16 + 256) x 512 bf16 values, two a register, are 544.
CROWDED = {"BLOCK_M": 16, "BLOCK_N": 256, "BLOCK_K": 512, "num_warps": 4}


@pytest.mark.parametrize(
    ("tile", "spills"),
    [
        (CROWDED, True),  # 576 of 255 registers
        (CROWDED | {"num_warps": 8}, False),  # 288: some such code is among the best
        (CROWDED | {"BLOCK_K": 256}, False),  # 304
        (CROWDED | {"BLOCK_M": 256, "BLOCK_K": 64}, True),  # 512 accumulators and 128
    ],
)
def test_decoded_tiles_that_crowd_the_registers_come_last(tile: Mapping[str, int], spills: bool) -> None:
    frame = pd.DataFrame([TileConfig(**tile).to_dict()])  # type: ignore[arg-type]
    assert doubtful_on(H200, "fused", frame).tolist() == [spills]
    assert not doubtful_on(DeviceKey("gfx942", 304), "fused", frame).any()  # 64 lanes a wave, 512 registers a lane


def test_where_codes_are_multiplied_as_they_are_the_model_decides_alone() -> None:
    frame = pd.DataFrame([TileConfig(**CROWDED).to_dict()])  # type: ignore[arg-type]
    assert doubtful_on(GFX950, "fused", frame).tolist() == doubtful("fused", frame, MI355X).tolist()


def test_what_another_library_wrote_decodes_nothing_that_is_known() -> None:
    assert not doubtful_on(H200, "aiter", pd.DataFrame(index=range(2))).any()
