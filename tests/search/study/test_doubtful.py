"""search.study.priors: points that will probably spill are known, tried last, and never lost."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from small_search import points

from kernels.device import GFX950, DeviceKey
from kernels.families import FAMILIES
from kernels.families.fused import TileConfig
from kernels.families.staged_ck import StagedCkConfig
from kernels.families.staged_hip import StagedHipConfig
from kernels.problem import GemmShape
from search.device.ahead import Compiled
from search.evaluation import Candidate
from search.evaluators.device import begin_compiling, compile_candidate
from search.gfx950.machine import MI355X
from search.study.points import Points
from search.study.priors import doubtful, doubtful_on
from search.workers.pool import WorkerPool


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


H200, MI300X = DeviceKey("sm_90", 132), DeviceKey("gfx942", 304)
# Of 128 lanes: 16 x 256 accumulators are 32 registers a lane; (16 + 256) x 512 bf16 values, two a register, are 544.
CROWDED = {"BLOCK_M": 16, "BLOCK_N": 256, "BLOCK_K": 512, "num_warps": 4, "a_operand": "bf16"}


def overflows(family: str, device: DeviceKey, **knobs: object) -> bool:
    frame = pd.DataFrame([FAMILIES[family].config(knobs).to_dict()])
    return bool(doubtful_on(device, family, frame)[0])


@pytest.mark.parametrize(
    ("tile", "crowded"),
    [
        (CROWDED, True),  # 576 of 255 registers
        (CROWDED | {"num_warps": 8}, False),  # 288: some such code is among the best
        (CROWDED | {"num_warps": 8, "a_operand": "e2m1"}, True),  # unless Triton decodes
        (CROWDED | {"BLOCK_K": 256}, False),  # 304
        (CROWDED | {"BLOCK_M": 256, "BLOCK_K": 64}, True),  # 512 accumulators and 128
    ],
)
def test_decoded_tiles_that_crowd_the_registers_come_last(tile: Mapping[str, object], crowded: bool) -> None:
    assert overflows("fused", H200, **tile) == crowded
    assert overflows("fused_splitk_ticket", H200, **tile) == crowded
    assert not overflows("fused", MI300X, **tile)  # 64 lanes a wave, 512 registers a lane


def test_values_of_a_in_more_buffers_than_shared_memory_holds_come_last() -> None:
    # 3 x 64 x 512 and 3 x 128 x 512 values of 2 bytes, and 2 x 128 x 512 codes of half a byte, of 232,448 bytes.
    tile = {"BLOCK_N": 128, "BLOCK_K": 512, "num_warps": 8, "num_stages": 3, "a_operand": "bf16"}
    assert overflows("staged_triton", H200, BLOCK_M=64, **tile)  # 262,144
    assert not overflows("staged_triton", H200, BLOCK_M=32, **tile)  # 163,840
    assert not overflows("staged_triton", H200, BLOCK_M=64, **(tile | {"num_stages": 2}))  # 163,840
    assert not overflows("staged_triton", H200, BLOCK_M=64, **(tile | {"BLOCK_N": 32}))  # not known
    assert not overflows("staged_triton", MI300X, BLOCK_M=64, **tile)  # nor is this


def test_triton_allocates_the_buffers_that_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    config = FAMILIES["staged_triton"].config(
        {"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 512, "num_stages": 2, "quantizer": "software", "a_operand": "bf16"}
    )
    begin = partial(begin_compiling, H200)
    compiler = WorkerPool(partial(compile_candidate, device=H200), 1, begin, fork=begin_compiling.__module__)
    try:
        made = compiler.submit(Candidate(GemmShape(64, 256, 2048), "staged_triton", config), 300.0).result()
    finally:
        compiler.close()
    assert isinstance(made, Compiled)
    assert made.lds_bytes == 2 * 32 * 512 * 2 + 64 * 512 // 2 + 64 * 512 // 32  # the last are the weight's scales


def test_where_codes_are_multiplied_as_they_are_the_model_decides_alone() -> None:
    frame = pd.DataFrame([TileConfig(BLOCK_M=16, BLOCK_N=256, BLOCK_K=512, num_warps=4).to_dict()])
    assert doubtful_on(GFX950, "fused", frame).tolist() == doubtful("fused", frame, MI355X).tolist()


def test_what_another_library_wrote_decodes_nothing_that_is_known() -> None:
    assert not doubtful_on(H200, "aiter", pd.DataFrame(index=range(2))).any()
